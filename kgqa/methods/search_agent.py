"""Search agents: models that write queries and answers in tags while they reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Annotated, Literal

from kgqa.calls import Generate
from kgqa.errors import ConfigError
from kgqa.methods.steps.boxed import BOX, read_boxed
from kgqa.methods.steps.reader import ReadingLog, merge_rankings, pinned_text
from kgqa.methods.steps.search import Found, ScopedMethod, Transcript
from kgqa.prompting import render
from kgqa.types import Answer, Completion, Passage, Prompt, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, NotNegative, Share, Validator

FIELDS = {"number", "title", "text"}  # of a shown passage
FINDING = re.compile(r"\*\*Final Information\*\*:?", re.IGNORECASE)
Pair = Annotated[tuple[str, str], Validator("give two texts, [start, end]", all)]


@dataclass(frozen=True)
class SearchAgent(ScopedMethod):
    """Search-R1 (Jin et al., 2025) and agents of the same kind. Fields as in conf/method/search_agent.yaml.

    Stages: the model reasons until it writes a query or an answer in tags → a query is searched for, and the model
    continues after the passages.
    """

    prompt: Annotated[
        str,
        Setting("Template of the first prompt. The transcript is the start of the reply.", ours="the words are ours"),
    ] = "search_agent/search_r1"
    read_prompt: Annotated[
        str | None,
        Setting(
            "Template for a model that reads passages for the agent. null: the agent sees the passages.",
            paper="Search-o1",
        ),
    ] = None
    passages: Annotated[Count, Setting("Number of passages per search.", paper="Search-R1")] = 3
    passage: Annotated[str, Setting("Format of a passage.", code="released code")] = (
        "Doc {number}(Title: {title}) {text}\n"
    )
    max_passage_characters: Annotated[
        Count | None, Setting("Maximum length of a passage.", code="all passages of a search are cut at 500 tokens")
    ] = None
    query: Annotated[Pair, Setting("Tags of a query.", paper="Search-R1")] = ("<search>", "</search>")
    result: Annotated[Pair, Setting("Texts around the result of a search.", code="released code")] = (
        "\n\n<information>",
        "</information>\n\n",
    )
    answer_tags: Annotated[
        Pair, Setting("Tags of the answer. In it, \\boxed{…} is the answer if there is one.", paper="Search-R1")
    ] = ("<answer>", "</answer>")
    stop: Annotated[tuple[str, ...], Setting("Stop strings of a turn.", paper="Search-R1")] = ("</search>", "</answer>")
    max_searches: Annotated[Count, Setting("Maximum number of searches.", code="max_turns 4 in evaluation")] = 4
    max_turns: Annotated[
        Count, Setting("Maximum number of generations: one more than searches.", code="released code")
    ] = 5
    at_limit: Annotated[
        Literal["answer", "empty"],
        Setting("If there is no answer: answer (request one) | empty.", ours="our choice", paper="R1-Searcher: empty"),
    ] = "answer"
    max_turn_tokens: Annotated[Count, Setting("Maximum tokens of a generation.", paper="Search-R1")] = 500
    max_read_tokens: Annotated[Count, Setting("Maximum tokens of a reply to read_prompt.", ours="our choice")] = 1024
    temperature: Annotated[NotNegative, Setting("Sampling temperature.", code="1 in evaluation, 0.7 in infer.py")] = 0.0
    top_p: Annotated[Share, Setting("Nucleus sampling.", code="released code")] = 1.0

    def __post_init__(self) -> None:
        names = {name for _, name, _, _ in Formatter().parse(self.passage) if name is not None}
        if not names <= FIELDS:
            raise ConfigError(f"method.passage={self.passage!r}: fields are {{number}}, {{title}} and {{text}}")

    async def answer(self, question: Question) -> Answer:
        """Let the model search until it answers.

        Evidence: all passages that were found, those of the first search first. Notes: the transcript, and each query
        with its passages. Figures: searches.

        Flags: those of `ReadingLog`, `forced_answer` (no answer within `max_turns` turns and `max_searches` searches,
        or a turn ended without query and answer; requested then with `at_limit=answer`), `no_action` (such a turn),
        `repeated_search` (per query that was searched before) and `empty_query`.
        """
        log, transcript, text = ReadingLog(question, self.scope_of(question)), Transcript(), None
        for _ in range(self.max_turns):
            reply = await self.write(transcript, log)
            kind, argument = self.read(reply.text)
            if kind == "answer":
                text = argument
                break
            if kind == "query" and len(transcript.searches) < self.max_searches:
                log.flags["repeated_search"] += argument in transcript.queries
                await self.search(argument, transcript, log)
            elif kind == "query" or reply.finish == "stop":
                log.flags["no_action"] += kind != "query"
                break
        if text is None and self.at_limit == "answer":
            log.flags["forced_answer"] += 1
            transcript.write(f"\n{self.answer_tags[0]}")
            reply = await self.write(transcript, log)
            text = self.read(self.answer_tags[0] + reply.text.strip().partition("\n")[0])[1]
        searches = [[found.query, [passage.id for passage in found.passages]] for found in transcript.searches]
        notes = {"transcript": self.show(transcript, transcript.passages), "searches": searches}
        return log.answer(text or "", transcript.passages, notes, {"searches": len(searches)})

    async def write(self, transcript: Transcript, log: ReadingLog) -> Completion:
        """Generate the continuation of the transcript, and add it with the tag that ends it."""

        def call(shown: tuple[Passage, ...]) -> Generate:
            prompt = self.continue_prompt(log.question, self.show(transcript, shown), shown)
            tokens, settings = self.max_turn_tokens, (self.temperature, self.top_p)
            return Generate(prompt, tokens, self.stop, *settings, thoughts="keep")

        results = merge_rankings(found.passages for found in transcript.searches if found.finding is None)
        reply = await log.send(call, results)
        kind, _ = self.read(reply.text)
        end = {"query": self.query[1], "answer": self.answer_tags[1]}.get(kind, "")
        closed = end in self.stop and (reply.finish == "stop" or kind == "query")
        transcript.write(reply.text + end * closed)
        return reply

    async def search(self, query: str, transcript: Transcript, log: ReadingLog) -> None:
        """Search, and add what is found to the transcript, or what the model reads from it with `read_prompt`."""
        found = Found(query, await log.scope.search(query, self.passages) if query else ())
        log.flags.update({"empty_query": not query, "empty_retrieval": not found.passages})
        if self.read_prompt is not None and found.passages:
            found = replace(found, finding=await self.read_passages(found, transcript, log))
        transcript.write(found)

    async def read_passages(self, found: Found, transcript: Transcript, log: ReadingLog) -> str:
        """Return what the model reads from passages for a query (Search-o1's reason-in-documents)."""

        def show(shown: tuple[Passage, ...]) -> dict[str, str]:
            texts = self.show_passages(found.passages, shown)
            return {"pinned": pinned_text(log.question, shown), "passages": texts}

        values = {"question": log.question.text, "query": found.query}
        values["reasoning"] = self.show(transcript, transcript.passages)
        template, tokens = str(self.read_prompt), self.max_read_tokens
        reply = await log.read(template, found.passages, tokens, stop=(), show=show, **values)
        return FINDING.split(reply)[-1].strip()

    def read(self, text: str) -> tuple[str, str]:
        """Return the last action as ("query" | "answer", its text), or ("", "")."""
        query, answer = text.rfind(self.query[0]), text.rfind(self.answer_tags[0])
        if query < 0 and answer < 0:
            return "", ""
        kind, (start, end) = ("query", self.query) if query > answer else ("answer", self.answer_tags)
        if kind == "answer" and (boxed := read_boxed(text if start == BOX else text[answer:])) is not None:
            return kind, boxed
        return kind, text.rpartition(start)[2].partition(end)[0].strip()

    def show(self, transcript: Transcript, shown: Sequence[Passage]) -> str:
        """Return the transcript with only these passages."""

        def show_result(found: Found) -> str:
            texts = self.show_passages(found.passages, shown) if found.finding is None else found.finding
            return f"{self.result[0]}{texts}{self.result[1]}"

        return transcript.show(show_result)

    def show_passages(self, passages: Sequence[Passage], shown: Sequence[Passage]) -> str:
        """Return passages as the model reads them. Numbers are ranks."""
        return "".join(
            self.passage.format(number=number, title=passage.title, text=passage.text[: self.max_passage_characters])
            for number, passage in enumerate(passages, start=1)
            if passage in shown
        )

    def continue_prompt(self, question: Question, transcript: str, shown: Sequence[Passage]) -> Prompt:
        """Return the prompt with the transcript as the start of the reply."""
        pinned = pinned_text(question, shown)
        prompt = render(self.prompt, pinned=pinned, question=question.text, searches=self.max_searches)
        if prompt.form == "chat":
            return replace(prompt, prefill=prompt.prefill + transcript)
        (message,) = prompt.messages
        return replace(prompt, messages=(replace(message, content=message.content + transcript),))
