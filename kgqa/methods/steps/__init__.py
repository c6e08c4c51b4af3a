"""Steps that several methods take: reading an answer out of a reply, demonstrations, sentences, pages.

A step imports no method.
"""
