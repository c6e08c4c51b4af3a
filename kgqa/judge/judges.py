"""A judge and a panel of judges. After two replies that cannot be read there is no verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class AnyJudge(ABC):
    """One or several judges. `skip_exact`: exact matches are correct and are not sent."""

    max_tokens: Count
    skip_exact: bool

    @property
    @abstractmethod
    def named(self) -> Mapping[str, tuple[str, str | None]]:
        """Return the form and the preset[@engine] of each role. None: the run's model."""

    @property
    def roles(self) -> Mapping[str, str | None]:
        return {role: model for role, (_, model) in self.named.items()}

    @property
    def templates(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(FORMS[form].template for form, _ in self.named.values()))

    async def judge(self, judged: JudgedAnswer) -> Verdict:
        """Return the verdict of more than half of the judges. A judge that fails has none.

        Raises:
            EngineError: the call of a single judge failed.
        """
        if self.skip_exact and any(exact_match(judged.answer, gold) for gold in judged.golds):
            return Verdict("correct")
        polls = await settle(*(self.vote(role, FORMS[form], judged) for role, (form, _) in self.named.items()))
        if len(polls) == 1 and isinstance(polls[0], Exception):
            raise polls[0]
        votes = tuple(Vote(None, (), describe_error(one)) if isinstance(one, Exception) else one for one in polls)
        counts = Counter(vote.label for vote in votes if vote.label)
        label, count = max(counts.items(), key=lambda item: item[1], default=(None, 0))
        return Verdict(label if 2 * count > len(votes) else None, votes)

    async def vote(self, role: str, form: Form, judged: JudgedAnswer) -> Vote:
        replies, values = list[str](), {"question": judged.question, "golds": judged.golds, "answer": judged.answer}
        for again in (False, True):
            prompt = render(form.template, **values, again=again)
            replies.append((await Generate(prompt, self.max_tokens, schema=form.schema, role=role)).text)
            if label := form.read(replies[-1]):
                return Vote(label, tuple(replies))
        return Vote(None, tuple(replies))


@dataclass(frozen=True)
class Judge(AnyJudge):
    """A judge of one model."""

    form: FormName
    model: str | None

    @property
    def named(self) -> Mapping[str, tuple[str, str | None]]:
        return {ROLE: (self.form, self.model)}


@dataclass(frozen=True)
class Panel(AnyJudge):
    """Several judges, each `form` or `form:preset[@engine]`."""

    members: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.members) < 2 or len(set(self.members)) < len(self.members):
            raise ConfigError(f"judge.members={list(self.members)}: name at least two judges, each once")
        for member in self.members:
            if (form := member.partition(":")[0]) not in FORMS:
                raise ConfigError(f"judge.members: {member!r} is not form[:preset[@engine]]. {nearest(form, FORMS)}")

    @property
    def named(self) -> Mapping[str, tuple[str, str | None]]:
        split = (member.partition(":") for member in self.members)
        return {f"{ROLE}_{number}": (form, model or None) for number, (form, _, model) in enumerate(split, start=1)}
