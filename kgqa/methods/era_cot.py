"""ERA-CoT (Liu et al., ACL 2024), as a baseline of KnowTrace (§4.1).

Stages: retrieve once by the question → entities of the passages with their types → explicit relations between them →
implicit relations → score each implicit relation and drop those below the threshold → answer with a chain of thought.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kgqa.calls import Search, gather
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.fitting import Reading
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import MAX_SCORE_TOKENS, Score, bullets, concluded, counted, scored
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.triples import read_triples
from kgqa.types import Answer, Passage, Prompt, Question, Triple


@dataclass(frozen=True)
class ERACoT(Pooled):
    """Fields as in conf/method/era_cot.yaml, which cites the source of each value."""

    passages: Count
    threshold: Score
    entity_types: tuple[str, ...]
    relations_per_pair: Count
    max_list_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages as retrieved. Notes: entities, relations and scores. Figures: how many of them, and
        passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `unreadable_score` (the relation is dropped, as an unscored one is no evidence), `malformed_triple`,
        `too_many_relations` (more than `relations_per_pair` are dropped), `no_entities`, `no_answer_marker` (the last
        line is taken), `empty_retrieval`, `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        reading = Reading()
        passages = await Search(question.text, self.passages)
        given = {"passages": with_pinned(question, passages), "question": question.text}
        entities = bullets(await self.write("era_cot/entities", {**given, "types": self.entity_types}, reading))
        explicit = await self.relations("era_cot/explicit", {**given, "entities": entities}, reading)
        stated = {**given, "entities": entities, "explicit": explicit}
        implicit = await self.relations("era_cot/implicit", {**stated, "limit": self.relations_per_pair}, reading)
        inferred = self.inferred([relation for relation in implicit if relation not in explicit], reading)
        scores = await gather(*(self.score({**given, "relation": relation}, reading) for relation in inferred))
        judged = list(zip(inferred, scores, strict=True))
        reliable = [relation for relation, score in judged if score is not None and score >= self.threshold]
        reply = await self.write("era_cot/answer", {**stated, "implicit": reliable}, reading)
        text, marked = concluded(reply)
        reading.flags.update({"no_entities": not entities, "no_answer_marker": not marked, "empty_answer": not text})
        reading.flags["empty_retrieval"] += not passages
        return Answer(
            text,
            tuple(passage.id for passage in passages),
            context_tokens=reading.last,
            flags=counted(**reading.flags),
            figures={
                "entities": len(entities),
                "explicit": len(explicit),
                "implicit": len(reliable),
                "passage_tokens": reading.tokens,
            },
            notes={
                "entities": entities,
                "explicit": [str(relation) for relation in explicit],
                "implicit": [(str(relation), score) for relation, score in judged],
                "thought": reply,
            },
        )

    async def write(self, template: str, values: Mapping[str, Any], reading: Reading) -> str:
        """What the model writes to a prompt that shows the passages among `values`."""
        limits = {"era_cot/answer": self.max_tokens, "era_cot/score": MAX_SCORE_TOKENS}

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            return render(template, examples=self.examples, **{**values, "passages": passages_text(shown)})

        limit = limits.get(template, self.max_list_tokens)
        reply = await reading.ask(prompt, values["passages"], limit, stop=("\nPassages:",))
        mark = prompt(()).prefill.partition("\n")[2]  # a list's first mark was written for it
        text = reply.text.strip()
        return text if not text or text.startswith(mark) else mark + text

    async def relations(self, template: str, values: Mapping[str, Any], reading: Reading) -> list[Triple]:
        """Once each, in the order written."""
        written = read_triples(await self.write(template, values, reading))
        reading.flags["malformed_triple"] += written.malformed
        return list(dict.fromkeys(Triple(*parts) for parts in written.triples))

    def inferred(self, relations: list[Triple], reading: Reading) -> list[Triple]:
        """The first `relations_per_pair` between two entities, whichever of them is the head."""
        between, kept = Counter[frozenset[str]](), list[Triple]()
        for relation in relations:
            pair = frozenset((relation.head.casefold(), relation.tail.casefold()))
            between[pair] += 1
            if between[pair] <= self.relations_per_pair:
                kept.append(relation)
        reading.flags["too_many_relations"] += len(relations) - len(kept)
        return kept

    async def score(self, values: Mapping[str, Any], reading: Reading) -> float | None:
        """How reliable the model finds a relation, 0 to 10; None where it does not say."""
        score = scored(await self.write("era_cot/score", values, reading))
        reading.flags["unreadable_score"] += score is None
        return score
