"""Engines answer `Generate`, `Choose` and `CountTokens`: one library per package or file, on common parts.

The package of an engine exports the class that configurations name. When an engine is called is decided in `runtime`,
and which one a role has in `experiment.engines`.
"""
