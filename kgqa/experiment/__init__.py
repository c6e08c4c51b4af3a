"""Run one experiment: compose, check, prepare, answer, score, judge, report.

`run.execute` is this line of steps. `experiment` holds the values of a configuration and its identity, `session` what
is open meanwhile, `prepare` what is built before the first question. `evaluate` and `compare` work on finished runs.
Nothing here prints: a `Display` gets the progress. Not here: the arguments of commands (`cli`).
"""
