"""Configurations: found in conf/, composed by Hydra, checked, and built into dataclasses.

With `sweep.launching` the only place that knows Hydra and OmegaConf. Not here: what a configuration makes a run do.
"""
