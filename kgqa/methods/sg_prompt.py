"""SG-Prompt (Li and Du, Findings of EMNLP 2023), as a baseline of KnowTrace (Appendix C).

Stages: retrieve once by the question → extract a semantic graph (entities and their relations) from all passages →
reason over passages and graph and answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from kgqa.calls import Search
from kgqa.methods.steps.examples import PooledFewShot
from kgqa.methods.steps.reader import ReadingLog, add_pinned, passages_text
from kgqa.methods.steps.replies import read_conclusion
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question
from kgqa.util.triples import read_triples
from kgqa.util.validators import Count


@dataclass(frozen=True)
class SGPrompt(PooledFewShot):
    """The method, with the fields of conf/method/sg_prompt.yaml."""

    passages: Count
    max_graph_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Extract a graph of the passages and answer from both.

        Evidence: the passages as retrieved. Notes: the graph. Figures: its triples, and passage_tokens (#Tok of
        KnowTrace's Table 2).

        Flags: `malformed_triple`, `empty_graph`, `no_answer_marker` (the last line is the answer), `empty_retrieval`,
        `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        reading = ReadingLog()
        passages = await Search(question.text, self.passages)
        shown_passages = add_pinned(question, passages)

        def prompt(template: str, shown: tuple[Passage, ...], **values: object) -> Prompt:
            return render(template, examples=self.examples, passages=passages_text(shown), **values)

        extracted = await reading.generate(
            partial(prompt, "sg_prompt/extract"), shown_passages, self.max_graph_tokens, stop=("\nPassages:",)
        )
        written = read_triples(extracted.text)
        graph = list(dict.fromkeys(f"<{'; '.join(triple)}>" for triple in written.triples))
        answering = partial(prompt, "sg_prompt/answer", graph=graph, question=question.text)
        reply = await reading.generate(answering, shown_passages, self.max_tokens, stop=("\nPassages:",))
        text, marked = read_conclusion(reply.text)
        flags = {"malformed_triple": written.malformed, "empty_graph": not graph, "no_answer_marker": not marked}
        reading.flags.update({**flags, "empty_retrieval": not passages, "empty_answer": not text})
        return reading.answer(text, passages, {"graph": graph, "thought": reply.text}, {"triples": len(graph)})
