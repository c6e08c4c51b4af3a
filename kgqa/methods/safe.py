"""SAFE (arXiv 2604.01993) at inference: one atomic step per call, each judged before it is believed (Figure 1, §3.3).

A step extracts one fact of one passage, draws one conclusion from earlier steps, or gives the final answer. A judged
error sends the step back with diagnosis and guidance. Nothing is trained here, and no knowledge graph is built: the
paper verifies its training data with one; at inference a step is text that is judged by the passages.

Roles: `reader` writes the steps (template safe/step) and, with feedback=self, judges them (safe/judge); with
feedback=model the role `feedback` does. The error types are in `steps.safe_verdict`.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from kgqa.calls import CountTokens, Generate
from kgqa.constraints import Count, not_negative
from kgqa.methods.steps.reader import passages_text
from kgqa.methods.steps.replies import counted, first_line
from kgqa.methods.steps.safe_verdict import (
    CORRECT,
    Labels,
    StepVerdict,
    errors,
    protocol,
    read_verdict,
    verdict_schema,
)
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Json, Passage, Prompt, Question

KINDS = r"\((Attribution|Logical|Final Answer)\)"
MARKER = re.compile(rf"#+\s*ANSWER:[^\S\n]*(.*?)[^\S\n]*(?:{KINDS}.*)?$", flags=re.IGNORECASE | re.MULTILINE)
LABEL = re.compile(r"^\W*(?:final\s+)?answer\s*:\s*", flags=re.IGNORECASE)
TAG = re.compile(rf"{KINDS}\W*$", flags=re.IGNORECASE)
CITED = re.compile(r"\bPassage\s+(\d+)\b", flags=re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """A step as written, its first line alone."""

    text: str
    kind: str  # "attribution", "logical", "final answer"; "" where the step does not say
    answer: str | None  # None: the step does not answer


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """A step at its place and what the evaluator said of it; None: nobody was asked.

    Two are never equal, since a step may be written again word by word.
    """

    number: int  # from 1
    step: Step
    verdict: StepVerdict | None


@dataclass(frozen=True)
class Safe:
    """Fields as in conf/method/safe.yaml, which cites the source of each value."""

    feedback: Literal["none", "self", "model"]
    passages: Count
    shuffle_seed: int
    max_steps: Count
    max_retries: Annotated[int, not_negative]
    unparsable: Literal["accept", "retry"]
    labels: Labels
    max_step_tokens: Count
    max_feedback_tokens: Count
    max_feedback_characters: Count
    max_answer_tokens: Count
    steps_from: tuple[Mapping[str, Json], ...]
    verdicts_from: tuple[Mapping[str, Json], ...]

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    @property
    def separate_roles(self) -> Mapping[str, str]:
        """Without a model of its own the evaluator would be the reader: that is feedback=self."""
        return {"feedback": "method.feedback=model"} if self.feedback == "model" else {}

    async def answer(self, question: Question) -> Answer:
        """Evidence: passages that accepted attribution steps cite, first cited first. Notes: every attempt with its
        verdict. Figures: steps and retries; with feedback also the errors by type (Figure 3) and by step (Figure 4).

        Flags: `forced_answer` where `max_steps` were not enough, `unresolved_step` where the last retry was still
        judged an error and is kept, `unparsable_verdict`, `cut_verdict` for each such reply that ended at
        `max_feedback_tokens`, `untagged_step`, `no_passage_cited`, `empty_step`, `cut_reply` of a step or answer,
        `empty_answer`.
        """
        passages = self.chosen(question)
        given = self.given(question, passages)
        flags, attempts, accepted = Counter[str](), list[Attempt](), list[Attempt]()
        for number in range(1, self.max_steps + 1):
            for _ in range(1 + self.max_retries):
                attempts.append(await self.attempt(number, given, accepted, attempts, flags))
                if not self.rejected(attempts[-1].verdict):
                    break
            flags["unresolved_step"] += self.rejected(attempts[-1].verdict)
            accepted.append(attempts[-1])
            if accepted[-1].step.answer is not None:
                break
        answer = accepted[-1].step.answer
        if answer is None:
            flags["forced_answer"] += 1
            answer = await self.conclude(given, accepted, flags)
        flags["empty_answer"] += not answer
        cited = [passages[n].id for attempt in accepted for n in _cited(attempt.step, len(passages))]
        flags["no_passage_cited"] += not cited
        return Answer(
            answer,
            tuple(dict.fromkeys(cited)),
            context_tokens=await CountTokens(given["passages"]) if passages else 0,
            flags=counted(**flags),
            figures=self.figures(attempts),
            notes={"attempts": [_note(attempt, attempt in accepted) for attempt in attempts]},
        )

    def chosen(self, question: Question) -> list[Passage]:
        """Appendix A.4: the gold passages and sampled distractors, `passages` in all, in an order that depends on the
        question and the seed alone."""
        draw = random.Random(f"{self.shuffle_seed}/{question.id}")  # noqa: S311 - a sample, not a secret
        distinct = list({passage.id: passage for passage in question.passages}.values())
        gold = [passage for passage in distinct if passage.id in question.support]
        others = [passage for passage in distinct if passage.id not in question.support]
        kept = gold + draw.sample(others, max(0, min(len(others), self.passages - len(gold))))
        draw.shuffle(kept)
        return kept

    def given(self, question: Question, passages: list[Passage]) -> dict[str, str]:
        """What stays the same in all prompts for a question."""
        return {"passages": passages_text(_numbered(passages)), "question": question.text}

    async def attempt(
        self,
        number: int,
        given: Mapping[str, str],
        accepted: list[Attempt],
        attempts: list[Attempt],
        flags: Counter[str],
    ) -> Attempt:
        """One more try at step `number`, judged. The latest verdict guides it, whether it was an error or not; a
        rejected try is shown beside its verdict and is no part of the chain (not in the paper). One whose verdict could
        not be read is shown, too, and the guidance that led to it goes on."""
        unjudged = [attempt for attempt in attempts if attempt.verdict is None and attempt not in accepted]
        guiding = [attempt for attempt in attempts if attempt not in unjudged][-1:]
        tried = [attempt for attempt in unjudged if attempt.number == number][-1:]
        values = {
            **given,
            "steps": _lines(accepted),
            "last": next(iter(guiding), None),
            "tried": next(iter(tried), None),
        }
        step = await self.step(number, values, flags)
        if self.feedback == "none":
            return Attempt(number, step, None)
        return Attempt(number, step, await self.judge({**given, "steps": _lines(accepted)}, number, step, flags))

    def judge_prompt(self, values: Mapping[str, object], number: int, step: Step, *, again: bool = False) -> Prompt:
        """What the evaluator is asked of a step, and what it is trained with.

        values: `given` and `steps`, the lines of the steps that were accepted.
        """
        variables = {**values, "examples": self.verdicts_from, "number": number, "step": step, "again": again}
        return render("safe/judge", protocol=protocol(self.labels), correct=CORRECT, **variables)

    async def step(self, number: int, values: Mapping[str, object], flags: Counter[str]) -> Step:
        judged = self.feedback != "none"
        prompt = render("safe/step", examples=self.steps_from, judged=judged, number=number, **values)
        reply = await Generate(prompt, self.max_step_tokens, stop=("\n",))
        line, cut = first_line(reply)
        step = read_step(line)
        flags.update(empty_step=not step.text, untagged_step=bool(step.text) and not step.kind, cut_reply=cut)
        return step

    async def judge(
        self, values: Mapping[str, object], number: int, step: Step, flags: Counter[str]
    ) -> StepVerdict | None:
        """The evaluator's verdict; one that cannot be read is asked for once more, then it is None."""
        role = "reader" if self.feedback == "self" else "feedback"
        schema = verdict_schema(self.max_feedback_characters, self.labels)
        for again in (False, True):
            prompt = self.judge_prompt(values, number, step, again=again)
            reply = await Generate(prompt, self.max_feedback_tokens, schema=schema, role=role)
            verdict = read_verdict(reply.text, self.labels)
            if verdict is not None:
                return verdict
            flags["cut_verdict"] += reply.finish == "length"
        flags["unparsable_verdict"] += 1
        return None

    def rejected(self, verdict: StepVerdict | None) -> bool:
        if verdict is None:
            return self.feedback != "none" and self.unparsable == "retry"
        return verdict.is_error

    async def conclude(self, given: Mapping[str, str], accepted: list[Attempt], flags: Counter[str]) -> str:
        """Figure 13: the final answer from the steps so far."""
        reply = await Generate(render("safe/conclude", **given, steps=_lines(accepted)), self.max_answer_tokens)
        answer, cut = read_answer(reply)
        flags["cut_reply"] += cut
        return answer

    def figures(self, attempts: list[Attempt]) -> dict[str, float]:
        steps = {attempt.number for attempt in attempts}
        figures: dict[str, float] = {"steps": len(steps), "retries": len(attempts) - len(steps)}
        if self.feedback == "none":
            return figures
        wrong = [attempt for attempt in attempts if attempt.verdict and attempt.verdict.is_error]
        types = Counter(attempt.verdict.error_type for attempt in wrong if attempt.verdict)
        places = Counter(attempt.number for attempt in wrong)
        figures |= {f"errors, {name.lower()}": types[name] for name in errors(self.labels)}
        return figures | {f"errors at step {number}": places[number] for number in range(1, self.max_steps + 1)}


