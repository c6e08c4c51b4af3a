"""Texts to train models on: now those of KGP's agent, made of questions and their supporting passages.

Not here: trainers, of which there are none yet; they will stand beside the engines.
"""
