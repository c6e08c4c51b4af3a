"""CoRAG (Wang et al., 2025): a chain of sub-queries, each searched and answered, before the answer."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from kgqa.calls import Choose, Generate, gather
from kgqa.errors import ConfigError
from kgqa.methods.steps.reader import ReadingLog
from kgqa.methods.steps.replies import first_line, strip_answer_label
from kgqa.methods.steps.search import PassageForm, ScopedMethod
from kgqa.prompting import render
from kgqa.types import Answer, Passage, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural, NotNegative

# of the prompt for sub-answers, and the text that best_of_n scores
NO_INFORMATION = "No relevant information found"
LABEL = re.compile(
    r"^(?:(?:intermediate|next|follow[- ]?up|sub)[ -]?)?(?:query|question) ?\d*: *", re.IGNORECASE
)
RELEASED_LABEL = re.compile(r"^Intermediate query \d+: ")
# generations of sub-queries per step of a chain, repeated ones included (released code)
MAX_CALLS = 4
# the lowest temperature after a repeated sub-query (released code)
REPEATED = 0.7


@dataclass(frozen=True)
class Step:
    """A sub-query, its answer, and the passages from which it is answered."""

    query: str
    answer: str
    passages: tuple[Passage, ...]

    def __str__(self) -> str:
        return f"Q: {self.query}\nA: {self.answer}"


Chain = tuple[Step, ...]


@dataclass(frozen=True)
class CoRAG(ScopedMethod):
    """The method, with the fields of conf/method/corag.yaml.

    Stages, `max_steps` times: the model writes a sub-query → search → it answers the sub-query from the passages. Then
    it answers the question from sub-queries, sub-answers and the passages of a search for the question. With
    `decode=best_of_n` there are `chains` chains, and the best one counts (§3.3).
    """

    prompts: Annotated[
        str,
        Setting("Folder of the templates query, sub_answer and answer.", ours="the words are ours"),
    ] = "corag"
    passages: Annotated[
        Count, Setting("Number of passages per sub-query.", code="start_e5_server_main.py:33")
    ] = 5
    documents: Annotated[
        Natural,
        Setting(
            "Number of passages for the question itself, shown for the answer. 0: none.",
            code="config.py:32",
        ),
    ] = 20
    max_steps: Annotated[
        Count,
        Setting(
            "Number of sub-queries of a chain, L.",
            code="eval_multihopqa.sh:13",
            other="the paper: 1 to 10",
        ),
    ] = 6
    decode: Annotated[
        Literal["greedy", "best_of_n"],
        Setting("Greedy: one chain | best_of_n: the best of several chains.", paper="§3.3"),
    ] = "greedy"
    chains: Annotated[
        Count,
        Setting(
            "Number of chains of best_of_n. The first one is greedy.", code="corag_agent.py:166"
        ),
    ] = 4
    temperature: Annotated[
        NotNegative, Setting("Sampling temperature of the other chains' sub-queries.", paper="§3.3")
    ] = 0.7
    max_query_tokens: Annotated[
        Count, Setting("Maximum tokens of a sub-query.", code="run_inference.py:44")
    ] = 64
    max_answer_tokens: Annotated[
        Count,
        Setting("Maximum tokens of a sub-answer and of the answer.", code="corag_agent.py:141"),
    ] = 128
    passage: Annotated[
        PassageForm,
        Setting(
            "Format of a passage for a sub-answer. {number} counts from 0.",
            ours="data_utils.py:38 has no label",
        ),
    ] = "Title: {title}\n{text}"
    document: Annotated[
        PassageForm,
        Setting("Format of a passage for the answer.", ours="prompts.py:67 has numbers"),
    ] = "Title: {title}\n{text}"
    replies: Annotated[
        Literal["lenient", "released"],
        Setting(
            "How replies are read. lenient: one line, without labels and quotation marks, and no empty sub-query | "
            "released: as corag_agent.py:20.",
            ours="untrained models add labels",
        ),
    ] = "lenient"

    async def answer(self, question: Question) -> Answer:
        """Build chains, and answer from the best one.

        Evidence: the passages of the chain, first found first, then those of the question. Notes: the steps, and with
        `best_of_n` the penalty of each chain. Figures: sub_queries and no_information (sub-answers that say so).

        Flags: those of `ReadingLog`, `repeated_query` (per sub-query that the chain had before), `short_chain` (per
        chain with fewer than `max_steps` steps after all generations) and `empty_query`.

        Raises ConfigError: `best_of_n` with an engine that gives no probabilities of texts.
        """
        log = ReadingLog(question, self.scope_of(question))
        chains, penalties = await self.build_chains(log)
        chain = chains[penalties.index(min(penalties))]
        documents = await log.scope.search(question.text, self.documents) if self.documents else ()

        values: dict[str, Any] = {"steps": chain, "question": question.text}
        show = partial(show_documents, self.document)
        reply = await log.read(
            f"{self.prompts}/answer",
            documents,
            self.max_answer_tokens,
            stop=(),
            show=show,
            **values,
        )
        is_released = self.replies == "released"
        text = (
            reply if is_released else strip_answer_label(reply.strip().partition("\n")[0].strip())
        )
        steps = [
            [step.query, step.answer, [passage.id for passage in step.passages]] for step in chain
        ]
        notes = {"steps": steps, **({"penalties": penalties} if len(chains) > 1 else {})}
        unanswered = sum(NO_INFORMATION.lower() in step.answer.lower() for step in chain)
        figures = {"sub_queries": len(chain), "no_information": unanswered}
        return log.answer(
            text, [*(p for step in chain for p in step.passages), *documents], notes, figures
        )

    async def build_chains(self, log: ReadingLog) -> tuple[list[Chain], list[float]]:
        """Return the chains and their penalties. The first one is greedy, the others are sampled."""
        if self.decode == "greedy":
            return [await self.build_chain(log, 0.0)], [0.0]
        degrees = [0.0] + [self.temperature] * (self.chains - 1)
        chains = await gather(*(self.build_chain(log, degree) for degree in degrees))
        return chains, await gather(*(self.score_chain(log.question, chain) for chain in chains))

    async def build_chain(self, log: ReadingLog, temperature: float) -> Chain:
        """Return a chain of sub-queries and sub-answers. After a repeated sub-query, another one is sampled."""
        chain, degree = Chain(), temperature
        for _ in range(MAX_CALLS * self.max_steps):
            if len(chain) == self.max_steps:
                break
            prompt = render(f"{self.prompts}/query", steps=chain, question=log.question.text)
            reply = await Generate(prompt, self.max_query_tokens, temperature=degree)
            is_released = self.replies == "released"
            query = (
                read_released_query(reply.text) if is_released else read_query(first_line(reply)[0])
            )
            log.flags.update({"cut_reply": reply.finish == "length", "empty_query": not query})
            is_repeated = query in [step.query for step in chain]
            log.flags["repeated_query"] += is_repeated
            if is_repeated or not (query or is_released):
                degree = max(degree, REPEATED)
                continue
            degree = temperature
            chain += (await self.answer_query(query, log),)
        log.flags["short_chain"] += len(chain) < self.max_steps
        return chain

    async def answer_query(self, query: str, log: ReadingLog) -> Step:
        """Search for a sub-query and answer it from the passages."""
        passages = await log.search(query, self.passages)
        tokens = self.max_answer_tokens
        show = partial(show_documents, self.passage)
        reply = await log.read(
            f"{self.prompts}/sub_answer", passages, tokens, stop=(), show=show, query=query
        )
        return Step(
            query, reply if self.replies == "released" else " ".join(reply.split()), passages
        )

    async def score_chain(self, question: Question, chain: Chain) -> float:
        """Return the penalty of a chain: the log-likelihood that it has no relevant information (§3.3).

        The paper's mean over tokens ranks chains as the sum does, because the text is the same.
        """
        prompt = render(
            f"{self.prompts}/sub_answer",
            documents="\n\n".join(map(str, chain)),
            query=question.text,
        )
        choice = await Choose(prompt, (NO_INFORMATION,), role="reader")
        if choice.mass is None:
            raise ConfigError(
                "method.decode=best_of_n: this engine gives no probabilities of texts. Set method.decode=greedy, or "
                "use a local engine or a vLLM server."
            )
        return math.log(max(choice.mass, 1e-300))


def show_documents(form: str, context: tuple[Passage, ...]) -> dict[str, str]:
    """Return the passages as a template has them: the best is nearest to the question (corag_agent.py:133)."""
    numbered = enumerate(reversed(context))
    texts = (
        form.format(number=number, title=passage.title, text=passage.text)
        for number, passage in numbered
    )
    return {"documents": "\n\n".join(texts)}


def read_query(line: str) -> str:
    """Return a sub-query without its label and quotation marks."""
    return LABEL.sub("", line.strip()).strip().strip("\"“”'").strip()


def read_released_query(reply: str) -> str:
    """Return a sub-query as the released code reads it: all lines, without quotation marks or its own label."""
    query = reply.strip()
    if len(query) > 1 and query.startswith('"') and query.endswith('"'):
        query = query[1:-1]
    return RELEASED_LABEL.sub("", query)
