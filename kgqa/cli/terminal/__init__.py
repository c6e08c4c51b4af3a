"""The terminal: all of rich, and the only console. Progress while work goes on, tables of what it came to.

Each function draws values that the experiment, a report or a file gave. Not here: what is drawn into files (`report`),
arguments and exit codes (`commands`).
"""
