"""Texts to train on, made of questions and finished runs.

Not here: the trainers, which will stand beside the engines.
"""
