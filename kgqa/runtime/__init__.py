"""Runtime: programs side by side, their calls in batches and streams, the call cache, costs, folders being written.

Knows neither configurations nor methods; `display` is how work that takes long is told to whoever looks on. Not
here: what a folder's files mean when read again (`artefacts`).
"""
