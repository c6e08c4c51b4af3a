"""Which questions of a benchmark their gold passages answer (SAFE, §3.2): `kgqa verify`.

Not here: the program and its prompts (`kg.verification`), and the published counts (`reproduce`).
"""
