"""Everything that makes trained models: collect examples, train, bootstrap, and the trainers.

`collect` writes training examples, `train` turns them into weights with a manifest, `bootstrap` repeats both in rounds,
`trainers` adapts one library per file.
"""
