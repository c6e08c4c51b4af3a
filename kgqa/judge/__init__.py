"""LLM judges: programs that compare an answer with the gold answers, without the passages it came from.

Not here: whom they ask (`experiment.run.judging`), agreement with people (`scoring.agreement`).
"""
