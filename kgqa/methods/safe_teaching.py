"""SAFE's labelled steps by a teacher (§3.3): plan (Figures 15 to 17), ideal steps (Figure 18), one step replaced by an
error (Figure 19), feedback on it; and, of what an evaluator let pass, the first error.

All are calls of the role `teacher`, whose replies are held to a JSON schema; one that cannot be read twice teaches
nothing. The examples themselves are asked as `safe` asks its evaluator: `experiment.collect.safe`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kgqa.artifacts.examples import NotTaught
from kgqa.calls import Generate
from kgqa.methods.safe import CITED, Safe, step_line
from kgqa.methods.steps.reader import passages_text
from kgqa.methods.steps.safe_plan import WORDINGS, sentence
from kgqa.methods.steps.safe_rules import JudgedStep, format_answer, sample_late
from kgqa.methods.steps.safe_verdict import CORRECT, StepVerdict, protocol
from kgqa.prompting import render
from kgqa.scoring.normalisation import normalise
from kgqa.types import Json, Passage, Question
from kgqa.util.jsonio import decode_first
from kgqa.util.validators import Count, Natural

ROLE = "teacher"
MISLEADING, UNANSWERABLE = "Misleading Guidance", "Dataset Error"  # the released code's names
SAMPLED = ("Unsupported", "Off-topic", "Redundancy")  # the released code samples these
FINAL = ("Wrong Conclusion", "Premature Conclusion")  # errors that are an answer
_TAG = re.compile(r"\s*\((?:Attribution|Logical|Final Answer)\)\s*$", re.IGNORECASE)


def _squeeze(text: object) -> object:
    return " ".join(text.split()) if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_squeeze), Field(min_length=1)]
R = TypeVar("R", bound="Reply")


class Reply(BaseModel):
    """A reply of the teacher: a JSON object. Spaces in texts are normalized, and additional keys are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


class Planned(Reply):
    kind: Annotated[Literal["Attribution", "Logical"], BeforeValidator(_squeeze)]
    do: Text


class Plan(Reply):
    plan: list[Planned]


class Claim(Reply):
    claim: Text
    passage: int  # 0: of none


class Claims(Reply):
    steps: Annotated[list[Claim], Field(min_length=1)]


class Agreement(Reply):
    agree: bool


class Feedback(Reply):
    diagnosis: Text
    guidance: Text


class Finding(Feedback):
    step: int
    error_type: str


