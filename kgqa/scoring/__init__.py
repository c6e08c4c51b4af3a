"""From answers to figures: EM and F1, supporting passages, intervals, and a run's `metrics.json`."""
