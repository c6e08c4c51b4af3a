"""Knowledge bootstrapping (KnowTrace, §3.3): rounds of run, collect and train, each made by what the commands call.

Not here: what a reply is worth (`methods.steps.knowtrace_state`), and any running, collecting or training of its own.
"""