def _node(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


@cache
def schemas(characters: int, errors: tuple[str, ...]) -> dict[type[Reply], str]:
    """Return the JSON schema of each reply, with a maximum length of diagnosis and guidance."""
    text, number, short = {"type": "string"}, {"type": "integer"}, {"type": "string", "maxLength": characters}
    claim = {"claim": text, "passage": number}
    kind = {"type": "string", "enum": ["Attribution", "Logical"]}
    feedback = {"diagnosis": short, "guidance": short}
    nodes: dict[type[Reply], Json] = {
        Plan: _node(plan={"type": "array", "items": _node(kind=kind, do=text)}),
        Claim: _node(**claim),
        Claims: _node(steps={"type": "array", "items": _node(**claim)}),
        Agreement: _node(agree={"type": "boolean"}, why=text),
        Feedback: _node(**feedback),
        Finding: _node(step=number, error_type={"type": "string", "enum": [*errors]}, **feedback),
    }
    return {reply: json.dumps(node) for reply, node in nodes.items()}


@dataclass
class Taught:
    """Labelled steps, and what came to none: what, and why."""

    steps: list[tuple[str, JudgedStep]] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Ideal:
    """The ideal solution of a question: a step for each of the plan, then the answer."""

    question: str
    passages: str
    kinds: tuple[str, ...]  # of the steps before the answer
    claims: tuple[str, ...]
    steps: tuple[str, ...]

    def lines(self, count: int) -> list[str]:
        return [step_line(number, text) for number, text in enumerate(self.steps[:count], start=1)]

    def places(self, error: str) -> list[int]:
        """Return the steps where an error can be inserted, from 1."""
        count = len(self.kinds)
        found = [place for place, kind in enumerate(self.kinds, start=1) if kind == "Attribution"]
        if error in ("Wrong Conclusion", "Overthinking"):
            return [count + 1]
        if error in ("Off-topic", "Inefficiency"):
            return list(range(1, count + 1))
        if error in ("Redundancy", "Premature Conclusion"):
            return list(range(2, count + 1))
        if error == "Logical Fallacy":
            return [place for place, kind in enumerate(self.kinds, start=1) if kind == "Logical"]
        return found[:-1] if error == "Premature Attribution" else found


@dataclass(frozen=True)
class Teacher:
    """`errors_each`, `correct_each`: wrong and right steps that a question is asked for. The others as in
    conf/collect/safe.yaml."""

    method: Safe
    errors_each: Natural
    correct_each: Natural
    audit: bool
    temperature: float
    max_tokens: Count
    max_step_tokens: Count

    @property
    def meanings(self) -> Mapping[str, str]:
        return {name: meaning for phase in protocol(self.method.labels).values() for name, meaning in phase.items()}

    @property
    def findings(self) -> tuple[str, ...]:
        """Return what an error in a finished answer can be."""
        return (*self.meanings, MISLEADING, UNANSWERABLE)

    async def teach(self, question: Question, chance: random.Random) -> Taught:
        """Return the teach of one question. Raises NotTaught: it has no ideal solution."""
        ideal, taught = await self.solve(question, chance), Taught()
        right = sorted(chance.sample(range(len(ideal.steps)), min(self.correct_each, len(ideal.steps))))
        names = [name for name in self.meanings if ideal.places(name)]
        wrong = chance.sample(names, min(self.errors_each, len(names)))
        for label, place in [*((CORRECT, place + 1) for place in right), *((name, 0) for name in wrong)]:
            await self._label(label, place or sample_late(ideal.places(label), chance), ideal, chance, taught)
        return taught

    async def _label(self, label: str, number: int, ideal: Ideal, chance: random.Random, taught: Taught) -> None:
        try:
            right = label == CORRECT
            text = ideal.steps[number - 1] if right else await self.corrupt(label, number, ideal, chance)
            taught.steps.append((label, await self.judge_step(label, number, text, ideal)))
        except NotTaught as why:
            taught.dropped.append((label, str(why)))

    async def solve(self, question: Question, chance: random.Random) -> Ideal:
        """Return the plan, carried out on the gold passages under the numbers they have among all, and checked."""
        shown = self.method.sample_passages(question)
        gold = {n: passage for n, passage in enumerate(shown, start=1) if passage.id in question.support}
        among = [Passage(p.id, f"Passage {n}: {p.title}", p.text) for n, p in enumerate(gold.values(), start=1)]
        if not gold or not question.answers:
            raise NotTaught("no gold passage or answer")
        hops = [hop.question for hop in question.decomposition]
        plan = (await self.ask("teach/plan", Plan, {"question": question.text, "hops": hops})).plan
        given: dict[str, object] = {
            "question": question.text,
            "answer": question.answers[0],
            "passages": passages_text(among),
        }
        claims = (await self.ask("teach/solve", Claims, {"plan": plan, **given})).steps
        steps = _carry_out(plan, claims, tuple(gold), chance)
        ideal = Ideal(
            question.text, self.method.prompt_values(question, shown)["passages"], tuple(step.kind for step in plan),
            tuple(claim.claim for claim in claims), (*steps, format_answer(question.answers[0])),
        )  # fmt: skip
        lines = _remove_citations(plan, claims, question.answers[0])
        if self.audit and not (await self.ask("teach/check", Agreement, {"steps": lines, **given})).agree:
            raise NotTaught("the ideal steps do not stand the check")
        return ideal

    async def corrupt(self, error: str, number: int, ideal: Ideal, chance: random.Random) -> str:
        """Return the step with this error."""
        final = error in FINAL
        values = {
            "error": error, "meaning": self.meanings[error], "final": final, "number": number,
            "question": ideal.question, "passages": ideal.passages, "steps": ideal.lines(len(ideal.steps)),
        }  # fmt: skip
        claim = await self.ask(
            "teach/corrupt", Claim, values, max_tokens=self.max_step_tokens,
            temperature=self.temperature if error in SAMPLED else 0.0,
        )  # fmt: skip
        said = _plain(claim.claim)
        same = ideal.claims[number - 1] if number <= len(ideal.claims) else ""
        kind = "Attribution" if claim.passage else "Logical"
        text = format_answer(said) if final else _format_step(claim.claim, kind, claim.passage, chance)
        if normalise(said) == normalise(same) or text == ideal.steps[number - 1]:
            raise NotTaught("the step with the error is the ideal one")
        return text

    async def judge_step(self, label: str, number: int, text: str, ideal: Ideal) -> JudgedStep:
        """Return the judged with its feedback, which the audit agrees with."""
        right = label == CORRECT
        following = ideal.steps[number] if number < len(ideal.steps) else ""
        given: dict[str, object] = {
            "label": label, "meaning": "no error type applies" if right else self.meanings[label],
            "question": ideal.question, "passages": ideal.passages, "steps": ideal.lines(number - 1),
            "step": step_line(number, text),
        }  # fmt: skip
        ideal_step = "" if right else ideal.steps[number - 1]
        guided: dict[str, object] = {**given, "ideal": ideal_step, "next": following}
        said = await self.ask("teach/feedback", Feedback, guided)
        audited: dict[str, object] = {**given, "diagnosis": said.diagnosis}
        if self.audit and not (await self.ask("teach/audit", Agreement, audited)).agree:
            raise NotTaught("the auditor does not agree")
        return JudgedStep(number, ideal.steps[: number - 1], text, StepVerdict(label, said.diagnosis, said.guidance))

    async def hard_case(self, question: Question, given: str, attempts: Sequence[Json]) -> tuple[str, JudgedStep]:
        """Return the first error of a wrong answer that an evaluator let pass, with the verdict it should have given.

        attempts: the notes of `Safe.answer`.

        Raises:
            NotTaught: no error is found, or another one at the second look.
        """
        accepted = [attempt for attempt in attempts if attempt["accepted"]]
        lines = [
            {"text": step_line(number, one["text"]), "guidance": (one["verdict"] or {}).get("guidance", "")}
            for number, one in enumerate(accepted, start=1)
        ]
        shared = self.method.prompt_values(question, self.method.sample_passages(question))
        values: dict[str, object] = {
            "errors": self.meanings, "misleading": MISLEADING, "unanswerable": UNANSWERABLE, "steps": lines,
            "answer": question.answers[0], "given": given, **shared,
        }  # fmt: skip

        first = await self.ask("teach/first_error", Finding, {**values, "earlier": None})
        second = await self.ask("teach/first_error", Finding, {**values, "earlier": first})
        if second.step != first.step:
            raise NotTaught("at the second look another step errs")
        return _correct(second, accepted)

    async def ask(
        self,
        template: str,
        kind: type[R],
        values: Mapping[str, object],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
    ) -> R:
        """Return the reply. An unreadable one is requested once more. Raises NotTaught: neither can be read."""
        schema = schemas(self.method.max_feedback_characters, self.findings)[kind]
        for again in (False, True):
            prompt = render(template, again=again, **values)
            reply = await Generate(
                prompt, max_tokens or self.max_tokens, schema=schema, role=ROLE, temperature=temperature
            )
            if (read := self.read(kind, reply.text)) is not None:
                return read
        raise NotTaught(f"a reply to {template} cannot be read")

    def read(self, kind: type[R], text: str) -> R | None:
        """Return the first JSON object of a reply, or None if it is not of this kind."""
        try:
            reply = kind.model_validate(decode_first(text, text.index("{"))[0])
        except ValueError:  # also if it is not JSON or not valid
            return None
        if isinstance(reply, Plan):
            kinds = [step.kind for step in reply.plan]
            return reply if kinds[-1:] == ["Logical"] and "Attribution" in kinds else None
        return None if isinstance(reply, Finding) and reply.error_type not in self.findings else reply


def _carry_out(
    plan: Sequence[Planned], claims: Sequence[Claim], gold: Sequence[int], chance: random.Random
) -> list[str]:
    """Return `gold`: numbers that the gold passages have among all, in the order in which the teacher saw them.

    Raises:
        NotTaught: a step is missing, or rests on no passage.
    """
    if len(claims) != len(plan):
        raise NotTaught("not a step for each of the plan")
    steps = []
    for step, claim in zip(plan, claims, strict=True):
        known = 1 <= claim.passage <= len(gold)
        if step.kind == "Attribution" and not known:
            raise NotTaught("an ideal step is of no gold passage")
        steps.append(_format_step(claim.claim, step.kind, gold[claim.passage - 1] if known else 0, chance))
    return steps


def _remove_citations(plan: Sequence[Planned], claims: Sequence[Claim], answer: str) -> list[str]:
    """Return the ideal steps for the check, with the numbers that the gold passages have among themselves."""
    texts = [
        f"Passage {claim.passage}: {sentence(claim.claim)} (Attribution)"
        if step.kind == "Attribution"
        else f"{sentence(claim.claim)} (Logical)"
        for step, claim in zip(plan, claims, strict=True)
    ]
    return [step_line(number, text) for number, text in enumerate([*texts, format_answer(answer)], start=1)]


def _format_step(claim: str, kind: str, passage: int, chance: random.Random) -> str:
    """Return a claim as a step. An attribution cites its passage in one of several wordings, as in the released
    code.
    """
    said = _plain(claim)
    if kind == "Attribution":
        if CITED.search(said):
            raise NotTaught("a step names a passage in its sentence")
        said = chance.choice(WORDINGS).format(n=passage, claim=said)
    return f"{sentence(said)} ({kind})"


def _plain(claim: str) -> str:
    """Return a claim without its tag and number."""
    return _TAG.sub("", re.sub(r"^Step \d+:\s*", "", claim)).strip()


def _correct(found: Finding, accepted: Sequence[Json]) -> tuple[str, JudgedStep]:
    """Return guidance that misled was given with the verdict on the step before."""
    if found.error_type == UNANSWERABLE:
        raise NotTaught("the passages do not lead to the right answer")
    misled = found.error_type == MISLEADING
    number = found.step - 1 if misled else found.step
    if not 1 <= number <= len(accepted):
        raise NotTaught("there is no such step")
    one = accepted[number - 1]
    if misled and not one["verdict"]:
        raise NotTaught("the step before had no guidance")
    verdict = StepVerdict(found.error_type, found.diagnosis, found.guidance)
    if misled:
        verdict = StepVerdict(one["verdict"]["error_type"], one["verdict"]["diagnosis"], found.guidance)
    before = tuple(each["text"] for each in accepted[: number - 1])
    return verdict.error_type, JudgedStep(number, before, one["text"], verdict)
