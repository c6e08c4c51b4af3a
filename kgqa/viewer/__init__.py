"""The viewer (`kgqa view`): run folders in a browser, as tables, side by side, and question by question.

A small web application for one person on this machine (Starlette; extra `view`). It reads what runs left, shares the
report's code for what it says of them, and writes nothing but tags. What it shows was written by data sets and models,
so it enters the page as text alone, and the page may run no script but the ones that lie in `assets/`.
"""
