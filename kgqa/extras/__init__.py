"""Add to experiments what is not one. Each folder is an extra, and its `register.py` declares what it adds.

The rest of kgqa never imports this package. It finds the extras by their folders (`kgqa.util.registry`), so that a
folder can be removed without changing another file.
"""
