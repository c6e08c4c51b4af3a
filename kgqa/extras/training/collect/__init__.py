"""`kgqa collect`: make training examples from questions and finished runs. A recipe is a choice of `conf/collect/`.

Recipes write examples as messages. `kgqa.extras.training.train` renders them, and trainers know no recipe.
"""
