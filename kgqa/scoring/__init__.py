"""Score answers: EM and F1, supporting passages, retrieval, intervals, paired tests."""
