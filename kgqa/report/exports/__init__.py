"""A finished run in the forms that other programs read, a module each; each writes into a folder it is given.

Not here: the tables of a run (`kgqa.report.tables`), and reports for people.
"""
