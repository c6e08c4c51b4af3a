"""The commands of `kgqa`.

`commands.py` declares every command: its arguments, its examples and the function that runs it. The functions are in
one file per group. They do not parse or draw: they call lower layers, and a `Terminal` shows the
results.
"""
