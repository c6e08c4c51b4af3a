"""Answer questions with IRCoT as a plain aiohttp loop, as short as one would write it, without kgqa.

It saves, counts and retries nothing. The answers are printed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import aiohttp

K1, B = 1.2, 0.75
# passages of a step, steps, passages in all
BEST, STEPS, MOST = 4, 8, 15
END = "So the answer is: "


class Words:
    """BM25 over title and text.

    Words of more than a tenth of the passages are skipped, which makes it ten times as fast.
    """

    def __init__(self, passages: list[dict[str, str]]) -> None:
        self.passages = passages
        counted = [Counter(_words(f"{each['title']} {each['text']}")) for each in passages]
        lengths = [counts.total() for counts in counted]
        shared = Counter(word for counts in counted for word in counts)
        mean = sum(lengths) / len(lengths)
        self._found: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for place, (counts, length) in enumerate(zip(counted, lengths, strict=True)):
            for word, count in counts.items():
                if shared[word] > len(passages) / 10:
                    continue
                weight = count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean))
                self._found[word].append((place, weight))

    def best(self, query: str) -> list[int]:
        scores: dict[int, float] = defaultdict(float)
        for word in set(_words(query)):
            hits = self._found.get(word, ())
            rare = math.log(1 + (len(self.passages) - len(hits) + 0.5) / (len(hits) + 0.5))
            for place, weight in hits:
                scores[place] += rare * weight
        return sorted(scores, key=lambda place: (-scores[place], place))[:BEST]


def _words(text: str) -> Iterable[str]:
    return re.findall(r"\w+", text.lower())


class Loop:
    def __init__(self, session: aiohttp.ClientSession, url: str, slots: int, words: Words) -> None:
        self._session, self._url = session, f"{url}/completions"
        self._slots, self._words = asyncio.Semaphore(slots), words

    async def answer(self, question: str) -> str:
        found: dict[int, None] = {}
        thoughts: list[str] = []
        while len(thoughts) < STEPS:
            async with self._slots:
                if len(found) < MOST:
                    found |= dict.fromkeys(self._words.best(thoughts[-1] if thoughts else question))
                thoughts.append(await self._write(question, list(found)[:MOST], thoughts))
            if thoughts[-1].startswith(END):
                break
        return thoughts[-1].removeprefix(END).rstrip(".")

    async def _write(self, question: str, found: list[int], thoughts: list[str]) -> str:
        passages = [self._words.passages[place] for place in found]
        shown = "".join(
            f"Wikipedia Title: {each['title']}\n{each['text']}\n\n" for each in passages
        )
        prompt = f"{shown}Q: {question}\nA:" + "".join(f" {thought}" for thought in thoughts)
        body = {
            "model": "simulated",
            "prompt": prompt,
            "max_tokens": 100,
            "temperature": 0,
            "stop": ["\n"],
        }
        async with self._session.post(self._url, json=body) as response:
            text: str = (await response.json())["choices"][0]["text"]
        return text.strip()


def read_lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


async def run(given: argparse.Namespace) -> list[str]:
    words = Words(read_lines(given.corpus))
    endless = aiohttp.ClientTimeout(total=None, sock_connect=None)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=endless
    ) as session:
        loop = Loop(session, given.url, given.slots, words)
        return await asyncio.gather(
            *(loop.answer(row["question"]) for row in read_lines(given.questions))
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--slots", type=int, default=64, help="parallel calls")
    json.dump(asyncio.run(run(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
