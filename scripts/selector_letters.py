"""TRACE's selector: scoring the options in one forward pass against writing a reply and reading the letter in it.

    python scripts/bench_selector.py letters RUN [RUN …] [--steps 200] [key=value …]

Takes the selector's calls of finished TRACE runs and asks them again in both ways, each as one open batch on the engine
that the keys name (default: those of `kgqa run`), with nothing in the call cache and an empty prefix cache. Says how
often the option with the highest probability is the one that is read, how often nothing can be read, and the factor in
time.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from kgqa.artefacts.trace import TracedQuestion, read_trace
from kgqa.calls import Choose, Generate, ModelCall
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.types import Choice, Message, Prompt
from scripts.bench_engines import forget_prefixes

LETTERS = 16  # tokens that the released code lets its selector write


def selections(runs: Sequence[Path], count: int) -> list[Choose]:
    found = [call for run in runs for question in read_trace(run) for call in _selector_calls(question)]
    step = max(1, len(found) // count)  # spread over questions and hops
    return found[::step][:count]


def _selector_calls(question: TracedQuestion) -> Iterator[Choose]:
    for call in question.calls:
        if call.kind == "choose":
            prompt = call.request["prompt"]
            messages = tuple(Message(role, text) for role, text in prompt["messages"])
            yield Choose(
                Prompt(prompt["template"], messages, prompt["prefill"], prompt["form"]),
                tuple(call.request["options"]),
                call.request["role"],
            )


def timed(engine: Any, calls: Sequence[ModelCall]) -> tuple[float, list[Any]]:
    """Seconds of one open batch, and its replies in order."""
    forget_prefixes(engine)
    started = time.monotonic()
    if engine.streaming:
        done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        for place, call in enumerate(calls):
            engine.submit(call, lambda reply, place=place: done.put((place, reply)))
        replies = [reply for _, reply in sorted((done.get() for _ in calls), key=lambda pair: pair[0])]
    else:
        size = engine.batch_size
        replies = [r for start in range(0, len(calls), size) for r in engine.answer(calls[start : start + size])]
    return time.monotonic() - started, replies


def read_letter(text: str, options: Sequence[str]) -> str | None:
    """The first word of the reply that is an option's label."""
    return next((word for word in re.findall(r"[A-Za-z]+", text) if word in options), None)


def most_probable(options: Sequence[str], choice: Choice) -> str:
    return max(zip(choice.logprobs, options, strict=True))[1]


def add_to(modes: Any) -> None:
    """The mode `letters` of `bench_selector.py`."""
    letters = modes.add_parser("letters", help="scoring the options against writing a letter")
    letters.add_argument("runs", nargs="+", help="folders of TRACE runs, and key=value for model and engine")
    letters.add_argument("--steps", type=int, default=200)
    letters.set_defaults(run=compare)


def compare(chosen: argparse.Namespace) -> None:
    runs = [Path(each) for each in chosen.runs if "=" not in each]
    config = compose([each for each in chosen.runs if "=" in each])
    engine = build(config["engine"], "engine", model=build(config["model"], "model"))
    scored = selections(runs, chosen.steps)
    written = [Generate(call.prompt, LETTERS, role=call.role) for call in scored]
    timed(engine, scored[:2])  # loads the weights
    scoring, choices = timed(engine, scored)
    writing, replies = timed(engine, written)
    best = [most_probable(call.options, choice) for call, choice in zip(scored, choices, strict=True)]
    read = [read_letter(reply.text, call.options) for call, reply in zip(scored, replies, strict=True)]
    same = sum(a == b for a, b in zip(best, read, strict=True))
    sizes = sorted(len(call.options) for call in scored)
    print("| what | measured |\n| --- | --- |")
    print(f"| selector steps | {len(scored)}, {sizes[0]} to {sizes[-1]} options |")
    print(f"| most probable option = letter read | {same} ({100 * same / len(scored):.1f} %) |")
    print(f"| replies without a letter | {read.count(None)} |")
    print(f"| seconds, options scored | {scoring:.1f} |")
    print(f"| seconds, at most {LETTERS} tokens written | {writing:.1f}, {writing / scoring:.2f}× |")
    engine.close()
