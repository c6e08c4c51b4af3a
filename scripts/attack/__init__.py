"""`make attack`: everything that can go wrong around kgqa, done to it on purpose, and what became of it in one table.

    table       which attacks there are, how often each is tried, and who judges
    driver      what runs them on all cores and prints the table; `python -m scripts.attack`
    trial       one try: its folder, its dice, the commands it runs and what was found in it
    processes   one command line in a process of its own: forked from one that has kgqa loaded, or a real one
    composed    configurations that one fork hands on to the next
    judging     what must never be seen: tracebacks, unknown exit codes, raw control characters, the planted key
    bending     mutations of JSON values and of bytes
    word_files  Word files, sound and harmed
    starting    the sound runs that most tries begin with
    on_*        an attack each: what it does, and what it holds the outcome against

A try is made of its attack's name, its number and the seed and of nothing else, so `ONLY=cache SEED=5 TRY=17` repeats
it. Nothing loads weights and nothing leaves this machine.
"""
