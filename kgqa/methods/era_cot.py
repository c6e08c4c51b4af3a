"""ERA-CoT (Liu et al., ACL 2024), as a baseline of KnowTrace (§4.1).

Stages: retrieve once by the question → entities of the passages → explicit relations between them → implicit relations
→ score each implicit relation and drop those below the threshold → answer with a chain of thought.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.constraints import Bound, Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import bullets, concluded, counted
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.triples import read_triples
from kgqa.types import Answer, Question

SCORE = re.compile(r"\s*(10|\d)(?![\d.])")  # a whole number from 0 to 10 at the beginning
Score = Annotated[int, Bound("must be from 0 to 10", lambda score: 0 <= score <= 10)]


@dataclass(frozen=True)
class ERACoT(Pooled):
    """Fields as in conf/method/era_cot.yaml, which cites the source of each value."""

    passages: Count
    threshold: Score
    max_entities: Count
    max_relations: Count
    max_list_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages as retrieved. Notes: entities, relations and scores.

        Flags: `unreadable_score` (the relation is dropped, as an unscored one is no evidence), `malformed_triple`,
        `no_entities`, `no_answer_marker` (the last line is taken), `empty_retrieval`, `cut_reply`, `empty_answer`.
        """
        flags = Counter[str]()
        passages = await Search(question.text, self.passages)
        given = {"passages": passages_text(with_pinned(question, passages)), "question": question.text}
        entities = bullets(await self.write("era_cot/entities", given, flags))[: self.max_entities]
        explicit = await self.relations("era_cot/explicit", {**given, "entities": entities}, flags)
        stated = {**given, "entities": entities, "explicit": explicit}
        implicit = await self.relations("era_cot/implicit", stated, flags)
        inferred = [relation for relation in implicit if relation not in explicit]
        scores = await gather(*(self.score(relation, given, flags) for relation in inferred))
        scored = list(zip(inferred, scores, strict=True))
        reliable = [relation for relation, score in scored if score is not None and score >= self.threshold]
        reply = await self.write("era_cot/answer", {**stated, "implicit": reliable}, flags)
        text, marked = concluded(reply)
        flags.update({"no_entities": not entities, "no_answer_marker": not marked, "empty_answer": not text})
        flags["empty_retrieval"] += not passages
        return Answer(
            text,
            tuple(passage.id for passage in passages),
            context_tokens=await CountTokens(given["passages"]) if given["passages"] else 0,
            flags=counted(**flags),
            figures={"entities": len(entities), "explicit": len(explicit), "implicit": len(reliable)},
            notes={"entities": entities, "explicit": explicit, "implicit": scored, "thought": reply},
        )

    async def write(self, template: str, values: Mapping[str, object], flags: Counter[str]) -> str:
        limit = self.max_tokens if template == "era_cot/answer" else self.max_list_tokens
        prompt = render(template, examples=self.examples, **values)
        reply = await Generate(prompt, limit, stop=("\nPassages:",))
        flags["cut_reply"] += reply.finish == "length"
        mark, text = prompt.prefill.partition("\n")[2], reply.text.strip()  # a list's first mark was written for it
        return text if not text or text.startswith(mark) else mark + text

    async def relations(self, template: str, values: Mapping[str, object], flags: Counter[str]) -> list[str]:
        """Relations as `<head; relation; tail>`, once each."""
        written = read_triples(await self.write(template, values, flags))
        flags["malformed_triple"] += written.malformed
        return list(dict.fromkeys(f"<{'; '.join(triple)}>" for triple in written.triples))[: self.max_relations]

    async def score(self, relation: str, values: Mapping[str, object], flags: Counter[str]) -> int | None:
        """How reliable the model finds the relation, 0 to 10; None where it does not say."""
        reply = await Generate(render("era_cot/score", relation=relation, **values), 4)
        match = SCORE.match(reply.text)
        flags["unreadable_score"] += match is None
        return int(match.group(1)) if match else None