def read_answer(reply: Completion) -> tuple[str, bool]:
    """The answer in the first line that says something, and whether it was cut: without tag and without the marker
    that the reply is to go on from, which models write once more. Where the engine could not begin the reply with the
    marker, it is looked for in further lines, too."""
    if "no_prefill" in reply.flags and (marked := MARKER.search(reply.text)):
        reply = replace(reply, text=reply.text[marked.start() :])
    line, cut = first_line(reply)
    answer = read_step(line).answer
    return (LABEL.sub("", TAG.sub("", line).strip()) if answer is None else answer), cut


def read_step(line: str) -> Step:
    """A step from the line that was written after its number. Any string is accepted."""
    marked, tag = MARKER.search(line), TAG.search(line)
    if marked:
        return Step(line, "final answer", marked.group(1).strip())
    return Step(line, tag.group(1).lower() if tag else "", None)


def step_line(number: int, text: str) -> str:
    """A step as later prompts show it."""
    return f"Step {number}: {text}"


def _numbered(passages: list[Passage]) -> list[Passage]:
    return [Passage(p.id, f"Passage {number}: {p.title}", p.text) for number, p in enumerate(passages, start=1)]


def _lines(accepted: list[Attempt]) -> list[str]:
    return [step_line(attempt.number, attempt.step.text) for attempt in accepted]


def _cited(step: Step, count: int) -> list[int]:
    """Positions of the passages an attribution step cites."""
    if step.kind != "attribution":
        return []
    return [int(number) - 1 for number in CITED.findall(step.text) if 1 <= int(number) <= count]


def _note(attempt: Attempt, accepted: bool) -> Json:
    verdict = attempt.verdict._asdict() if attempt.verdict else None
    return {"step": attempt.number, "text": attempt.step.text, "accepted": accepted, "verdict": verdict}
