"""Datasets: readers of question files and corpora, downloads, and few-shot examples."""
