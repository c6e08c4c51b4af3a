"""SAFE's labeled steps by a teacher (§3.3): a plan (Figures 15 to 17), ideal steps (Figure 18), one of them replaced by
an error (Figure 19), and feedback on it. In wrong answers that an evaluator accepted, it finds the first error.

The calls have the role `teacher` and a JSON schema. `method=safe_teacher` notes the labeled steps of each question, and
`collect.safe` turns them into training examples.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kgqa.artifacts.examples import TEACHER
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.schema import as_json, check_json
from kgqa.artifacts.trace import read_trace
from kgqa.calls import Generate
from kgqa.extras.training.collect.safe_rules import (
    WORDINGS,
    JudgedStep,
    Labeled,
    NotTaught,
    format_answer,
    sample_late,
    sentence,
)
from kgqa.methods.safe import CITED, TAG, Safe, numbered_text, step_line
from kgqa.methods.steps.safe_verdict import CORRECT, StepVerdict, errors
from kgqa.prompting import render
from kgqa.prompting.json_replies import list_schema, object_node, object_schema, read_object
from kgqa.protocols import Need
from kgqa.scoring.metrics import score
from kgqa.scoring.normalization import normalize
from kgqa.types import Answer, Json, JsonObject, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural

MISLEADING, UNANSWERABLE = "Misleading Guidance", "Dataset Error"  # the released code's names
SAMPLED = ("Unsupported", "Off-topic", "Redundancy")  # the released code samples these
FINAL = ("Wrong Conclusion", "Premature Conclusion")  # errors that are an answer


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


def schemas(characters: int, errors: tuple[str, ...]) -> dict[type[Reply], str]:
    """Return the JSON schema of each reply, with a maximum length of diagnosis and guidance."""
    text, number, short = (
        {"type": "string"},
        {"type": "integer"},
        {"type": "string", "maxLength": characters},
    )
    claim = {"claim": text, "passage": number}
    step = object_node(kind={"type": "string", "enum": ["Attribution", "Logical"]}, do=text)
    feedback = {"diagnosis": short, "guidance": short}
    return {
        Plan: list_schema("plan", step),
        Claim: object_schema(**claim),
        Claims: list_schema("steps", object_node(**claim)),
        Agreement: object_schema(agree={"type": "boolean"}, why=text),
        Feedback: object_schema(**feedback),
        Finding: object_schema(
            step=number, error_type={"type": "string", "enum": [*errors]}, **feedback
        ),
    }


@dataclass(frozen=True)
class Ideal:
    """The ideal solution of a question: one step for each step of the plan, then the answer."""

    question: str
    passages: str
    # of the steps before the answer
    kinds: tuple[str, ...]
    claims: tuple[str, ...]
    steps: tuple[str, ...]

    def lines(self, count: int) -> list[str]:
        return [step_line(number, text) for number, text in enumerate(self.steps[:count], start=1)]

    def numbers(self, error: str) -> list[int]:
        """Return the numbers of the steps that an error can replace, from 1."""
        if error in ("Wrong Conclusion", "Overthinking"):
            return [len(self.steps)]
        if error in ("Off-topic", "Inefficiency", "Redundancy", "Premature Conclusion"):
            first = 1 if error in ("Off-topic", "Inefficiency") else 2
            return list(range(first, len(self.steps)))
        wanted = "Logical" if error == "Logical Fallacy" else "Attribution"
        numbers = [number for number, kind in enumerate(self.kinds, start=1) if kind == wanted]
        return numbers[:-1] if error == "Premature Attribution" else numbers


@dataclass(frozen=True)
class TeacherSettings:
    """Set how a teacher writes and checks steps."""

    errors_each: Annotated[
        Natural,
        Setting(
            "Wrong steps per question that a teacher writes, before the audit.",
            ours="7.6K of 5,060 questions in §3.3, Table 7",
        ),
    ] = 2
    correct_each: Annotated[
        Natural,
        Setting(
            "Right steps per question that a teacher writes.",
            ours="3.9K of 5,060 questions in §3.3",
        ),
    ] = 1
    audit: Annotated[
        bool,
        Setting(
            "Let the teacher check ideal steps and labels, and drop those that it rejects.",
            code="released code",
        ),
    ] = True
    temperature: Annotated[
        float,
        Setting(
            "Temperature of the teacher for Unsupported, Off-topic and Redundancy. It is 0 for all others.",
            code="released code",
        ),
    ] = 0.7
    max_tokens: Annotated[
        Count, Setting("Maximum tokens of a teacher's reply.", ours="our choice")
    ] = 2000
    max_step_tokens: Annotated[
        Count, Setting("Maximum tokens of a step with an error.", code="released code")
    ] = 512


@dataclass(frozen=True)
class Teacher:
    """The teacher of the evaluator of a method."""

    method: Safe
    settings: TeacherSettings

    @property
    def meanings(self) -> Mapping[str, str]:
        return errors(self.method.labels)

    @property
    def findings(self) -> tuple[str, ...]:
        """Return the possible errors of a finished answer."""
        return (*self.meanings, MISLEADING, UNANSWERABLE)

    async def teach(self, question: Question, chance: random.Random) -> list[Labeled]:
        """Label steps of one question. Each label has its step, or the reason why there is none.

        Raises NotTaught: the question has no ideal solution.
        """
        ideal = await self.solve(question, chance)
        right = sorted(
            chance.sample(
                range(len(ideal.steps)), min(self.settings.correct_each, len(ideal.steps))
            )
        )
        names = [name for name in self.meanings if ideal.numbers(name)]
        wrong = chance.sample(names, min(self.settings.errors_each, len(names)))
        labelled = list[Labeled]()
        for label, index in [
            *((CORRECT, index) for index in right),
            *((name, None) for name in wrong),
        ]:
            number = sample_late(ideal.numbers(label), chance) if index is None else index + 1
            try:
                text = (
                    ideal.steps[number - 1]
                    if label == CORRECT
                    else await self.corrupt(label, number, ideal, chance)
                )
                labelled.append((label, await self.judge_step(label, number, text, ideal)))
            except NotTaught as why:
                labelled.append((label, str(why)))
        return labelled

    async def solve(self, question: Question, chance: random.Random) -> Ideal:
        """Plan the solution, carry it out on the gold passages, and check it."""
        passages = self.method.sample_passages(question)
        gold = {
            n: passage
            for n, passage in enumerate(passages, start=1)
            if passage.id in question.support
        }
        if not gold or not question.answers:
            raise NotTaught("no gold passage or answer")
        hops = [hop.question for hop in question.decomposition]
        plan = (await self.ask("teach/plan", Plan, {"question": question.text, "hops": hops})).plan
        shared = {
            "question": question.text,
            "answer": question.answers[0],
            "passages": numbered_text(gold.values()),
        }
        claims = (await self.ask("teach/solve", Claims, {"plan": plan, **shared})).steps
        if len(claims) != len(plan):
            raise NotTaught("the solution does not have one step for each step of the plan")
        # the latter for the check, where only the gold passages are numbered
        steps, lines = list[str](), list[str]()
        for step, claim in zip(plan, claims, strict=True):
            number, cited = 0, ""
            if step.kind == "Attribution":
                if not 1 <= claim.passage <= len(gold):
                    raise NotTaught("an ideal step cites no gold passage")
                number, cited = [*gold][claim.passage - 1], f"Passage {claim.passage}: "
            steps.append(_format_step(claim.claim, step.kind, number, chance))
            lines.append(step_line(len(steps), f"{cited}{sentence(claim.claim)} ({step.kind})"))
        answer = format_answer(question.answers[0])
        lines.append(step_line(len(plan) + 1, answer))
        if (
            self.settings.audit
            and not (await self.ask("teach/check", Agreement, {"steps": lines, **shared})).agree
        ):
            raise NotTaught("the ideal steps did not pass the check")
        kinds, texts = tuple(step.kind for step in plan), tuple(claim.claim for claim in claims)
        values = self.method.prompt_values(question, passages)
        return Ideal(question.text, values["passages"], kinds, texts, (*steps, answer))

    async def corrupt(self, error: str, number: int, ideal: Ideal, chance: random.Random) -> str:
        """Replace a step by one with this error. Raises NotTaught: the teacher wrote the ideal step."""
        final = error in FINAL
        values = {
            "error": error, "meaning": self.meanings[error], "final": final, "number": number,
            "question": ideal.question, "passages": ideal.passages, "steps": ideal.lines(len(ideal.steps)),
        }  # fmt: skip
        claim = await self.ask(
            "teach/corrupt", Claim, values, max_tokens=self.settings.max_step_tokens,
            temperature=self.settings.temperature if error in SAMPLED else 0.0,
        )  # fmt: skip
        statement = _strip_step(claim.claim)
        same = ideal.claims[number - 1] if number <= len(ideal.claims) else ""
        kind = "Attribution" if claim.passage else "Logical"
        text = (
            format_answer(statement)
            if final
            else _format_step(claim.claim, kind, claim.passage, chance)
        )
        if normalize(statement) == normalize(same) or text == ideal.steps[number - 1]:
            raise NotTaught("the step with the error is the ideal one")
        return text

    async def judge_step(self, label: str, number: int, text: str, ideal: Ideal) -> JudgedStep:
        """Return a step with the teacher's feedback. Raises NotTaught: the audit does not agree with it."""
        right = label == CORRECT
        following = ideal.steps[number] if number < len(ideal.steps) else ""
        shared = {
            "label": label, "meaning": "no error type applies" if right else self.meanings[label],
            "question": ideal.question, "passages": ideal.passages, "steps": ideal.lines(number - 1),
            "step": step_line(number, text),
        }  # fmt: skip
        values = {**shared, "ideal": "" if right else ideal.steps[number - 1], "next": following}
        feedback = await self.ask("teach/feedback", Feedback, values)
        audited = {**shared, "diagnosis": feedback.diagnosis}
        if self.settings.audit and not (await self.ask("teach/audit", Agreement, audited)).agree:
            raise NotTaught("the auditor does not agree")
        verdict = StepVerdict(label, feedback.diagnosis, feedback.guidance)
        return JudgedStep(number, ideal.steps[: number - 1], text, verdict)

    async def hard_case(
        self, question: Question, answer: str, attempts: Sequence[Json]
    ) -> list[Labeled]:
        """Return the first error of a wrong answer that an evaluator accepted, with the right verdict on it.

        attempts: the notes of `Safe.answer`.

        Raises NotTaught: the teacher finds no error, or not the same one twice.
        """
        accepted = [attempt for attempt in attempts if attempt["accepted"]]
        lines = [
            {
                "text": step_line(number, one["text"]),
                "guidance": (one["verdict"] or {}).get("guidance", ""),
            }
            for number, one in enumerate(accepted, start=1)
        ]
        shared = self.method.prompt_values(question, self.method.sample_passages(question))
        values = {
            "errors": self.meanings, "misleading": MISLEADING, "unanswerable": UNANSWERABLE, "steps": lines,
            "answer": question.answers[0], "given": answer, **shared,
        }  # fmt: skip

        first = await self.ask("teach/first_error", Finding, {**values, "earlier": None})
        second = await self.ask("teach/first_error", Finding, {**values, "earlier": first})
        if second.step != first.step:
            raise NotTaught("the teacher finds the error in another step the second time")
        if second.error_type == UNANSWERABLE:
            raise NotTaught("the passages do not lead to the right answer")
        # the guidance belongs to the verdict on the step before
        is_misleading = second.error_type == MISLEADING
        number = second.step - is_misleading
        if not 1 <= number <= len(accepted):
            raise NotTaught("there is no such step")
        step = accepted[number - 1]
        verdict = StepVerdict(second.error_type, second.diagnosis, second.guidance)
        if is_misleading:
            if not step["verdict"]:
                raise NotTaught("the step before had no guidance")
            verdict = StepVerdict(**{**step["verdict"], "guidance": second.guidance})
        before = tuple(each["text"] for each in accepted[: number - 1])
        return [(verdict.error_type, JudgedStep(number, before, step["text"], verdict))]

    async def ask(
        self,
        template: str,
        kind: type[R],
        values: Mapping[str, object],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
    ) -> R:
        """Return the parsed reply. Asks twice. Raises NotTaught: neither reply can be parsed."""
        schema = schemas(self.method.max_feedback_characters, self.findings)[kind]
        for again in (False, True):
            prompt = render(template, again=again, **values)
            reply = await Generate(
                prompt,
                max_tokens or self.settings.max_tokens,
                schema=schema,
                role=TEACHER,
                temperature=temperature,
            )
            if (parsed := self.read(kind, reply.text)) is not None:
                return parsed
        raise NotTaught(f"a reply to {template} cannot be read")

    def read(self, kind: type[R], text: str) -> R | None:
        """Return the first JSON object of a reply, or None if it is not of this kind."""
        try:
            reply = kind.model_validate(read_object(text))
        except ValueError:
            # also if it is not JSON or not valid
            return None
        if isinstance(reply, Plan):
            kinds = [step.kind for step in reply.plan]
            return reply if kinds[-1:] == ["Logical"] and "Attribution" in kinds else None
        return (
            None if isinstance(reply, Finding) and reply.error_type not in self.findings else reply
        )


