"""`kgqa train`: examples and a base become weights with a manifest; and what becomes of them: `kgqa trained`.

The only place where examples, engines' templates and trainers meet. Not here: training itself (`kgqa.training`, in a
process of its own) and what examples are made of (`collect`).
"""
