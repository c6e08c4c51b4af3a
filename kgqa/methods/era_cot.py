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
from kgqa.methods.steps.examples import PooledFewShot
from kgqa.methods.steps.reader import ReadingLog, add_pinned, passages_text
from kgqa.methods.steps.replies import MAX_SCORE_TOKENS, Score, bullet_items, read_conclusion, read_score
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question, Triple
from kgqa.util.triples import read_triples
from kgqa.util.validators import Count


@dataclass(frozen=True)
class ERACoT(PooledFewShot):
    """The method, with the fields of conf/method/era_cot.yaml."""

    passages: Count
    threshold: Score
    entity_types: tuple[str, ...]
    relations_per_pair: Count
    max_list_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Extract entities and relations, infer and score more relations, and answer.

        Evidence: the passages as retrieved. Notes: entities, relations and scores. Figures: their numbers, and
        passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `unreadable_score` (the relation is dropped), `malformed_triple`, `too_many_relations` (more than
        `relations_per_pair`, which are dropped), `no_entities`, `no_answer_marker` (the last line is the answer),
        `empty_retrieval`, `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        reading = ReadingLog()
        passages = await Search(question.text, self.passages)
        values = {"passages": add_pinned(question, passages), "question": question.text}
        entities = bullet_items(
            await self.generate("era_cot/entities", {**values, "types": self.entity_types}, reading)
        )
        explicit = await self.extract_relations("era_cot/explicit", {**values, "entities": entities}, reading)
        stated = {**values, "entities": entities, "explicit": explicit}
        implicit = await self.extract_relations(
            "era_cot/implicit", {**stated, "limit": self.relations_per_pair}, reading
        )
        inferred = self.limit_relations([relation for relation in implicit if relation not in explicit], reading)
        scores = await gather(*(self.rate({**values, "relation": relation}, reading) for relation in inferred))
        judged = list(zip(inferred, scores, strict=True))
        reliable = [relation for relation, score in judged if score is not None and score >= self.threshold]
        reply = await self.generate("era_cot/answer", {**stated, "implicit": reliable}, reading)
        text, marked = read_conclusion(reply)
        reading.flags.update({"no_entities": not entities, "no_answer_marker": not marked, "empty_answer": not text})
        reading.flags["empty_retrieval"] += not passages
        notes = {
            "entities": entities,
            "explicit": [str(relation) for relation in explicit],
            "implicit": [(str(relation), score) for relation, score in judged],
            "thought": reply,
        }
        figures = {"entities": len(entities), "explicit": len(explicit), "implicit": len(reliable)}
        return reading.answer(text, passages, notes, figures)

    async def generate(self, template: str, values: Mapping[str, Any], reading: ReadingLog) -> str:
        """Generate with a prompt that shows the passages of `values`."""
        limits = {"era_cot/answer": self.max_tokens, "era_cot/score": MAX_SCORE_TOKENS}

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            return render(template, examples=self.examples, **{**values, "passages": passages_text(shown)})

        limit = limits.get(template, self.max_list_tokens)
        reply = await reading.generate(prompt, values["passages"], limit, stop=("\nPassages:",))
        mark = prompt(()).prefill.partition("\n")[2]  # the prompt wrote the first mark of a list
        text = reply.text.strip()
        return text if not text or text.startswith(mark) else mark + text

    async def extract_relations(self, template: str, values: Mapping[str, Any], reading: ReadingLog) -> list[Triple]:
        """Extract the distinct relations in order."""
        written = read_triples(await self.generate(template, values, reading))
        reading.flags["malformed_triple"] += written.malformed
        return list(dict.fromkeys(Triple(*parts) for parts in written.triples))

    def limit_relations(self, relations: list[Triple], reading: ReadingLog) -> list[Triple]:
        """Return the first `relations_per_pair` relations between two entities in either direction."""
        between, first = Counter[frozenset[str]](), list[Triple]()
        for relation in relations:
            pair = frozenset((relation.head.casefold(), relation.tail.casefold()))
            between[pair] += 1
            if between[pair] <= self.relations_per_pair:
                first.append(relation)
        reading.flags["too_many_relations"] += len(relations) - len(first)
        return first

    async def rate(self, values: Mapping[str, Any], reading: ReadingLog) -> float | None:
        """Return how reliable the model rates a relation, 0 to 10, or None."""
        score = read_score(await self.generate("era_cot/score", values, reading))
        reading.flags["unreadable_score"] += score is None
        return score
