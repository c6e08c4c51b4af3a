"""`kgqa train`: turn examples and a base into weights with a manifest. The libraries are in `training.trainers`."""
