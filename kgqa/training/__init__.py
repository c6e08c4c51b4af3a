"""Everything that makes trained models: collect examples, train, bootstrap, verify questions, and the trainers.

`collect` writes training examples, `train` turns them into weights with a manifest, `bootstrap` repeats both in rounds,
`verify` checks questions against their gold passages, `trainers` adapts one library per file.
"""
