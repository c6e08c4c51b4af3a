"""From answers to figures: EM and F1, supporting passages, retrieval, intervals, paired tests.

One formula, one function, its paper named; equal to the official scorers on every row. Not here: reading a run's files
(`artifacts`), tables (`report`).
"""
