"""Methods: one file, one YAML and one class per method. A coroutine turns a question into an answer.

A method awaits calls and gets replies. It does no I/O and knows neither engines nor batches. `steps` has the parts that
several methods share, `kgqa/prompts` the templates, `conf/method` the values with their sources.
"""
