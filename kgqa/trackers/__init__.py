"""Experiment trackers (MLflow, Weights & Biases). `experiment.tracking` copies finished runs to them."""
