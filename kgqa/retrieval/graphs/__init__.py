"""Passage graphs (KGP: Wang et al., AAAI 2024, §3): links between passages, and files of graphs.

Not here: the walk through them (`methods.kgp`), graphs of triples (`kg`), when one is built (`experiment.prepare`).
"""
