"""This machine: its memory and devices, which presets fit, what is installed, reachable and on disk.

Returns findings and values, and prints nothing. Not here: opening a model (`session`).
"""
