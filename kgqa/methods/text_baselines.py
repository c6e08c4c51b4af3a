"""KnowTrace's baselines that take turns between retrieval and generated text (Appendix C)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from kgqa.methods.steps.examples import NOTHING_FOUND, PooledFewShot
from kgqa.methods.steps.reader import (
    ReadingLog,
    add_pinned,
    merge_rankings,
    passages_text,
    pinned_text,
)
from kgqa.methods.steps.replies import AFTER, BEFORE, find_answer, plain_answer, text_after_label
from kgqa.methods.steps.search import Found, Transcript
from kgqa.types import Answer, Passage, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

ANSWERED = "\nIntermediate answer:"
CONCLUDED = "\nFinal answer:"
FINAL = r"(?:so,?\s+)?(?:the\s+)?final\s+answer(?:\s+is)?"


@dataclass(frozen=True)
class IterRetGen(PooledFewShot):
    """Iter-RetGen (Shao et al., Findings of EMNLP 2023).

    Stages, `iterations` times: retrieve by the previous generation and the question → read the passages and write a
    chain of thought with an answer. The last generation's answer counts.
    """

    iterations: Annotated[
        Count,
        Setting(
            "Number of iterations, T. Shao et al. report most of the gain in the second of up to seven.",
            ours="not in KnowTrace",
        ),
    ] = 2
    max_tokens: Annotated[Count, Setting("Maximum tokens of a reply.", ours="our choice")] = 256

    async def answer(self, question: Question) -> Answer:
        """Retrieve and generate in turns.

        Evidence: the passages of the last iteration, then of earlier ones. Notes: query and generation of each
        iteration. Flags: those of `ReadingLog`.
        """
        log, queries, evidence, replies = (
            ReadingLog(question),
            [question.text],
            list[Passage](),
            list[str](),
        )
        for _ in range(self.iterations):
            passages = await log.search(queries[-1], self.passages)
            evidence = [*passages, *evidence]
            reply = await self.read(log, "iter_retgen/answer", passages, self.max_tokens)
            replies.append(reply)
            # the generation first: Shao et al., §3.2
            queries.append(f"{reply.strip()} {question.text}".strip())
        notes = {"generations": replies, "queries": queries[:-1]}
        return log.answer(log.read_conclusion(replies[-1]), evidence, notes)


@dataclass(frozen=True)
class SelfAsk(PooledFewShot):
    """Self-Ask (Press et al., Findings of EMNLP 2023) with retrieval.

    Stages: retrieve by the question → the model asks a follow-up question → retrieve by it → the model gives its
    intermediate answer and another follow-up question, or concludes. All passages come before the question (Yoran et
    al., EMNLP 2023).
    """

    search_question: Annotated[
        bool,
        Setting(
            "Yoran et al. (EMNLP 2023), whom KnowTrace follows, retrieve for the question too."
        ),
    ] = True
    max_follow_ups: Annotated[
        Count,
        Setting(
            "Maximum number of follow-up questions. Yoran et al. stop after 5.",
            ours="not in KnowTrace",
        ),
    ] = 5
    max_tokens: Annotated[Count, Setting("Maximum tokens of each reply.", ours="our choice")] = 128

    async def answer(self, question: Question) -> Answer:
        """Ask and answer follow-up questions, then answer.

        Evidence: all passages, those of the question first. Notes: the transcript and the follow-up questions. Figures:
        follow_ups and forced_answer.

        Flags: those of `ReadingLog`, `forced_answer` (no conclusion within `max_follow_ups` questions, or after
        `unreadable_reply` or `repeated_follow_up`), `unreadable_reply` (neither a question nor a conclusion) and
        `repeated_follow_up`.
        """
        log, searches, follow_ups = ReadingLog(question), list[tuple[Passage, ...]](), list[str]()
        transcript, text = "Follow-up:", ""

        def show(context: tuple[Passage, ...]) -> dict[str, str]:
            """Return the passages in the order of the searches, and the transcript."""
            passages = add_pinned(question, (passage for hits in searches for passage in hits))
            texts = passages_text(
                dict.fromkeys(passage for passage in passages if passage in context)
            )
            return {"passages": texts, "transcript": transcript}

        async def continue_transcript() -> str:
            """Generate the continuation of the transcript, up to the next intermediate answer."""
            stop, ranked = (ANSWERED.lstrip("\n"), "\nPassages:"), merge_rankings(searches)
            return (
                await self.read(log, "self_ask/ask", ranked, self.max_tokens, stop=stop, show=show)
            ).rstrip()

        if self.search_question:
            searches.append(await log.search(question.text, self.passages))
        for _ in range(self.max_follow_ups):
            transcript += await continue_transcript()
            ending = transcript.rpartition(ANSWERED)[2]
            follow_up, text = text_after_label("Follow-up", ending), text_after_label(FINAL, ending)
            text = plain_answer(text) or ("" if follow_up else find_answer(ending))
            if text or not follow_up or follow_up in follow_ups:
                log.flags["repeated_follow_up"] += not text and follow_up in follow_ups
                log.flags["unreadable_reply"] += not text and not follow_up
                break
            follow_ups.append(follow_up)
            searches.append(await log.search(follow_up, self.passages))
            transcript += ANSWERED
        if not text:
            log.flags["forced_answer"] += 1
            transcript = transcript.removesuffix(ANSWERED) + CONCLUDED
            text = (await continue_transcript()).strip().partition("\n")[0]
            transcript += f" {text}"
        evidence = (passage for hits in searches for passage in hits)
        notes = {"transcript": transcript.strip(), "follow_ups": follow_ups}
        figures = {"follow_ups": len(follow_ups), "forced_answer": log.flags["forced_answer"]}
        return log.answer(text, evidence, notes, figures)


@dataclass(frozen=True)
class ReAct(PooledFewShot):
    """ReAct (Yao et al., ICLR 2023).

    Stages, until the model finishes: thought → action → observation. An action searches (the observation is the
    passages found) or finishes with an answer.
    """

    max_steps: Annotated[
        Count,
        Setting(
            "Maximum number of steps. Yao et al. (§3.2) stop HotpotQA after 7.",
            ours="not in KnowTrace",
        ),
    ] = 7
    at_limit: Annotated[
        Literal["empty", "answer"],
        Setting(
            "After max_steps: empty, no answer (Yao et al. §3.2, and their released code) | answer, request one."
        ),
    ] = "empty"
    max_step_tokens: Annotated[
        Count,
        Setting(
            "Maximum tokens of a thought and its action.",
            ours="not in a paper",
            code="of Yao et al",
        ),
    ] = 100

    async def answer(self, question: Question) -> Answer:
        """Take turns between thoughts and searches until the model finishes.

        Evidence: all observed passages, first observed first. Notes: the transcript and the queries. Figures: searches
        and forced_answer.

        Flags: those of `ReadingLog`, `unfinished` (not finished within `max_steps`), `forced_answer` (requested then
        with `at_limit=answer`), `prompted_action` (per thought without an action of its number), `unreadable_action`
        (per step still without one, which the observation reports) and `repeated_search` (per query that was searched
        before).
        """
        log, transcript, answer = ReadingLog(question), Transcript(), None
        for number in range(1, self.max_steps + 1):
            transcript.write(f"\nThought {number}:")
            kind, argument = await self.step(transcript, number, log)
            if kind == "finish":
                answer = argument
                break
            transcript.write(f"\nObservation {number}: ")
            if kind == "search":
                log.flags["repeated_search"] += argument in transcript.queries
                transcript.write(Found(argument, await log.search(argument, self.passages)))
            else:
                log.flags["unreadable_action"] += 1
                transcript.write(
                    "This action cannot be carried out. Use Search[...] or Finish[...]."
                )
        log.flags["unfinished"] += answer is None
        if answer is None and self.at_limit == "answer":
            log.flags["forced_answer"] += 1
            last = self.max_steps + 1
            transcript.write(f"\nThought {last}: I have to answer now.\nAction {last}: Finish[")
            ending = await self.continue_transcript(transcript, log)
            answer = re.split(r"[\]\n]", ending.strip())[0].strip()
        passages, queries = transcript.passages, transcript.queries
        notes = {"transcript": show_observations(transcript, passages), "queries": queries}
        figures = {"searches": len(queries), "forced_answer": log.flags["forced_answer"]}
        return log.answer(answer or "", passages, notes, figures)

    async def step(self, transcript: Transcript, number: int, log: ReadingLog) -> tuple[str, str]:
        """Generate a thought and its action, and return the action as `read_action` does.

        An action must have the number of the step. After a thought without one, its action is requested (released
        code). Text after the action is dropped.
        """
        reply = await self.continue_transcript(transcript, log)
        kind, argument, end = read_action(reply, number)
        if not kind:
            log.flags["prompted_action"] += 1
            thought = f" {reply.strip().partition(chr(10))[0]}\nAction {number}:"
            transcript.write(thought)
            reply = await self.continue_transcript(transcript, log, stop="\n")
            # one line, so that nothing follows its action
            kind, argument, _ = read_action(thought + reply, number)
            end = len(reply)
        transcript.write(reply[:end])
        return kind, argument

    async def continue_transcript(
        self, transcript: Transcript, log: ReadingLog, stop: str = "\nObservation"
    ) -> str:
        """Generate the continuation of the transcript, up to `stop`."""

        def show(context: tuple[Passage, ...]) -> dict[str, str]:
            return {
                "pinned": pinned_text(log.question, context),
                "transcript": show_observations(transcript, context),
            }

        ranked = merge_rankings(search.passages for search in transcript.searches)
        stops = (stop, "\nQuestion:", "\nPassages:")
        reply = await self.read(
            log, "react/step", ranked, self.max_step_tokens, stop=stops, show=show
        )
        return f"{'' if reply.startswith(' ') else ' '}{reply.rstrip()}"


def show_observations(transcript: Transcript, context: Collection[Passage]) -> str:
    """Return the transcript with only these passages."""

    def show(search: Found) -> str:
        return (
            passages_text(passage for passage in search.passages if passage in context)
            or NOTHING_FOUND
        )

    return transcript.show(show).strip()


def read_action(step: str, number: int) -> tuple[str, str, int]:
    """Return the action with this number as ("search" | "finish", the text in brackets, its end), or ("", "", 0)."""
    pattern = rf"{BEFORE}Action {number}{AFTER}(Search|Finish)\[(.*)\]\W*?$"
    action = re.search(pattern, step, flags=re.MULTILINE | re.IGNORECASE)
    argument = action.group(2).strip() if action else ""
    return (action.group(1).lower(), argument, action.end()) if action and argument else ("", "", 0)
