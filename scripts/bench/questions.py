"""Write synthetic questions in MuSiQue's form: 20 different passages of 80 words each."""

from __future__ import annotations

import json
import random
from pathlib import Path

# passages per question, words per passage
PASSAGES, WORDS = 20, 80
INITIALS = "abcdefghijklmnoprstuvwz"


def write_questions(file: Path, count: int) -> Path:
    """Write `count` questions to `file` and return it. Word frequencies follow Zipf's law."""
    generator = random.Random(7)
    words = [
        "".join(generator.choices(INITIALS, k=generator.randint(2, 10))) for _ in range(20_000)
    ]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            text = generator.choices(words, weights, k=PASSAGES * WORDS)
            paragraphs = [
                {
                    "idx": index,
                    "title": f"{text[index * WORDS]} {number} {index}".capitalize(),
                    "paragraph_text": " ".join(text[index * WORDS : (index + 1) * WORDS]),
                    "is_supporting": index < 2,
                }
                for index in range(PASSAGES)
            ]
            steps = [
                {"question": "Which?", "answer": text[hop], "paragraph_support_idx": hop}
                for hop in (0, 1)
            ]
            question = {
                "id": f"2hop__{number}",
                "paragraphs": paragraphs,
                "question": f"Which {text[0]} has the {text[1]} {number}?",
                "question_decomposition": steps,
                "answer": text[2],
                "answer_aliases": [],
                "answerable": True,
            }
            lines.write(json.dumps(question) + "\n")
    return file
