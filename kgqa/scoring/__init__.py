"""From answers to figures: EM and F1, supporting passages, retrieval, intervals, paired tests."""
