"""How much of a run's prompts a prefix cache could know: how far prompts begin alike.

    python scripts/shared_prompts.py RUN...

For each run, in percent of the characters of its prompts: the longest beginning that an earlier prompt of the run has
("begins alike"; what a prefix cache can find when calls come one after the other), and lines beyond it that stand in an
earlier prompt ("the same lines later": more than any other order of a prompt's parts could win); and in percent of the
tokens of the prompts what the engine found ("found").
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.artefacts.run import FinishedRun
from kgqa.artefacts.trace import read_trace
from scripts.results_page import folders, head, line

BLOCK = 64  # characters, about 16 tokens: what vLLM keeps as one


def texts(folder: Path) -> Iterator[str]:
    """The prompts of a run's calls of models, question by question."""
    for traced in read_trace(folder):
        for call in traced.calls:
            if call.role and (prompt := call.request.get("prompt")):
                yield "\n".join([*(text for _, text in prompt["messages"]), prompt.get("prefill") or ""])


def shares(prompts: Iterable[str]) -> tuple[int, float, float]:
    """How many there are; what begins alike, and which lines come again later, in percent of the characters."""
    count = whole = alike = later = 0
    begun: set[int] = set()  # beginnings, block by block, as an engine keeps them
    seen: set[str] = set()
    for text in prompts:
        known, beginning, fresh = 0, 0, False
        for at in range(BLOCK, len(text) + 1, BLOCK):
            beginning = hash((beginning, text[at - BLOCK : at]))
            fresh = fresh or beginning not in begun
            known = known if fresh else at
            begun.add(beginning)
        count += 1
        whole += len(text)
        alike += known
        later += sum(len(each) + 1 for each in text[known:].split("\n")[1:] if each in seen)
        seen.update(text.split("\n"))
    return count, 100 * alike / whole, 100 * later / whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path, metavar="RUN", help="a run's folder, or a sweep's")
    print(head(["method", "data set", "calls", "begins alike", "the same lines later", "found"]))
    for folder in folders(parser.parse_args().places):
        finished = FinishedRun.read(folder)
        cost = finished.metrics.cost.method
        found = 100 * cost.cached_tokens / cost.prompt_tokens
        count, alike, later = shares(texts(folder))
        cells = [f"`{finished.choices['method']}`", finished.choices["dataset"], f"{count:,}"]
        print(line([*cells, f"{alike:.0f}", f"{later:.0f}", f"{found:.0f}"]))


if __name__ == "__main__":
    main()
