"""LLM judges, which compare an answer with the gold answers without seeing passages.

`experiment.engines` chooses their models, and `experiment.judging` measures agreement with people.
"""

# in prompts and prices, and the group that chooses one
ROLE = "judge"
