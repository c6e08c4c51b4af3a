"""Datasets: readers of question files and corpora, documents of users, downloads, and few-shot examples."""
