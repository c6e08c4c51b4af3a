"""Datasets: files to `Question` and `Passage`, one format a file, and where the files come from.

Demonstrations and predictions of others are read here, too. Not here: when a file is fetched (`experiment.data`), and
what a run does with its questions (`experiment.run`).
"""
