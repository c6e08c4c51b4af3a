"""KGP's traversal of a passage graph as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kgqa.artifacts.trace import TracedQuestion, Traversal

SHOWN = 110  # characters of a passage in a line


def traversal_lines(traced: TracedQuestion, traversal: Traversal) -> Iterator[str]:
    """Yield the seeds in their order, with the steps from each. A star marks gold passages."""
    prediction, gold = traced.prediction, traced.question.support
    texts = dict(zip(prediction.evidence or (), prediction.evidence_titles, strict=False))
    texts |= {passage.id: f"{passage.title}: {passage.text}" for passage in traced.question.passages}

    def named(passage_id: str) -> str:
        return f"{'*' if passage_id in gold else ' '} {(texts.get(passage_id) or passage_id)[:SHOWN]}"

    yield f"agent: {traversal.agent} · {len(traversal.seeds)} seeds · {len(traversal.paths)} paths"
    for step in traversal.steps:
        indent = "    " * (len(step.path) - 1)
        yield f"{indent}{named(step.path[-1])}"
        wanted = f"looks for {step.evidence!r} among " if step.evidence else "chooses among "
        yield f"{indent}    {wanted}{step.neighbours} neighbours"
        for passage_id in step.chosen:
            yield f"{indent}    → {named(passage_id)}"
    started = {step.path[0] for step in traversal.steps}
    for seed in traversal.seeds:
        if seed not in started:
            yield f"{named(seed)}   (not expanded: the budget was spent)"
