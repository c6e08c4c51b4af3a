"""TRACE's selector prompt: how much of its probability goes to triples of gold passages.

    python scripts/bench_selector.py gold --triples FILE [--questions 40] [key=value …] \\
        --prompt ours --prompt other template=FILE.j2 'method.demonstrations_from.path="FILE#MUSIQUE"'
    python scripts/bench_selector.py letters RUN [RUN …] [--steps 200] [key=value …]

`gold`: the method's own ranking, prompt and choice at the first two steps of a chain, for each `--prompt` on the same
questions of `dataset=`. The first step extends the empty chain, the second one the chain of the gold triple ranked
highest at the first. Triples are not extracted: they are those of an OpenIE dump (JSON, `docs` of `title`, `text` and
`extracted_triples`), and questions with a passage outside it are left out. Replies go to the call cache, so a stopped
measurement goes on where it was. `letters`: one forward pass against a written reply, see `selector_letters.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.calls import gather
from kgqa.errors import ConfigError, DataError, KgqaError
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.runner import Prepared, Runner
from kgqa.experiment.session.session import Session
from kgqa.methods.steps.trace_chains import Chain, Unit
from kgqa.methods.trace import ChainState, Trace
from kgqa.records import members
from kgqa.types import Passage, Question, Triple
from scripts import selector_letters
from scripts.prompt_variants import Scores, Variant, shown_by, table
from scripts.selector_reading import Candidates, reading

STEPS = 2
OFFERED, MASS, NEW = "gold among those offered", "mass on gold", "mass on gold passages not in the chain"
GOING_ON, KEPT = "mass on gold of what does not stop", "gold among the branch of a beam"
LIKELIEST, STOP = "likeliest is gold", "probability to stop"


@dataclass(frozen=True)
class Dump:
    """Triples of an OpenIE dump by passage; entries without three parts are left out."""

    by_passage: dict[str, tuple[Triple, ...]]

    @classmethod
    def read(cls, file: Path) -> Dump:
        """Raises DataError naming the document that is not as a dump has it."""
        listed = next((value for _, key, value in members(file) if key == "docs"), None)
        if not isinstance(listed, list):
            raise DataError(f"{file}: no list of 'docs'; name an OpenIE dump")
        triples = {}
        for number, document in enumerate(listed, start=1):
            try:
                passage = Passage.of(document["title"], document["text"])
                whole = [parts for parts in document["extracted_triples"] if len(parts) == 3 and all(parts)]
            except (KeyError, TypeError) as error:
                raise DataError(f"{file}: document {number}: title, text or extracted_triples: {error!r}") from None
            triples[passage.id] = tuple(Triple(head, relation, tail, passage.id) for head, relation, tail in whole)
        return cls(triples)

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        return self.by_passage[passage.id]

    def covers(self, question: Question) -> bool:
        return bool(question.passages) and all(passage.id in self.by_passage for passage in question.passages)


class Selected(NamedTuple):
    """One choice of the selector."""

    chain: Chain  # what it was to extend
    candidates: tuple[Unit, ...]  # best ranked first
    options: tuple[tuple[Unit | None, float], ...]  # probabilities; None: to stop


async def select(method: Trace, question: Question, chain: Chain) -> Selected:
    """What the method does at one step of this chain."""
    passages = {passage.id: passage for passage in question.passages}.values()
    pool = tuple(unit for units in await gather(*map(method.units_of, passages)) for unit in units)
    state = ChainState(question.text, pool, await method.nearest_demonstrations(question.text))
    candidates = [unit for unit, _ in await method.rank(state, chain)]
    options = await method.select(state, chain, candidates)
    return Selected(chain, tuple(candidates), tuple((unit, exp(logprob)) for unit, logprob in options))


def scores(selected: Selected, gold: frozenset[str], branch: int) -> dict[str, float]:
    """Shares of one choice; gold is what comes from a gold passage. Of the likeliest choices a beam keeps `branch`."""
    used = {unit.passage_id for unit in selected.chain.units}
    ordered = [unit for unit, _ in sorted(selected.options, key=lambda option: -option[1])]
    likeliest = ordered[0]
    taken = [(unit.passage_id, share) for unit, share in selected.options if unit is not None]
    mass = sum(share for passage, share in taken if passage in gold)
    return {
        OFFERED: sum(unit.passage_id in gold for unit in selected.candidates) / len(selected.candidates),
        MASS: mass,
        GOING_ON: mass / sum(share for _, share in taken),
        NEW: sum(share for passage, share in taken if passage in gold - used),
        LIKELIEST: float(likeliest is not None and likeliest.passage_id in gold),
        KEPT: sum(unit is not None and unit.passage_id in gold for unit in ordered[:branch]) / branch,
        STOP: sum(share for unit, share in selected.options if unit is None),
    }


def candidates(selected: Selected, gold: frozenset[str]) -> Candidates:
    """In the order of their letters, the option to stop left out."""
    return [(unit.passage_id in gold, share) for unit, share in selected.options if unit is not None]


def next_chain(selected: Selected, gold: frozenset[str]) -> Chain | None:
    """The chain with the gold candidate ranked highest, which no prompt has a say in; None: none is gold."""
    found = next((unit for unit in selected.candidates if unit.passage_id in gold), None)
    return None if found is None else selected.chain.then(found, 0.0)


def measure(method: Trace, questions: Sequence[Question], runner: Runner) -> list[dict[str, Scores]]:
    """Scores by step, each a list over the questions; step after step, so that a prompt's beginning stays cached."""
    chains: dict[str, Chain] = {question.id: Chain() for question in questions}
    by_step: list[dict[str, Scores]] = []
    for step in range(STEPS):
        asked = [question for question in questions if question.id in chains]
        programs = ((question.id, select(method, question, chains[question.id])) for question in asked)
        made: dict[str, Selected] = {}
        for finished in runner.run(programs):
            if isinstance(finished.result, Exception):
                raise finished.result
            made[finished.key] = finished.result
            print(f"step {step + 1}: {len(made)} of {len(asked)}", end="\r", file=sys.stderr, flush=True)
        of_question = {q.id: scores(made[q.id], q.support, method.branch) for q in asked}
        for name, read in reading({q.id: candidates(made[q.id], q.support) for q in asked}).items():
            of_question[name] |= read
        names = dict.fromkeys(name for each in of_question.values() for name in each)
        by_step.append({name: [of_question.get(q.id, {}).get(name) for q in questions] for name in names})
        following = {q.id: next_chain(made[q.id], q.support) for q in asked}
        chains = {name: chain for name, chain in following.items() if chain is not None}
    return by_step


