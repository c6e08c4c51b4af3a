"""Passage graphs (KGP: Wang et al., AAAI 2024, §3): how passages are linked, and where the graphs are kept.

Not here: the walk through them (`methods.kgp`), graphs of triples (`kg`), when one is built (`experiment.prepare`).
"""
