"""Experiment trackers: what a finished run leaves is copied to them. A run does not depend on them.

Off by default. Not here: what is copied (`experiment.tracking`).
"""
