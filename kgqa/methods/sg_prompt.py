"""SG-Prompt (Li and Du, Findings of EMNLP 2023), as a baseline of KnowTrace (Appendix C).

Stages: retrieve once by the question → extract a semantic graph (entities and their relations) from all passages →
reason over passages and graph and answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from kgqa.calls import Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.fitting import Reading
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import concluded, counted
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.triples import read_triples
from kgqa.types import Answer, Passage, Prompt, Question


@dataclass(frozen=True)
class SGPrompt(Pooled):
    """Fields as in conf/method/sg_prompt.yaml, which cites the source of each value."""

    passages: Count
    max_graph_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages as retrieved. Notes: the graph. Figures: its triples, and passage_tokens (#Tok of
        KnowTrace's Table 2).

        Flags: `malformed_triple`, `empty_graph`, `no_answer_marker` (the last line is taken), `empty_retrieval`,
        `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        reading = Reading()
        passages = await Search(question.text, self.passages)
        given = with_pinned(question, passages)

        def prompt(template: str, shown: tuple[Passage, ...], **values: object) -> Prompt:
            return render(template, examples=self.examples, passages=passages_text(shown), **values)

        extracted = await reading.ask(
            partial(prompt, "sg_prompt/extract"), given, self.max_graph_tokens, stop=("\nPassages:",)
        )
        written = read_triples(extracted.text)
        graph = list(dict.fromkeys(f"<{'; '.join(triple)}>" for triple in written.triples))
        asked = partial(prompt, "sg_prompt/answer", graph=graph, question=question.text)
        reply = await reading.ask(asked, given, self.max_tokens, stop=("\nPassages:",))
        text, marked = concluded(reply.text)
        flags = {"malformed_triple": written.malformed, "empty_graph": not graph, "no_answer_marker": not marked}
        reading.flags.update({**flags, "empty_retrieval": not passages, "empty_answer": not text})
        return Answer(
            text,
            tuple(passage.id for passage in passages),
            context_tokens=reading.last,
            flags=counted(**reading.flags),
            figures={"triples": len(graph), "passage_tokens": reading.tokens},
            notes={"graph": graph, "thought": reply.text},
        )
