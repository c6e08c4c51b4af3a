"""SAFE's verification of benchmarks (arXiv 2604.01993, §3.2): do the gold passages have a path to the gold answer?

The verifier extracts the triples of each gold passage (Figure 20), adds the ones it missed in up to two rounds (Figure
21), merges names of one entity (Figure 22), and looks for the path to the gold answer (Figure 23). A question without a
path is noise. All calls have the role `verifier` and a JSON schema. Any reply is accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from kgqa.artifacts.verdicts import Validity, VerifiedQuestion
from kgqa.calls import Generate, gather
from kgqa.errors import ConfigError
from kgqa.prompting import render
from kgqa.prompting.json_replies import TEXT, TRIPLE, list_schema, object_schema
from kgqa.types import Json, Passage, Question
from kgqa.util.jsonio import JsonError, decode_first
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural

ROLE = "verifier"
Triple = tuple[str, str, str]
_NAMES = {"type": "array", "items": TEXT, "minItems": 2}
_LIST = re.compile(r"\[\s*(?=[\[\]])")  # a list of lists, or an empty list
TEMPLATES = ("verify/triples", "verify/glean", "verify/resolve", "verify/path")


@dataclass(frozen=True)
class Verification:
    """The verifier. Its fields are in conf/verify/safe.yaml, with the source of each value."""

    gleaning_rounds: Annotated[
        Natural,
        Setting(
            "Maximum rounds that look for further triples of a passage. A round without a new triple is the last "
            "one (the released code).",
            paper="§3.2",
        ),
    ] = 2
    literal_characters: Annotated[
        Count, Setting("Maximum characters of an entity. Longer texts are literals.", code="released code")
    ] = 100
    unparsable: Annotated[
        Literal["unverified", "noise"],
        Setting("Verdict if a path cannot be parsed twice: unverified | noise (the released code).", ours="our choice"),
    ] = "unverified"
    swap_answers: Annotated[
        bool,
        Setting(
            "Sanity check: each question gets the answer of another one, so that no path should exist.",
            ours="our choice",
        ),
    ] = False
    list: Annotated[
        str | None,
        Setting("A file of flagged questions, one per line, as the authors publish them. No model is called."),
    ] = None
    max_triple_tokens: Annotated[
        Count, Setting("Maximum tokens of extraction and of gleaning. Released: 6,000 and 3,000.", ours="our choice")
    ] = 3000
    max_group_tokens: Annotated[
        Count, Setting("Maximum tokens of a group of triples. Released: 7,000.", ours="our choice")
    ] = 3000
    max_path_tokens: Annotated[Count, Setting("Maximum tokens of a path.", code="released code")] = 6000
    max_explanation_characters: Annotated[
        Count, Setting("Maximum characters of an explanation, if the engine follows a JSON schema.", ours="our choice")
    ] = 400

    def __post_init__(self) -> None:
        if self.list is not None and self.swap_answers:
            raise ConfigError("verify.swap_answers=true: verify.list= uses no paths to answers. Remove one of the two.")

    async def verify(self, question: Question, answer: str) -> VerifiedQuestion:
        """Look for a path to an answer in the gold passages of a question.

        Flags: `unparsable_triples`, `cut_triples`, `malformed_triple`, `unparsable_groups`, `cut_groups`,
        `unparsable_path` (for each reply), `malformed_path`, `path_off_graph` (one of its triples is not in the graph),
        `empty_path` (of a valid one), `missing_passage`. Without a path: `no_gold_passage`, `empty_graph`.
        """
        passages = gold_passages(question)
        missing = question.support - {passage.id for passage in passages}
        flags = Counter[str](missing_passage=len(missing), no_gold_passage=not passages)
        by_passage = await gather(*(self.facts(passage, flags) for passage in passages))
        extracted = tuple(dict.fromkeys(triple for rounds in by_passage for new in rounds for triple in new))
        groups = await self.groups(extracted, flags)
        graph = merge_names(extracted, groups)
        flags["empty_graph"] = bool(passages) and not graph
        path = await self.path(question, answer, graph, flags) if graph else None
        verdict = self.verdict(path, flags)
        figures = {
            "gold passages": len(passages),
            **count_by_round(by_passage),
            "entities": len(self.entities(extracted)),
            "groups": len(groups),
            "names merged": sum(len(group) - 1 for group in groups),
            "triples in the graph": len(graph),
        }
        return VerifiedQuestion(
            id=question.id,
            question=question.text,
            verdict=verdict,
            answer=answer,
            path=path.triples if path else (),
            explanation=path.explanation if path else "",
            groups=groups,
            graph=() if verdict == "valid" else graph,
            figures=figures | ({"triples in the path": len(path.triples)} if path else {}),
            flags={flag: int(count) for flag, count in flags.items() if count},
        )

    async def facts(self, passage: Passage, flags: Counter[str]) -> Sequence[Sequence[Triple]]:
        """Extract the triples of a passage, in rounds until one adds no triple. Return the new ones of each round."""
        known: dict[Triple, Triple] = {}  # by their words, ignoring case
        rounds: list[list[Triple]] = []
        for template in ("verify/triples", *["verify/glean"] * self.gleaning_rounds):
            written = {"triples": tuple(known.values())} if rounds else {}
            prompt = render(template, passage=passage, **written)
            reply = await Generate(prompt, self.max_triple_tokens, schema=TRIPLES_SCHEMA, role=ROLE)
            read, before = read_lists(reply.text, length=3), len(known)
            if read is None:
                flags["unparsable_triples"] += 1
            else:
                flags["malformed_triple"] += read.malformed
                flags["cut_triples"] += not read.whole
                for subject, relation, object_ in read.members:
                    folded = (subject.casefold(), relation.casefold(), object_.casefold())
                    known.setdefault(folded, (subject, relation, object_))
            rounds.append(list(known.values())[before:])
            if len(rounds) > 1 and not rounds[-1]:
                break
        return rounds

    def entities(self, triples: Sequence[Triple]) -> tuple[str, ...]:
        """Return distinct subjects and objects in the order of the triples, without literals."""
        names = dict.fromkeys(name for subject, _, object_ in triples for name in (subject, object_))
        return tuple(name for name in names if len(name) <= self.literal_characters)

    async def groups(self, triples: Sequence[Triple], flags: Counter[str]) -> tuple[tuple[str, ...], ...]:
        """Return groups of names of one entity, the name to use first. No name is in two groups."""
        names = self.entities(triples)
        if len(names) < 2:
            return ()
        prompt = render("verify/resolve", names=names, triples=tuple(triples))
        reply = await Generate(prompt, self.max_group_tokens, schema=GROUPS_SCHEMA, role=ROLE)
        read = read_lists(reply.text)
        if read is None:
            flags["unparsable_groups"] += 1
            return ()
        flags["cut_groups"] += not read.whole
        free, groups = set(names), []
        for written in read.members:
            group = tuple(name for name in dict.fromkeys(written) if name in free)
            if len(group) > 1:
                groups.append(group)
                free -= set(group)
        return tuple(groups)

    async def path(self, question: Question, answer: str, graph: Sequence[Triple], flags: Counter[str]) -> Path | None:
        """Request the path. An unreadable reply is requested once more, then the path is None."""
        schema = path_schema(self.max_explanation_characters)
        for again in (False, True):
            prompt = render("verify/path", question=question.text, answer=answer, triples=tuple(graph), again=again)
            reply = await Generate(prompt, self.max_path_tokens, schema=schema, role=ROLE)
            path = read_path(reply.text)
            if path is not None:
                flags["malformed_path"] += path.malformed
                flags["path_off_graph"] += not set(path.triples) <= set(graph)
                flags["empty_path"] += path.valid and not path.triples
                return path
            flags["unparsable_path"] += 1
        return None

    def verdict(self, path: Path | None, flags: Mapping[str, int]) -> Validity:
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
    renamed = ((names.get(head, head), relation, names.get(tail, tail)) for head, relation, tail in triples)
    return tuple(dict.fromkeys(renamed))


def count_by_round(by_passage: Sequence[Sequence[Sequence[Triple]]]) -> dict[str, int]:
    """Return the number of new triples by round, over all passages."""
    sums = Counter[str]()
    for rounds in by_passage:
        for number, new in enumerate(rounds):
            sums[f"triples gleaned in round {number}" if number else "triples extracted"] += len(new)
    return dict(sums)


class Lists(NamedTuple):
    """The lists of texts in a reply, in order. `whole`: the outer list was complete."""

    members: tuple[tuple[str, ...], ...]
    malformed: int  # members that are not lists of texts
    whole: bool


class Path(NamedTuple):
    valid: bool
    triples: tuple[Triple, ...]
    explanation: str
    malformed: int  # members of the path that are no triples


TRIPLES_SCHEMA = list_schema("triples", TRIPLE)
GROUPS_SCHEMA = list_schema("groups", _NAMES)


def path_schema(characters: int) -> str:
    """Return the schema with a maximum length of the explanation."""
    path, explanation = {"type": "array", "items": TRIPLE}, {"type": "string", "maxLength": characters}
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
        written = decode_first(text, text.index("{"))[0]
    except ValueError:
        return None
    valid = written.get("is_valid")
    if isinstance(valid, str):
        valid = {"true": True, "false": False}.get(valid.strip().casefold())
    if not isinstance(valid, bool):
        return None
    listed = written.get("reasoning_path")
    read = [_texts(member) for member in listed] if isinstance(listed, list) else []
    triples = [(member[0], member[1], member[2]) for member in read if len(member) == 3]
    reason = written.get("explanation")
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
    numbers = (str(part) if isinstance(part, int | float) and not isinstance(part, bool) else part for part in value)
    texts = tuple(" ".join(part.split()) if isinstance(part, str) else "" for part in numbers)
    return texts if all(texts) else ()
