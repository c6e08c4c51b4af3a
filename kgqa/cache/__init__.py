"""The call cache: a SQLite file with one row per reply, shared by all runs of a folder."""
