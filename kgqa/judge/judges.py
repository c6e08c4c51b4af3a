"""A judge and a panel of judges. After two replies that cannot be read there is no verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kgqa.calls import Generate, settle
from kgqa.errors import ConfigError, nearest
from kgqa.judge import ROLE
from kgqa.judge.forms import FORMS, Form, FormName, Label
from kgqa.prompting import render
from kgqa.scoring.metrics import exact_match
from kgqa.util.redaction import describe_error
from kgqa.util.validators import Count


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to be judged, with the gold answer and its aliases."""

    question: str
    golds: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Vote:
    """The verdict of one judge, or None, and its replies."""

    label: Label | None
    replies: tuple[str, ...]  # a second one if the first had no verdict
    error: str | None = None  # of a call that failed


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on an answer. None: unscored."""

    label: Label | None
    votes: tuple[Vote, ...] = ()  # empty: an exact match that was not sent


class AnyJudge(Protocol):
    @property
    def roles(self) -> Mapping[str, str | None]:
        """Return the roles, each with its preset[@engine] or None for the run's model."""
        ...

    @property
    def templates(self) -> tuple[str, ...]: ...

    async def judge(self, judged: JudgedAnswer) -> Verdict: ...


@dataclass(frozen=True)
class Judge:
    """A judge of one model. `skip_exact`: exact matches are correct and are not sent."""

    form: FormName
    model: str | None
    max_tokens: Count
    skip_exact: bool

    @property
    def roles(self) -> Mapping[str, str | None]:
        return {ROLE: self.model}

    @property
    def templates(self) -> tuple[str, ...]:
        return (FORMS[self.form].template,)

    async def judge(self, judged: JudgedAnswer) -> Verdict:
        if self.skip_exact and _is_exact(judged):
            return Verdict("correct")
        vote = await _vote(FORMS[self.form], judged, ROLE, self.max_tokens)
        return Verdict(vote.label, (vote,))


@dataclass(frozen=True)
class Panel:
    """Several judges, each `form` or `form:preset[@engine]`. Their verdict needs more than half of all judges."""

    members: tuple[str, ...]
    max_tokens: Count
    skip_exact: bool

    def __post_init__(self) -> None:
        if len(self.members) < 2 or len(set(self.members)) < len(self.members):
            raise ConfigError(f"judge.members={list(self.members)}: name at least two judges, each once")
        for member in self.members:
            if (form := member.partition(":")[0]) not in FORMS:
                raise ConfigError(f"judge.members: {member!r} is not form[:preset[@engine]]. {nearest(form, FORMS)}")

    @property
    def roles(self) -> Mapping[str, str | None]:
        return {f"{ROLE}_{n}": member.partition(":")[2] or None for n, member in enumerate(self.members, start=1)}

    @property
    def templates(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form.template for form in self._forms))

    @property
    def _forms(self) -> tuple[Form, ...]:
        return tuple(FORMS[member.partition(":")[0]] for member in self.members)

    async def judge(self, judged: JudgedAnswer) -> Verdict:
        if self.skip_exact and _is_exact(judged):
            return Verdict("correct")
        polls = (_vote(form, judged, role, self.max_tokens) for form, role in zip(self._forms, self.roles, strict=True))
        votes = tuple(
            Vote(None, (), describe_error(vote)) if isinstance(vote, Exception) else vote
            for vote in await settle(*polls)
        )
        counts = Counter(vote.label for vote in votes if vote.label)
        label, count = max(counts.items(), key=lambda item: item[1], default=(None, 0))
        return Verdict(label if 2 * count > len(votes) else None, votes)


async def _vote(form: Form, judged: JudgedAnswer, role: str, max_tokens: int) -> Vote:
    replies: list[str] = []
    for again in (False, True):
        prompt = render(form.template, question=judged.question, golds=judged.golds, answer=judged.answer, again=again)
        reply = await Generate(prompt, max_tokens, schema=form.schema, role=role)
        replies.append(reply.text)
        if label := form.read(reply.text):
            return Vote(label, tuple(replies))
    return Vote(None, tuple(replies))


def _is_exact(judged: JudgedAnswer) -> bool:
    return any(exact_match(judged.answer, gold) for gold in judged.golds)
