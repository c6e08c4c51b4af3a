"""Runtime: programs side by side, their calls in batches and streams, the call cache, costs, a run's folder.

Knows neither configurations nor methods. Not here: what a folder's files mean when read again (`artefacts`).
"""
