"""Judges of answers: a model, a panel of models, or a score. The forms of the models' prompts and replies.

A reply must be one of a fixed set of verdicts, which is never searched for inside a text, because "incorrect" and "not
correct" contain "correct". After two replies that cannot be read there is no verdict.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from kgqa.artifacts.verdicts import Vote
from kgqa.calls import Generate, settle
from kgqa.errors import ConfigError, nearest
from kgqa.judge import ROLE
from kgqa.prompting import render
from kgqa.prompting.json_replies import object_schema, read_object
from kgqa.scoring.metrics import exact_match
from kgqa.types import Json, Passage, Prompt
from kgqa.util.redaction import describe_error, function_line
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

Label = Literal["correct", "incorrect", "not_attempted"]
LABELS: tuple[str, ...] = get_args(Label)
FormName = Literal["three_way", "kgp", "safe", "faithful"]
ScoreName = Literal["em", "containment"]
# the temperature of a repeated verdict
SAMPLED = 1.0


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a judge's prompt and reply.

    key: the key of the verdict in the reply's JSON object. None: the reply is the verdict.
    vocabulary: the label of each verdict, in lower case without spaces and punctuation.
    sees_passages: the judge sees the passages that the method used, instead of the gold answers.
    """

    template: str
    key: str | None
    schema: str | None
    vocabulary: Mapping[str, Label]
    sees_passages: bool = False

    @property
    def compared(self) -> str:
        """Return the value of the prompt with which the answer is compared."""
        return "passages" if self.sees_passages else "golds"

    def read(self, reply: str) -> Label | None:
        """Return the label of a reply, ignoring case, spaces and punctuation. None: not in the vocabulary."""
        verdict: Json = reply
        if self.key is not None and "{" in reply:
            verdict = (read_object(reply) or {}).get(self.key)
        if not isinstance(verdict, str):
            return None
        labels = {_keep_letters(word): label for word, label in self.vocabulary.items()}
        return labels.get(_keep_letters(verdict))


def _keep_letters(word: str) -> str:
    return re.sub(r"[\W_]+", "", word.casefold())


FORMS: Mapping[str, Form] = {
    "three_way": Form(
        "judge/three_way",
        "verdict",
        object_schema(
            verdict={"type": "string", "enum": ["correct", "incorrect", "not_attempted"]}
        ),
        {"correct": "correct", "incorrect": "incorrect", "not_attempted": "not_attempted"},
    ),
    # KGP, Listing 5: one digit, without a schema, because some engines accept only schemas of objects
    "kgp": Form("judge/kgp", None, None, {"1": "correct", "0": "incorrect"}),
    # SAFE, Figure 14: two keys, the verdict before its reason
    "safe": Form(
        "judge/safe",
        "is_correct",
        object_schema(
            is_correct={"type": "string", "enum": ["correct", "wrong"]},
            reasoning={"type": "string", "maxLength": 400},
        ),
        {"correct": "correct", "wrong": "incorrect"},
    ),
    "faithful": Form(
        "judge/faithful",
        "verdict",
        object_schema(
            verdict={"type": "string", "enum": ["supported", "unsupported", "not_attempted"]}
        ),
        {"supported": "correct", "unsupported": "incorrect", "not_attempted": "not_attempted"},
        sees_passages=True,
    ),
}


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to be judged, with the gold answer and its aliases.

    passages: the passages that the method used. shares: EM and containment, from 0 to 1.
    """

    question: str
    golds: tuple[str, ...]
    answer: str
    passages: tuple[Passage, ...] = ()
    shares: Mapping[ScoreName, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on an answer. None: unscored."""

    label: str | None
    # empty: an exact match that was not sent
    votes: tuple[Vote, ...] = ()


def render_prompt(
    form: Form, judged: JudgedAnswer, *, again: bool = False, swapped: bool = False
) -> Prompt:
    """Render the prompt of a form. Raises as `render`."""
    compared = {form.compared: getattr(judged, form.compared)}
    return render(
        form.template,
        question=judged.question,
        answer=judged.answer,
        **compared,
        again=again,
        swapped=swapped,
    )


class AnyJudge(ABC):
    """Gives a verdict on each answer."""

    @property
    @abstractmethod
    def role_forms(self) -> Mapping[str, tuple[str, str | None]]:
        """Return the form and the preset[@engine] of each role. None: the run's model. Empty: no model is called."""

    @abstractmethod
    async def judge(self, judged: JudgedAnswer) -> Verdict:
        """Return the verdict on an answer."""

    @property
    def roles(self) -> Mapping[str, str | None]:
        return {role: model for role, (_, model) in self.role_forms.items()}

    @property
    def templates(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(self.find_form(form).template for form, _ in self.role_forms.values())
        )

    def find_form(self, name: str) -> Form:
        """Return the form of a name in `role_forms`. A judge of the user can have its own."""
        return FORMS[name]

    @property
    def sees_passages(self) -> bool:
        return any(self.find_form(form).sees_passages for form, _ in self.role_forms.values())


