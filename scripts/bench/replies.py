"""What the endpoint of the race says: the same words to the same question at the same step, whoever asks.

The n-th thought about a question is the same in every run, and after one to three thoughts comes the answer, so that
all runners of IRCoT make the same calls. A passage has three to seven triples. Of options each has a probability drawn
by question, chain and option; the first, which ends a chain, is likely from the second step on.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping

# kgqa's IRCoT and whoever copies it; the others
QUESTIONS = ("\nQ: ", "\nQuestion: ")
THOUGHT = re.compile(r"\bThought\d")
OPTION = re.compile(r"^([A-Z]{1,2})\. (.*)$", re.MULTILINE)
CHAIN = "Chain so far: "
TITLE, TEXT = "\nTitle: ", "\nText: "
# tokens: an answer and no thought is asked for
SHORT = 30
# triples, from which on a chain may be complete
END = 1


def reply(prompt: str, most: int = 100) -> str:
    """Triples of a passage, an answer where no more than `SHORT` tokens may come, else the next thought."""
    prompt = f"\n{prompt}"
    at = max(prompt.rfind(mark) for mark in QUESTIONS)
    if prompt.rfind(TEXT) > at:
        return triples(prompt[prompt.rfind(TITLE) + len(TITLE) :])
    question, _, begun = prompt[at:].lstrip("\n").partition(": ")[2].partition("\n")
    words: list[str] = re.findall(r"\w{3,}", question) or ["nothing"]
    thought, thoughts = len(THOUGHT.findall(begun)), 1 + drawn(question) % 3
    if thought > thoughts or most <= SHORT:
        return words[drawn(question, -1) % len(words)]
    if thought == thoughts:
        return f"So the answer is: {words[drawn(question, thought) % len(words)]}."
    count = 4 + drawn(question, thought) % 24
    said = " ".join(words[drawn(question, thought, place) % len(words)] for place in range(count))
    return f"Thought{thought} about {said}."


def triples(passage: str) -> str:
    """One a line, of a passage's title and text."""
    title, _, text = passage.partition("\n")
    words: list[str] = re.findall(r"\w{3,}", text) or ["nothing"]
    picked = (
        words[drawn(title, number) % len(words)]
        for number in range(1, 2 * (3 + drawn(title) % 5) + 1)
    )
    return "\n".join(
        f"<{title.replace(';', ',')}; {relation}; {next(picked)}>" for relation in picked
    )


def choice(prompt: str) -> Mapping[str, float]:
    """Log-probabilities of the labels in the prompt's last list of options, likeliest first."""
    question, _, rest = (
        prompt[prompt.rfind(QUESTIONS[1], 0, prompt.rfind(CHAIN)) :].lstrip("\n").partition("\n")
    )
    chain, _, listed = rest.partition(CHAIN)[2].partition("\n")
    shares = {}
    for label, option in OPTION.findall(listed):
        shares[label] = 0.05 + drawn(question, chain, option) % 1000 / 1000
        if label == "A":
            hops = chain.count(">, <") + 1 if "<" in chain else 0
            shares[label] = 1e-6 if hops <= END else 40.0 if drawn(question, chain) % 2 else 0.01
    whole = sum(shares.values())
    return {
        label: math.log(share / whole)
        for label, share in sorted(shares.items(), key=lambda item: -item[1])
    }


def drawn(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())
