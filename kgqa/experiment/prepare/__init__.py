"""Prepare a run before its first question: triples, the index and passage graphs, built once and reused.

Not here: the questions (`run`).
"""
