"""Finished runs again: scored under every profile, compared, judged, and the judge itself calibrated.

Asks no method. Not here: the formulas (`scoring`).
"""
