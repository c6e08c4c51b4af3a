"""One run: planned, checked, answered, measured, judged, tracked, and its folder written.

Not here: several runs (`sweep`), and what is done with a finished one (`evaluate`).
"""
