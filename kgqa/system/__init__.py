"""This machine: its memory and devices, which presets fit, what is installed, reachable and on disk.

It downloads datasets, and otherwise returns findings and values. Not here: opening a model (`session`).
"""
