"""Methods: one file, one method of one paper, one YAML; a coroutine from a question to an answer.

A method awaits calls and gets replies; it imports no third-party code, does no I/O and knows neither engines nor
batches. Parts that several methods share are in `steps`; prompts are in `kgqa/prompts`, values in `conf/method`.
"""
