"""Experiment trackers: what a finished run leaves is copied to them, and a run never depends on one.

Off by default. Not here: what is copied (`experiment.run.tracking`).
"""