def _format_step(claim: str, kind: str, passage: int, chance: random.Random) -> str:
    """Return a claim as a step. An attribution cites its passage in one of several forms, as in the released code."""
    statement = _strip_step(claim)
    if kind == "Attribution":
        if CITED.search(statement):
            raise NotTaught("a claim names a passage")
        statement = chance.choice(WORDINGS).format(n=passage, claim=statement)
    return f"{sentence(statement)} ({kind})"


def _strip_step(claim: str) -> str:
    """Remove the tag and the number of a step."""
    return TAG.sub("", re.sub(r"^Step \d+:\s*", "", claim)).strip()


class WrongAnswer(NamedTuple):
    """A wrong answer of SAFE, with the attempts in its notes."""

    answer: str
    attempts: Sequence[Json]


def load_wrong_answers(run: str | None) -> dict[str, WrongAnswer] | None:
    """Return the wrong answers of a run with method=safe by question. None: no run. Raises DataError: it is damaged."""
    if run is None:
        return None
    wrong, profile = dict[str, WrongAnswer](), Metrics.read(Path(run)).profile
    for traced in read_trace(Path(run)):
        prediction, question = traced.prediction, traced.question
        attempts, answer = prediction.notes.get("attempts"), prediction.scored_answer or ""
        if (
            prediction.error is None
            and attempts
            and score(answer, question.answers, profile)["em"] < 1
        ):
            wrong[question.id] = WrongAnswer(answer, attempts)
    return wrong


