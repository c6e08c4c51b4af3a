"""Copy finished runs and trainings to trackers: MLflow, Weights & Biases. `tracking.py` chooses what they get."""
