"""Rankers and, later, retrievers: adapters around encoders and indexes, one library per file."""
