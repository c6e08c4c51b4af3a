"""The few-shot examples of TRACE's selections: which ones, in which order and with which letters, as released."""

from __future__ import annotations

from functools import cache

from kgqa.datasets.demonstrations import load_chains
from kgqa.methods.trace import ChainState, Trace
from kgqa.prompting.demonstrations import ChainDemonstration
from tests.conformance.support import DATA, load, needs_data

pytestmark = needs_data
HEAD, ROWS = load("trace_demonstrations")


@cache
def load_labelled(dataset: str) -> tuple[ChainDemonstration, ...]:
    return load_chains(f"{DATA / HEAD['file']}#{dataset.upper()}")


def test_examples_are_those_of_the_released_program() -> None:
    for row in ROWS:
        labelled = load_labelled(row["dataset"])
        method = Trace(
            context="triples", units="triples", candidates=20, ranker=True, selector=True, top=None, max_length=4,
            beam=20, branch=5, chains=5, min_probability=1e-4, adaptive_termination=True, query_order="triples_first",
            query_labels=True, demonstrations="adaptive", demonstration_count=3, few_shot=labelled,
            short_demonstrations="next", layout="released", reader_layout=None, max_answer_tokens=25,
        )  # fmt: skip
        ranked = tuple(labelled[place] for place in row["order"])
        examples = method.step_examples(ChainState("Q?", (), ranked), row["hop"])
        questions = [demonstration.question for demonstration in labelled]
        assert [questions.index(example["question"]) for example in examples] == row["shown"]
        assert [example["letter"] for example in examples] == row["letters"]
        assert [len(example["options"]) + 1 for example in examples] == row["options"]
        assert [len(example["so_far"]) for example in examples] == row["so_far"]
