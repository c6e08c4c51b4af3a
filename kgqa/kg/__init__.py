"""Triples: the program that extracts them from a passage, what a reply's lines mean, and where they are kept.

Not here: chains over triples, which are a method's business (`methods.trace`), and graphs of passages
(`retrieval.graphs`).
"""