def check_labels(judge: AnyJudge) -> None:
    """Raise ConfigError if a form of the judge gives a verdict an unknown label."""
    for name, _ in judge.role_forms.values():
        for word, label in judge.find_form(name).vocabulary.items():
            if label not in LABELS:
                raise ConfigError(
                    f"{function_line(judge.find_form)}: the form's vocabulary has {word!r}: {label!r}. "
                    f"Labels are {', '.join(map(repr, LABELS))}"
                )


@dataclass(frozen=True)
class ScoreJudge(AnyJudge):
    """A score as a judge, so that it can be calibrated like one. Its verdict is correct for 1."""

    score: Annotated[ScoreName, Setting("The score: em or containment.")]

    @property
    def role_forms(self) -> Mapping[str, tuple[str, str | None]]:
        return {}

    async def judge(self, judged: JudgedAnswer) -> Verdict:
        label: Label = "correct" if judged.shares.get(self.score) == 1 else "incorrect"
        return Verdict(label, (Vote(verdict=label, replies=()),))


@dataclass(frozen=True)
class ModelJudge(AnyJudge):
    """One or several models. `skip_exact`: exact matches are correct and are not sent."""

    max_tokens: Annotated[Count, Setting("Maximum tokens of a reply.", ours="our choice")] = 256
    skip_exact: Annotated[
        bool,
        Setting(
            "Count an answer that equals a gold one after normalization as correct, without sending it."
        ),
    ] = False

    async def judge(self, judged: JudgedAnswer) -> Verdict:
        """Return the verdict of more than half of the judges. A judge that fails has none.

        Raises:
            EngineError: the call of a single judge failed.
        """
        if self.skip_exact and any(exact_match(judged.answer, gold) for gold in judged.golds):
            return Verdict("correct")
        return await self.poll(judged)

    @property
    def forms(self) -> list[Form]:
        return [self.find_form(name) for name, _ in self.role_forms.values()]

    @property
    def prompt_values(self) -> Mapping[str, tuple[str, ...]]:
        """Return the values that the prompt of each form should show, by template."""
        return {form.template: ("question", "answer", form.compared) for form in self.forms}

    async def poll(
        self, judged: JudgedAnswer, *, swapped: bool = False, temperature: float = 0.0
    ) -> Verdict:
        """Return the verdict on an answer that is sent. `swapped`: it is shown before what it is compared with.

        Raises as `judge`.
        """
        votes = (
            self.vote(role, self.find_form(form), judged, swapped=swapped, temperature=temperature)
            for role, (form, _) in self.role_forms.items()
        )
        polls = await settle(*votes)
        if len(polls) == 1 and isinstance(polls[0], Exception):
            raise polls[0]
        votes_read = tuple(
            Vote(verdict=None, replies=(), error=describe_error(one))
            if isinstance(one, Exception)
            else one
            for one in polls
        )
        ((label, count),) = Counter(vote.verdict for vote in votes_read).most_common(1)
        return Verdict(label if 2 * count > len(votes_read) else None, votes_read)

    async def vote(
        self,
        role: str,
        form: Form,
        judged: JudgedAnswer,
        *,
        swapped: bool = False,
        temperature: float = 0.0,
    ) -> Vote:
        replies = list[str]()
        for again in (False, True):
            prompt = render_prompt(form, judged, again=again, swapped=swapped)
            call = Generate(
                prompt, self.max_tokens, schema=form.schema, role=role, temperature=temperature
            )
            replies.append((await call).text)
            if label := form.read(replies[-1]):
                return Vote(verdict=label, replies=tuple(replies))
        return Vote(verdict=None, replies=tuple(replies))


@dataclass(frozen=True)
class Judge(ModelJudge):
    """A judge of one model."""

    form: Annotated[FormName, Setting("Form of the verdict and its prompt.")] = field(kw_only=True)
    model: Annotated[
        str | None,
        Setting("Preset or preset@engine. null: roles.judge, otherwise the command's model."),
    ] = None

    @property
    def role_forms(self) -> Mapping[str, tuple[str, str | None]]:
        return {ROLE: (self.form, self.model)}


@dataclass(frozen=True)
class Panel(ModelJudge):
    """Several judges, each `form` or `form:preset[@engine]`."""

    members: Annotated[
        tuple[str, ...],
        Setting(
            "Judges: each form, or form:preset[@engine], e.g. [three_way:qwen3_8b,three_way:gemma3_12b_it].",
            ours="our choice",
        ),
    ] = ("three_way", "kgp", "safe")

    def __post_init__(self) -> None:
        if len(self.members) < 2 or len(set(self.members)) < len(self.members):
            raise ConfigError(
                f"judge.members={list(self.members)}: name at least two judges, each once"
            )
        for member in self.members:
            if (form := member.partition(":")[0]) not in FORMS:
                raise ConfigError(
                    f"judge.members: {member!r} is not form[:preset[@engine]]. {nearest(form, FORMS)}"
                )

    @property
    def role_forms(self) -> Mapping[str, tuple[str, str | None]]:
        split = (member.partition(":") for member in self.members)
        return {
            f"{ROLE}_{number}": (form, model or None)
            for number, (form, _, model) in enumerate(split, start=1)
        }
