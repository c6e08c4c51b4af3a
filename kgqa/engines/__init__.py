"""Engines: what answers `Generate`, `Choose` and `CountTokens`, one library a package, on a shared ground.

A package's face hands on the class that configurations name; its parts import the ground below, never a face and never
each other's engine. Not here: when an engine is asked (`runtime`), which one a role has (`experiment.session`).
"""
