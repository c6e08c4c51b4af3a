"""Retrieval: retrievers, rankers and encoders, one library a file, and the index that a run searches.

Not here: graphs of triples (`kg`), when an index is built (`experiment.prepare`).
"""
