"""Define what a run needs before its first question: triples, the index, passage graphs; built once, found again.

Not here: the questions (`run`).
"""
