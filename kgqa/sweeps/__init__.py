"""Many runs of one request: cells of a grid or of a search, their budget, launchers, and tuning.

Tables of papers are in `reproduce`, the comparison of finished runs in `experiment.compare`.
"""
