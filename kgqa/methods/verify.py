"""SAFE's verification of benchmarks (arXiv 2604.01993, §3.2): do the gold passages have a path to the gold answer?

The verifier extracts the triples of each gold passage (Figure 20), adds the ones it missed in up to two rounds (Figure
21), merges names of one entity (Figure 22), and looks for the path to the gold answer (Figure 23). A question without a
path is noise. All calls have a JSON schema. Any reply is accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

from kgqa.calls import Generate, gather
from kgqa.errors import DataError
from kgqa.prompting import render
from kgqa.prompting.json_replies import TEXT, TRIPLE, list_schema, object_schema
from kgqa.protocols import Need
from kgqa.types import Answer, Json, Passage, Question
from kgqa.util.jsonio import JsonError, decode_first
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural

Verdict = Literal["valid", "noise", "unverified"]
Triple = tuple[str, str, str]
_NAMES = {"type": "array", "items": TEXT, "minItems": 2}
# a list of lists, or an empty list
_LIST = re.compile(r"\[\s*(?=[\[\]])")


@dataclass(frozen=True)
class Verify:
    """Finds the questions of a benchmark that their gold passages do not answer. It answers no questions.

    The verdict is a flag (`valid`, `noise` or `unverified`), so that `dataset.verified=` finds it in predictions.jsonl.
    The path and the graph that it rests on are notes.
    """

    gleaning_rounds: Annotated[
        Natural,
        Setting(
            "Maximum rounds that look for further triples of a passage. A round without a new triple is the last "
            "one (the released code).",
            paper="§3.2",
        ),
    ] = 2
    literal_characters: Annotated[
        Count,
        Setting(
            "Maximum characters of an entity. Longer texts are literals.", code="released code"
        ),
    ] = 100
    unparsable: Annotated[
        Literal["unverified", "noise"],
        Setting(
            "Verdict if a path cannot be parsed twice: unverified | noise (the released code).",
            ours="our choice",
        ),
    ] = "unverified"
    list: Annotated[
        str | None,
        Setting(
            "A file of flagged questions, one per line, as the authors publish them. No model is called."
        ),
    ] = None
    max_triple_tokens: Annotated[
        Count,
        Setting(
            "Maximum tokens of extraction and of gleaning. Released: 6,000 and 3,000.",
            ours="our choice",
        ),
    ] = 3000
    max_group_tokens: Annotated[
        Count, Setting("Maximum tokens of a group of triples. Released: 7,000.", ours="our choice")
    ] = 3000
    max_path_tokens: Annotated[
        Count, Setting("Maximum tokens of a path.", code="released code")
    ] = 6000
    max_explanation_characters: Annotated[
        Count,
        Setting(
            "Maximum characters of an explanation, if the engine follows a JSON schema.",
            ours="our choice",
        ),
    ] = 400

    flagged: Annotated[frozenset[str] | None, Setting("The questions in `list`.")] = field(
        kw_only=True
    )

    answers_questions: ClassVar[bool] = False

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset() if self.flagged is not None else frozenset({"model"})

    def check(self, questions: Iterable[Question]) -> Iterator[str]:
        """Yield a warning for lines of the list that match no question of the dataset.

        Raises DataError: no line matches, or there is nothing to verify.
        """
        texts, has_gold_passages = set[str](), False
        for question in questions:
            if not question.answers:
                raise DataError(
                    f"question {question.id}: it has no gold answer to verify. Choose another dataset="
                )
            texts.add(" ".join(question.text.split()))
            has_gold_passages = has_gold_passages or bool(question.support)
        if self.flagged is None:
            if not has_gold_passages:
                raise DataError("no question names its gold passages, so they cannot be verified")
            return
        unmatched = sorted(self.flagged - texts)
        if len(unmatched) == len(self.flagged):
            raise DataError(
                f"method.list={self.list}: none of its {len(unmatched):,} questions is in the dataset, such as "
                f"{unmatched[0]!r:.80}. Is it for another dataset= or dataset.split=?"
            )
        if unmatched:
            yield (
                f"{self.list}: {len(unmatched):,} of {len(self.flagged):,} lines match no question: {unmatched[0]}, …"
            )

    async def answer(self, question: Question) -> Answer:
        """Look for a path to the first gold answer in the gold passages of a question, unless there is a list.

        Flags: the verdict, `unparsable_triples`, `cut_triples`, `malformed_triple`, `unparsable_groups`, `cut_groups`,
        `unparsable_path` (for each reply), `malformed_path`, `path_off_graph` (one of its triples is not in the graph),
        `empty_path` (of a valid one), `missing_passage`. Without a path: `no_gold_passage`, `empty_graph`.
        """
        if self.flagged is not None:
            verdict: Verdict = (
                "noise" if " ".join(question.text.split()) in self.flagged else "valid"
            )
            return Answer("", flags={verdict: 1})
        passages = gold_passages(question)
        missing = question.support - {passage.id for passage in passages}
        flags = Counter[str](missing_passage=len(missing), no_gold_passage=not passages)
        by_passage = await gather(*(self.facts(passage, flags) for passage in passages))
        extracted = tuple(
            dict.fromkeys(triple for rounds in by_passage for new in rounds for triple in new)
        )
        groups = await self.groups(extracted, flags)
        graph = merge_names(extracted, groups)
        flags["empty_graph"] = bool(passages) and not graph
        path = await self.path(question, graph, flags) if graph else None
        verdict = self.verdict(path, flags)
        figures = {
            "gold_passages": len(passages),
            **self.count_by_round(by_passage),
            "entities": len(self.entities(extracted)),
            "groups": len(groups),
            "names_merged": sum(len(group) - 1 for group in groups),
            "triples_in_graph": len(graph),
        }
        notes: dict[str, Json] = {"verdict": verdict, "groups": groups}
        if path is not None:
            figures["triples_in_path"] = len(path.triples)
            notes |= {"path": path.triples, "explanation": path.explanation}
        if verdict != "valid":
            notes["graph"] = graph
        return Answer("", flags={verdict: 1, **flags}, figures=figures, notes=notes)

    async def facts(self, passage: Passage, flags: Counter[str]) -> Sequence[Sequence[Triple]]:
        """Extract the triples of a passage, in rounds until one adds no triple. Return the new ones of each round."""
        triples: dict[Triple, Triple] = {}  # by their words, ignoring case
        rounds: list[list[Triple]] = []
        for template in ("verify/triples", *["verify/glean"] * self.gleaning_rounds):
            fields = {"triples": tuple(triples.values())} if rounds else {}
            prompt = render(template, passage=passage, **fields)
            reply = await Generate(prompt, self.max_triple_tokens, schema=TRIPLES_SCHEMA)
            read, before = read_lists(reply.text, length=3), len(triples)
            if read is None:
                flags["unparsable_triples"] += 1
            else:
                flags["malformed_triple"] += read.malformed
                flags["cut_triples"] += not read.whole
                for subject, relation, object_ in read.members:
                    folded = (subject.casefold(), relation.casefold(), object_.casefold())
                    triples.setdefault(folded, (subject, relation, object_))
            rounds.append(list(triples.values())[before:])
            if len(rounds) > 1 and not rounds[-1]:
                break
        return rounds

    def entities(self, triples: Sequence[Triple]) -> tuple[str, ...]:
        """Return distinct subjects and objects in the order of the triples, without literals."""
        names = dict.fromkeys(
            name for subject, _, object_ in triples for name in (subject, object_)
        )
        return tuple(name for name in names if len(name) <= self.literal_characters)

    async def groups(
        self, triples: Sequence[Triple], flags: Counter[str]
    ) -> tuple[tuple[str, ...], ...]:
        """Return groups of names of one entity, the name to use first. No name is in two groups."""
        names = self.entities(triples)
        if len(names) < 2:
            return ()
        prompt = render("verify/resolve", names=names, triples=tuple(triples))
        reply = await Generate(prompt, self.max_group_tokens, schema=GROUPS_SCHEMA)
        read = read_lists(reply.text)
        if read is None:
            flags["unparsable_groups"] += 1
            return ()
        flags["cut_groups"] += not read.whole
        free, groups = set(names), []
        for member in read.members:
            group = tuple(name for name in dict.fromkeys(member) if name in free)
            if len(group) > 1:
                groups.append(group)
                free -= set(group)
        return tuple(groups)

    def count_by_round(self, by_passage: Sequence[Sequence[Sequence[Triple]]]) -> dict[str, int]:
        """Return the number of new triples by round, over all passages. A round without a passage has added 0."""
        names = [
            "triples_extracted",
            *(f"triples_gleaned_{number + 1}" for number in range(self.gleaning_rounds)),
        ]
        counts = dict.fromkeys(names, 0)
        for rounds in by_passage:
            for name, new in zip(names, rounds, strict=False):
                counts[name] += len(new)
        return counts

    async def path(
        self, question: Question, graph: Sequence[Triple], flags: Counter[str]
    ) -> Path | None:
        """Request the path. An unreadable reply is requested once more, then the path is None."""
        schema, answer = path_schema(self.max_explanation_characters), question.answers[0]
        for again in (False, True):
            prompt = render(
                "verify/path",
                question=question.text,
                answer=answer,
                triples=tuple(graph),
                again=again,
            )
            reply = await Generate(prompt, self.max_path_tokens, schema=schema)
            path = read_path(reply.text)
            if path is not None:
                flags["malformed_path"] += path.malformed
                flags["path_off_graph"] += not set(path.triples) <= set(graph)
                flags["empty_path"] += path.valid and not path.triples
                return path
            flags["unparsable_path"] += 1
        return None

    def verdict(self, path: Path | None, flags: Mapping[str, int]) -> Verdict:
        """Return the verdict. A graph that is empty because of unreadable replies is not evidence of noise."""
        if path is not None:
            return "valid" if path.valid else "noise"
        if flags["no_gold_passage"]:
            return "unverified"
        without_facts = flags["empty_graph"] and not flags["unparsable_triples"]
        return "noise" if without_facts else self.unparsable


def gold_passages(question: Question) -> tuple[Passage, ...]:
    """Return the distinct gold passages of the question in order, after its pinned passages."""
    gold = (passage for passage in question.passages if passage.id in question.support)
    return tuple({passage.id: passage for passage in (*question.pinned, *gold)}.values())


def merge_names(triples: Sequence[Triple], groups: Sequence[Sequence[str]]) -> tuple[Triple, ...]:
    """Replace the names of each group by its first one, and return the distinct triples."""
    names = {name: group[0] for group in groups for name in group}
    renamed = (
        (names.get(head, head), relation, names.get(tail, tail)) for head, relation, tail in triples
    )
    return tuple(dict.fromkeys(renamed))


class Lists(NamedTuple):
    """The lists of texts in a reply, in order. `whole`: the outer list was complete."""

    members: tuple[tuple[str, ...], ...]
    # members that are not lists of texts
    malformed: int
    whole: bool


class Path(NamedTuple):
    valid: bool
    triples: tuple[Triple, ...]
    explanation: str
    # members of the path that are no triples
    malformed: int


TRIPLES_SCHEMA = list_schema("triples", TRIPLE)
GROUPS_SCHEMA = list_schema("groups", _NAMES)


def path_schema(characters: int) -> str:
    """Return the schema with a maximum length of the explanation."""
    path, explanation = (
        {"type": "array", "items": TRIPLE},
        {"type": "string", "maxLength": characters},
    )
    return object_schema(is_valid={"type": "boolean"}, reasoning_path=path, explanation=explanation)


def read_lists(text: str, length: int | None = None) -> Lists | None:
    """Return the members with `length` texts or numbers (None: any number), or None without a list of lists.

    A truncated or damaged list has the members before that position.
    """
    opening = _LIST.search(text)
    if opening is None:
        return None
    members: list[tuple[str, ...]] = []
    malformed, at = 0, _skip_separator(text, opening.end())
    while not text.startswith("]", at):
        try:
            value, at = decode_first(text, at)
        except JsonError:
            return Lists(tuple(members), malformed, whole=False)
        member = _texts(value)
        if member and length in (None, len(member)):
            members.append(member)
        else:
            malformed += 1
        at = _skip_separator(text, at)
    return Lists(tuple(members), malformed, whole=True)


def read_path(text: str) -> Path | None:
    """Return the path, or None if the reply is no JSON object with a boolean `is_valid`."""
    try:
        fields = decode_first(text, text.index("{"))[0]
    except ValueError:
        return None
    valid = fields.get("is_valid")
    if isinstance(valid, str):
        valid = {"true": True, "false": False}.get(valid.strip().casefold())
    if not isinstance(valid, bool):
        return None
    listed = fields.get("reasoning_path")
    read = [_texts(member) for member in listed] if isinstance(listed, list) else []
    triples = [(member[0], member[1], member[2]) for member in read if len(member) == 3]
    reason = fields.get("explanation")
    explanation = " ".join(reason.split()) if isinstance(reason, str) else ""
    return Path(valid, tuple(triples), explanation, len(read) - len(triples))


def _skip_separator(text: str, at: int) -> int:
    while text[at : at + 1] == "," or text[at : at + 1].isspace():
        at += 1
    return at


def _texts(value: Json) -> tuple[str, ...]:
    """Return texts with single spaces, or () if a value is empty or no text or number."""
    if not isinstance(value, list):
        return ()
    numbers = (
        str(part) if isinstance(part, int | float) and not isinstance(part, bool) else part
        for part in value
    )
    texts = tuple(" ".join(part.split()) if isinstance(part, str) else "" for part in numbers)
    return texts if all(texts) else ()
