"""Parts of methods: readers, few-shot examples, parsers of replies, KnowTrace's graph, SAFE's verdicts.

A step imports no method.
"""
