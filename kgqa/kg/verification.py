"""SAFE's verification of benchmarks (arXiv 2604.01993, §3.2): is there a path in the gold passages to the gold answer?

Triples of each gold passage (Figure 20), up to two rounds that glean what was overlooked (Figure 21), names of one
thing made one (Figure 22), then the path with the gold answer given (Figure 23); a question without one is noise. All
are calls of the role `verifier`, whose replies are held to a JSON schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kgqa.artefacts.verification import Fate, VerifiedQuestion
from kgqa.calls import Generate, gather
from kgqa.constraints import Count, Natural
from kgqa.errors import ConfigError
from kgqa.kg.verification_replies import (
    Path,
    Triple,
    groups_schema,
    path_schema,
    read_groups,
    read_path,
    read_triples,
    triples_schema,
)
from kgqa.prompting import render
from kgqa.types import Passage, Question

ROLE = "verifier"
TEMPLATES = ("verify/triples", "verify/glean", "verify/resolve", "verify/path")


@dataclass(frozen=True)
class Verification:
    """Fields as in conf/verify/safe.yaml, which cites the source of each value."""

    gleaning_rounds: Natural
    literal_characters: Count
    unparsable: Literal["unverified", "noise"]
    swap_answers: bool
    list: str | None
    max_triple_tokens: Count
    max_group_tokens: Count
    max_path_tokens: Count
    max_explanation_characters: Count

    def __post_init__(self) -> None:
        if self.list is not None and self.swap_answers:
            raise ConfigError("verify.swap_answers=true: a list looks for no path to an answer; leave out verify.list=")

    async def verify(self, question: Question, answer: str) -> VerifiedQuestion:
        """
        answer: the one that a path is looked for to.

        Figures: `gold passages`, `triples extracted`, `triples gleaned in round N`, `entities`, `groups`,
        `names merged`, `triples in the graph`, `triples in the path`. Flags: `unparsable_triples`, `cut_triples` and
        `malformed_triple` of extraction and gleaning, `unparsable_groups`, `cut_groups`, `unparsable_path` for each
        path that could not be read, `malformed_path`, `path_off_graph` where one of its triples is not in the graph,
        `empty_path` of a valid one, `missing_passage`; `no_gold_passage` and `empty_graph` where no path was asked for.
        """
        passages = gold_passages(question)
        missing = question.support - {passage.id for passage in passages}
        flags = Counter[str](missing_passage=len(missing), no_gold_passage=not passages)
        found = await gather(*(self.facts(passage) for passage in passages))
        for facts in found:
            flags.update(facts.flags)
        extracted = tuple(dict.fromkeys(triple for facts in found for triple in facts.triples))
        groups = await self.groups(extracted, flags)
        graph = merged(extracted, groups)
        flags["empty_graph"] = bool(passages) and not graph
        path = await self.path(question, answer, graph, flags) if graph else None
        verdict = self.verdict(path, flags)
        figures = {
            "gold passages": len(passages),
            **_written(found),
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

    async def facts(self, passage: Passage) -> Facts:
        """A passage's triples: what is written first and what each round adds; one that adds none is the last."""
        facts = Facts(passage)
        for number in range(1 + self.gleaning_rounds):
            template = "verify/glean" if number else "verify/triples"
            prompt = render(template, passage=passage, **({"triples": tuple(facts.triples)} if number else {}))
            reply = await Generate(prompt, self.max_triple_tokens, schema=triples_schema(), role=ROLE)
            if not facts.add(reply.text) and number:
                break
        return facts

    def entities(self, triples: Sequence[Triple]) -> tuple[str, ...]:
        """Subjects and objects, each once, in the order of the triples; without literals."""
        names = dict.fromkeys(name for subject, _, object_ in triples for name in (subject, object_))
        return tuple(name for name in names if len(name) <= self.literal_characters)

    async def groups(self, triples: Sequence[Triple], flags: Counter[str]) -> tuple[tuple[str, ...], ...]:
        """Names of one thing, the one to keep first. Each is an entity of the triples, and in no other group."""
        names = self.entities(triples)
        if len(names) < 2:
            return ()
        prompt = render("verify/resolve", names=names, triples=tuple(triples))
        reply = await Generate(prompt, self.max_group_tokens, schema=groups_schema(), role=ROLE)
        read = read_groups(reply.text)
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
        """What the verifier says of the graph; one that cannot be read is asked for once more, then it is None."""
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

    def verdict(self, path: Path | None, flags: Mapping[str, int]) -> Fate:
        """No triple, no path; but a graph that is empty since nothing could be read says nothing."""
        if path is not None:
            return "valid" if path.valid else "noise"
        if flags["no_gold_passage"]:
            return "unverified"
        without_facts = flags["empty_graph"] and not flags["unparsable_triples"]
        return "noise" if without_facts else self.unparsable


@dataclass
class Facts:
    """The triples of one passage as they come, each once."""

    passage: Passage
    triples: list[Triple] = field(default_factory=list)
    added: list[int] = field(default_factory=list)  # by each reply
    flags: Counter[str] = field(default_factory=Counter)

    def add(self, reply: str) -> int:
        """How many of a reply's triples are new; case does not count."""
        read = read_triples(reply)
        known = set(map(_folded, self.triples))
        if read is None:
            self.flags["unparsable_triples"] += 1
        else:
            self.flags["malformed_triple"] += read.malformed
            self.flags["cut_triples"] += not read.whole
            for subject, relation, object_ in read.members:
                triple = (subject, relation, object_)
                if _folded(triple) not in known:
                    known.add(_folded(triple))
                    self.triples.append(triple)
        self.added.append(len(self.triples) - sum(self.added))
        return self.added[-1]


def gold_passages(question: Question) -> tuple[Passage, ...]:
    """Those that the question came with, in their order, each once; what is always given to a reader counts, too."""
    gold = (passage for passage in question.passages if passage.id in question.support)
    return tuple({passage.id: passage for passage in (*question.pinned, *gold)}.values())


def merged(triples: Sequence[Triple], groups: Sequence[Sequence[str]]) -> tuple[Triple, ...]:
    """With the first name of each group in place of its others; triples that are then the same stand there once."""
    kept = {name: group[0] for group in groups for name in group}
    renamed = ((kept.get(head, head), relation, kept.get(tail, tail)) for head, relation, tail in triples)
    return tuple(dict.fromkeys(renamed))


def _written(found: Sequence[Facts]) -> dict[str, int]:
    """Triples by the reply that they came with, over all passages."""
    rounds = max((len(facts.added) for facts in found), default=0)
    sums = [sum(facts.added[place] for facts in found if place < len(facts.added)) for place in range(rounds)]
    names = ["triples extracted", *(f"triples gleaned in round {number}" for number in range(1, rounds))]
    return dict(zip(names, sums, strict=True)) if sums else {}


def _folded(triple: Triple) -> Triple:
    subject, relation, object_ = triple
    return subject.casefold(), relation.casefold(), object_.casefold()
