"""Small building blocks without knowledge of questions or models: files, JSON, text, HTTP, optional dependencies.

Nothing here imports another package of kgqa.
"""
