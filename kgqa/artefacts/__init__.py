"""What a run and a sweep leave on disk, as frozen types: each reads its file, checked, and gives its JSON again.

Who may write into a folder, and when, is `kgqa.runtime.folder`'s matter; what the figures mean is `kgqa.scoring`'s.
"""
