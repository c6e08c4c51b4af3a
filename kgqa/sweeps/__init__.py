"""Many runs of one request: cells of a grid or of a search, their budget, launchers, and tuning.

Not here: tables of papers (`reproduce`), the comparison of finished runs (`evaluate`).
"""
