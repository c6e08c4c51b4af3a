"""A judge and a panel of judges, and the forms of their prompts and replies.

A reply must be one of a fixed set of verdicts, which is never searched for inside a text, because "incorrect" and "not
correct" contain "correct". After two replies that cannot be read there is no verdict.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from kgqa.artifacts.verdicts import Vote
from kgqa.calls import Generate, settle
from kgqa.errors import ConfigError, nearest
from kgqa.judge import ROLE
from kgqa.prompting import render
from kgqa.prompting.json_replies import object_schema, read_object
from kgqa.scoring.metrics import exact_match
from kgqa.types import Json
from kgqa.util.redaction import describe_error
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

Label = Literal["correct", "incorrect", "not_attempted"]
FormName = Literal["three_way", "kgp", "safe"]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a judge's prompt and reply.

    key: the key of the verdict in the reply's JSON object. None: the reply is the verdict.
    vocabulary: the label of each verdict, in lower case without spaces and punctuation.
    """

    template: str
    key: str | None
    schema: str | None
    vocabulary: Mapping[str, Label]

    def read(self, reply: str) -> Label | None:
        """Return the label of a reply, ignoring case, spaces and punctuation. None: not in the vocabulary."""
        verdict: Json = reply
        if self.key is not None and "{" in reply:
            verdict = (read_object(reply) or {}).get(self.key)
        return self.vocabulary.get(re.sub(r"[\W_]+", "", verdict.casefold())) if isinstance(verdict, str) else None


FORMS: Mapping[str, Form] = {
    "three_way": Form(
        "judge/three_way",
        "verdict",
        object_schema(verdict={"type": "string", "enum": ["correct", "incorrect", "not_attempted"]}),
        {"correct": "correct", "incorrect": "incorrect", "notattempted": "not_attempted"},
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
}


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to be judged, with the gold answer and its aliases."""

    question: str
    golds: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on an answer. None: unscored."""

    label: str | None
    votes: tuple[Vote, ...] = ()  # empty: an exact match that was not sent


@dataclass(frozen=True)
class AnyJudge(ABC):
    """One or several judges. `skip_exact`: exact matches are correct and are not sent."""

    max_tokens: Annotated[Count, Setting("Maximum tokens of a reply.", ours="our choice")] = 256
    skip_exact: Annotated[
        bool, Setting("Count an answer that equals a gold one after normalization as correct, without sending it.")
    ] = False

    @property
    @abstractmethod
    def role_forms(self) -> Mapping[str, tuple[str, str | None]]:
        """Return the form and the preset[@engine] of each role. None: the run's model."""

    @property
    def roles(self) -> Mapping[str, str | None]:
        return {role: model for role, (_, model) in self.role_forms.items()}

    @property
    def templates(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.find_form(form).template for form, _ in self.role_forms.values()))

    def find_form(self, name: str) -> Form:
        """Return the form of a name in `role_forms`. A judge of the user can have its own."""
        return FORMS[name]

    async def judge(self, judged: JudgedAnswer) -> Verdict:
        """Return the verdict of more than half of the judges. A judge that fails has none.

        Raises:
            EngineError: the call of a single judge failed.
        """
        if self.skip_exact and any(exact_match(judged.answer, gold) for gold in judged.golds):
            return Verdict("correct")
        polls = await settle(
            *(self.vote(role, self.find_form(form), judged) for role, (form, _) in self.role_forms.items())
        )
        if len(polls) == 1 and isinstance(polls[0], Exception):
            raise polls[0]
        votes = tuple(
            Vote(verdict=None, replies=(), error=describe_error(one)) if isinstance(one, Exception) else one
            for one in polls
        )
        ((label, count),) = Counter(vote.verdict for vote in votes).most_common(1)
        return Verdict(label if 2 * count > len(votes) else None, votes)

    async def vote(self, role: str, form: Form, judged: JudgedAnswer) -> Vote:
        replies, values = list[str](), {"question": judged.question, "golds": judged.golds, "answer": judged.answer}
        for again in (False, True):
            prompt = render(form.template, **values, again=again)
            replies.append((await Generate(prompt, self.max_tokens, schema=form.schema, role=role)).text)
            if label := form.read(replies[-1]):
                return Vote(verdict=label, replies=tuple(replies))
        return Vote(verdict=None, replies=tuple(replies))


@dataclass(frozen=True)
class Judge(AnyJudge):
    """A judge of one model."""

    form: Annotated[FormName, Setting("Form of the verdict and its prompt.")] = field(kw_only=True)
    model: Annotated[
        str | None, Setting("Preset or preset@engine. null: roles.judge, otherwise the command's model.")
    ] = None

    @property
    def role_forms(self) -> Mapping[str, tuple[str, str | None]]:
        return {ROLE: (self.form, self.model)}


@dataclass(frozen=True)
class Panel(AnyJudge):
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
            raise ConfigError(f"judge.members={list(self.members)}: name at least two judges, each once")
        for member in self.members:
            if (form := member.partition(":")[0]) not in FORMS:
                raise ConfigError(f"judge.members: {member!r} is not form[:preset[@engine]]. {nearest(form, FORMS)}")

    @property
    def role_forms(self) -> Mapping[str, tuple[str, str | None]]:
        split = (member.partition(":") for member in self.members)
        return {f"{ROLE}_{number}": (form, model or None) for number, (form, _, model) in enumerate(split, start=1)}