@dataclass(frozen=True)
class SafeTeacher(Safe, TeacherSettings):
    """Labels steps for SAFE's evaluator, for `kgqa collect safe`. It answers no questions."""

    seed: Annotated[int, Setting("Random seed of the steps and errors.", code="released code")] = 42
    answers_of: Annotated[
        str | None,
        Setting(
            "A run with method=safe: find the first error of its wrong answers. null: label steps of new solutions."
        ),
    ] = None
    wrong_answers: Annotated[
        Mapping[str, WrongAnswer] | None, Setting("The wrong answers of `answers_of`.")
    ] = field(kw_only=True)

    answers_questions: ClassVar[bool] = False
    uses: ClassVar[frozenset[Need]] = frozenset({"model"})
    separate_roles: ClassVar[Mapping[str, str]] = {}

    async def answer(self, question: Question) -> Answer:
        """Note the labeled steps, or why there are none. Flag: `not_taught`."""
        teacher = Teacher(self, self)
        try:
            if self.wrong_answers is None:
                generator = random.Random(f"{self.seed}/{question.id}/teach")  # noqa: S311
                labeled = await teacher.teach(question, generator)
            else:
                labeled = await teacher.hard_case(question, *self.wrong_answers[question.id])
        except NotTaught as why:
            return Answer("", flags={"not_taught": 1}, notes={"why": str(why)})
        return Answer("", notes={"labeled": as_json(labeled)})


def read_labeled(notes: JsonObject, place: str) -> list[Labeled] | NotTaught:
    """Read the notes of `SafeTeacher.answer`."""
    if "why" in notes:
        return NotTaught(notes["why"])
    labeled: list[Labeled] = check_json(list[Labeled], notes["labeled"], place)
    return labeled
