"""What a run and a sweep leave on disk, as frozen types: each reads its file, checked, and gives its JSON again.

`runs` finds the folders themselves. Not here: who may write into one, and when (`runtime.folder`), and how its figures
come about (`scoring`).
"""
