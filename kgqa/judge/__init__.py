"""LLM judges: programs that compare an answer with the gold answers, without the passages it came from.

Not here: whom they ask (`experiment.engines`), agreement with people (`scoring.agreement`).
"""

ROLE = "judge"  # in prompts and prices, and the group that chooses one
