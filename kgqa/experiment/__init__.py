"""Run one experiment: compose, check, prepare, answer, score and judge.

`reproduce` > `sweep`, `evaluate`, `collect` > `run` > `prepare` > `session` > `machine`, `data` > `config`. Quiet: the
rooms tell a `Display` how far they are and return values. Not here: arguments of commands (`commands`), tables on a
terminal (`terminal`).
"""
