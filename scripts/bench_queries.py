"""Prompts that lead to the next search: does it bring gold passages that the question itself does not find?

    python scripts/bench_queries.py method=knowtrace [--questions 12] [key=value …] \\
        --prompt ours --prompt other template=FILE.j2
    python scripts/bench_queries.py method=ircot [key=value …] \\
        --prompt ours --prompt other 'method.demos_from="FILE#musique"'

The method's own program runs until it asks the model for the second time. What it searches for after the first reply
(KnowTrace: the pairs to explore; IRCoT: the thought) is compared with a search for the question, with as many passages
each, on the same questions for each `--prompt`. A program that searches no further has found nothing more. Replies go
to the call cache, so a stopped measurement goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.calls import Call, Gather, Generate, Program, Search
from kgqa.errors import DataError, KgqaError
from kgqa.experiment.prepare.indexes import opened_index
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.runner import Prepared
from kgqa.experiment.session.session import Session
from kgqa.runtime.display import QUIET
from kgqa.types import Passage, Question
from scripts.prompt_variants import Scores, Variant, shown_by, table

ALONE, MORE, WITH = "gold found by the question", "questions with further gold", "gold found with the next search"
SEARCHED = "questions with a next search"
TEMPLATES = {"knowtrace": "knowtrace/explore", "ircot": "few_shot/answer"}  # asked first
Hits = tuple[Passage, ...]


@types.coroutine
def next_searches(program: Program[Any], replies: int = 0) -> Generator[Call[Any], Any, list[Search]]:
    """What the program searches for between its first reply and the next call of a model; then it is closed."""
    searched: list[Search] = []
    answer: Any = None
    while True:
        try:
            call = program.send(answer)
        except StopIteration:
            return searched
        if isinstance(call, Generate):
            replies += 1
            if replies == 2:
                program.close()
                return searched
        if isinstance(call, Search) and replies:
            searched.append(call)
        if isinstance(call, Gather) and replies:
            children = yield Gather(*(next_searches(child, replies) for child in call.programs))
            program.close()
            return [*searched, *(search for made in children for search in made)]
        answer = yield call


async def retrieved(method: Any, question: Question, k: int) -> tuple[Hits, list[Hits]]:
    """What the question finds, and what each next search does; all with `k` passages."""
    searches = await next_searches(method.answer(question))
    return await Search(question.text, k), [await Search(search.query, k) for search in searches]


def scores(hits: Hits, further: list[Hits], gold: frozenset[str]) -> dict[str, float]:
    known = {passage.id for passage in hits} & gold
    found = {passage.id for passages in further for passage in passages} & gold
    return {
        SEARCHED: float(bool(further)),
        ALONE: len(known) / len(gold),
        WITH: len(known | found) / len(gold),
        MORE: float(bool(found - known)),
    }


def measure(variant: Variant, keys: list[str], skip: int, count: int, k: int) -> dict[str, Scores]:
    experiment = Experiment.of([*keys, *variant.overrides])
    questions = [question for question in experiment.questions if question.support][skip : skip + count]
    if not questions:
        raise DataError(f"dataset={experiment.name('dataset')}: no questions with gold passages behind --skip={skip}")
    template = TEMPLATES.get(experiment.name("method"), "")
    found: dict[str, tuple[Hits, list[Hits]]] = {}
    with (
        Session(experiment) as session,
        opened_index(session, QUIET) as index,
        shown_by(variant.template, template),
        session.runner(Prepared(index=index)) as runner,
    ):
        for finished in runner.run((q.id, retrieved(experiment.method, q, k)) for q in questions):
            if isinstance(finished.result, Exception):
                raise finished.result
            found[finished.key] = finished.result
            print(f"{variant.name}: {len(found)} of {len(questions)}", end="\r", file=sys.stderr, flush=True)
    measured = [scores(*found[question.id], question.support) for question in questions]
    return {name: [each[name] for each in measured] for name in (SEARCHED, ALONE, WITH, MORE)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", metavar="key=value", help="method=knowtrace | ircot, dataset, model, …")
    parser.add_argument("--prompt", nargs="+", action="append", metavar="WORD", help="a name, then what differs")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--skip", type=int, default=0, help="so many questions before them")
    parser.add_argument("--passages", type=int, default=5, help="of each search")
    options = parser.parse_args()
    measured = {}
    try:
        for variant in [Variant.of(words) for words in options.prompt or [["kgqa"]]]:
            measured[variant.name] = measure(variant, options.keys, options.skip, options.questions, options.passages)
    except KgqaError as error:
        sys.exit(str(error))
    [count, *_] = {len(scores) for by_name in measured.values() for scores in by_name.values()}
    print(f"{count} questions; percent with 95 % bootstrap intervals, differences question by question\n")
    print(table(measured))


if __name__ == "__main__":
    main()
