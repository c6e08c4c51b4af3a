"""The local web app of `kgqa view`: runs in a table and side by side, question pages, plots.

Pages are rendered here with Jinja, so texts of datasets and models are escaped. Only scripts of `assets/` run.
"""