def gold(options: argparse.Namespace) -> None:
    triples = Dump.read(options.triples)
    variants = [Variant.of(words) for words in options.prompt or [["kgqa"]]]
    measured: list[dict[str, dict[str, Scores]]] = [{} for _ in range(STEPS)]
    count = 0
    experiments = [Experiment.of(["method=trace", *options.keys, *variant.overrides]) for variant in variants]
    for variant, experiment in zip(variants, experiments, strict=True):
        method = experiment.method
        if not isinstance(method, Trace):
            raise ConfigError(f"method={experiment.name('method')}: only method=trace has a selector")
        covered = [question for question in experiment.questions if triples.covers(question)]
        questions = covered[options.skip : options.skip + options.questions]
        if not questions:
            raise DataError(f"{options.triples}: holds all passages of {len(covered)} questions; --skip={options.skip}")
        with (
            Session(experiment) as session,
            shown_by(variant.template, "trace/select"),
            session.runner(Prepared(triples=triples)) as runner,
        ):
            for tables, by_score in zip(measured, measure(method, questions, runner), strict=True):
                tables[variant.name] = by_score
            paid = runner.spent()
        count = len(questions)
        print(f"{variant.name}: {paid.tokens} tokens, beside those from the call cache", file=sys.stderr)
    print(f"{count} questions; percent with 95 % bootstrap intervals, differences question by question")
    for step, tables in enumerate(measured, start=1):
        print(f"\nStep {step}\n\n{table(tables)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True, metavar="MODE")
    prompts = modes.add_parser("gold", help="probability of triples of gold passages, prompt by prompt")
    prompts.add_argument("keys", nargs="*", metavar="key=value", help="of dataset, model, engine, ranker, method")
    prompts.add_argument("--triples", type=Path, required=True, metavar="FILE", help="an OpenIE dump, plain or .gz")
    prompts.add_argument("--prompt", nargs="+", action="append", metavar="WORD", help="a name, then what differs")
    prompts.add_argument("--questions", type=int, default=40)
    prompts.add_argument("--skip", type=int, default=0, help="so many questions before them")
    prompts.set_defaults(run=gold)
    selector_letters.add_to(modes)
    options = parser.parse_args()
    try:
        options.run(options)
    except KgqaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
