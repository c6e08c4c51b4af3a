"""Datasets: files to `Question` and `Passage`, one format a file, and where the files come from.

Not here: what a run does with them (`experiment`), and who made up a question on the way (`datasets.given`).
"""
