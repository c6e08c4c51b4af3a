"""This machine: its memory and devices, which presets fit, what is installed, reachable and on disk.

Gives findings and values; shows nothing. Not here: opening a model (`session`).
"""
