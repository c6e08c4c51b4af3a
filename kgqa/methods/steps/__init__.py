"""What methods are put together of: reading an answer out of a reply, demonstrations, sentences, pages.

Also what one method keeps apart from its own file (KnowTrace's graph, SAFE's verdicts). A step imports no method. Not
here: the calls themselves (`kgqa.calls`).
"""
