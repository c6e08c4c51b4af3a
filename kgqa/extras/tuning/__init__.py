"""Choose hyperparameters on dev questions, and measure the choice on test questions: `kgqa tune`."""
