"""Benchmarks of `make bench`: each figure is a ratio to a reference that is measured in the same run."""
