"""`kgqa kgp export-instructions`: texts to fine-tune KGP's agent with (supplement 8.1, Listing 1)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from kgqa.errors import ConfigError, DataError
from kgqa.methods.kgp import Kgp, wording
from kgqa.storage import replace_file
from kgqa.types import Question


def export_instructions(overrides: Sequence[str], out: Path | None) -> int:
    """A line for each fact but the first: instruction, input (question and the facts so far) and output (the fact).

    out: the file; None: standard output.
    """
    from kgqa.experiment.session.session import Session

    counts: Counter[str] = Counter()
    written = []
    with Session(["method=kgp", *overrides]) as session:
        if not isinstance(session.method, Kgp):
            raise ConfigError(f"method={session.name('method')}: the texts are for method=kgp; leave method= out")
        if session.config.get("collection"):
            raise ConfigError("collection: its passages have no order of facts; leave collection= out")
        for question in session.questions:
            facts = ordered_facts(question)
            counts["questions"] += len(facts) > 1
            counts["without order"] += len(facts) < 2
            lines = _lines(question, facts, session.method.instruction)
            written += [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
        if not written:
            raise DataError(f"dataset={session.name('dataset')}: no question says in which order its facts are needed")
    if out:
        replace_file(out, "".join(written))
    else:
        sys.stdout.writelines(written)
    said = [f"{len(written):,} lines from {counts['questions']:,} questions"]
    if counts["without order"]:
        said.append(f"{counts['without order']:,} left out, which name fewer than two facts in order")
    sys.stderr.write("; ".join(said) + "\n")
    return 0


def ordered_facts(question: Question) -> tuple[str, ...]:
    """What supports the answer, in the order a person would need it; fewer than two where the data does not give it.

    Supporting sentences in the file's order, those of one passage joined (HotpotQA, 2Wiki); else the passages of the
    decomposition, each where it is first needed (MuSiQue).
    """
    sentences: dict[str, list[str]] = {}
    for passage_id, sentence in question.facts:
        sentences.setdefault(passage_id, []).append(sentence.strip())
    if sentences:
        return tuple(" ".join(each) for each in sentences.values())
    passages = {passage.id: passage for passage in question.passages}
    steps = dict.fromkeys(hop.passage_id for hop in question.decomposition if hop.passage_id in passages)
    return tuple(wording(passages[passage_id]) for passage_id in steps)


def _lines(question: Question, facts: Sequence[str], instruction: str) -> Iterator[dict[str, str]]:
    for known in range(1, len(facts)):
        asked = f"{question.text} {' '.join(facts[:known])}"
        yield {"instruction": instruction, "input": asked, "output": facts[known]}
