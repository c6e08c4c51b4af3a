"""Reports: what a finished run or sweep left behind, as text, HTML, LaTeX, CSV and pictures.

Each function takes values and gives a string or writes a file. Not here: the terminal (`terminal`), figures
(`scoring`) and the files that a report reads (`artifacts`).
"""
