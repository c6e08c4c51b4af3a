"""One experiment's values (`Experiment`), and what is open while it runs (`Session`, `Pool`, `Runner`).

Not here: triples, indexes and graphs that are made ahead (`prepare`), and the run itself (`run`).
"""
