"""Examples to train models on: what makes them of questions and of finished runs, and the folders they are kept in.

A recipe is a choice of `conf/collect/`. Not here: trainers, which are given texts (`rendering`) and know no recipe.
"""
