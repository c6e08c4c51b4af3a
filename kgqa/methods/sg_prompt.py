"""SG-Prompt (Li and Du, Findings of EMNLP 2023), as a baseline of KnowTrace (Appendix C).

Stages: retrieve once by the question → extract a semantic graph (entities and their relations) from all passages →
reason over passages and graph and answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.calls import CountTokens, Generate, Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import concluded, counted, cut
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.triples import read_triples
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class SGPrompt(Pooled):
    """Fields as in conf/method/sg_prompt.yaml, which cites the source of each value."""

    passages: Count
    max_graph_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages as retrieved. Notes: the graph.

        Flags: `malformed_triple`, `empty_graph`, `no_answer_marker` (the last line is taken), `empty_retrieval`,
        `cut_reply`, `empty_answer`.
        """
        passages = await Search(question.text, self.passages)
        context = passages_text(with_pinned(question, passages))
        extracted = await Generate(
            render("sg_prompt/extract", examples=self.examples, passages=context),
            self.max_graph_tokens,
            stop=("\nPassages:",),
        )
        written = read_triples(extracted.text)
        graph = list(dict.fromkeys(f"<{'; '.join(triple)}>" for triple in written.triples))
        prompt = render(
            "sg_prompt/answer", examples=self.examples, passages=context, graph=graph, question=question.text
        )
        reply = await Generate(prompt, self.max_tokens, stop=("\nPassages:",))
        text, marked = concluded(reply.text)
        return Answer(
            text,
            tuple(passage.id for passage in passages),
            context_tokens=await CountTokens(context) if context else 0,
            flags=counted(
                malformed_triple=written.malformed,
                empty_graph=not graph,
                no_answer_marker=not marked,
                empty_retrieval=not passages,
                cut_reply=cut([extracted, reply]),
                empty_answer=not text,
            ),
            figures={"triples": len(graph)},
            notes={"graph": graph, "thought": reply.text},
        )
