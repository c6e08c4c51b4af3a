"""Published tables: read, checked, run as sweeps, and the published values put beside ours.

Not here: the values themselves, which are data (`conf/reproduce`).
"""
