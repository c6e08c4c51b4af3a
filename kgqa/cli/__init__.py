"""The commands of `kgqa`.

`commands.py` declares every command: its arguments, its examples and the function that runs it. The functions are in
one file per group. They parse nothing and draw nothing themselves: they call lower layers, and a `Terminal` shows the
results.
"""
