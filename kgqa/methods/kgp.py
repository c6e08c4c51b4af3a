"""Knowledge graph prompting (KGP: Wang et al., AAAI 2024): an agent walks from passage to passage through their graph.

Algorithm 1: TF-IDF finds seed passages; for each path in the queue the agent says which evidence is needed next, and
the neighbours that match it best lengthen the path. Questions about pages and tables are answered from these (§4).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kgqa.calls import Generate, Neighbours, Rank, gather
from kgqa.constraints import Count
from kgqa.errors import PromptTooLong
from kgqa.methods.retrieve_only import Scope, Searched
from kgqa.methods.steps.paths import Path, read_paths
from kgqa.methods.steps.reader import read
from kgqa.methods.steps.replies import counted
from kgqa.methods.steps.structure import nodes_at, ordinary, places_named, structural
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Json, Passage, Prompt, Question

SHORTER = 0.9  # at least so much shorter is a structural context that did not fit
SMALLEST_SHARE = 0.01  # of pages and tables; where that is still too long, the question itself is


@dataclass(frozen=True, slots=True)
class Step:
    """One visit to the graph: from a path's last passage to the best of its neighbours."""

    path: Path
    candidates: tuple[Passage, ...]  # its neighbours that are not on the path
    evidence: str  # what was looked for; "" for an agent that writes nothing
    chosen: tuple[Passage, ...]  # best first; once traversed, those that the budget allowed


@dataclass(slots=True)
class Course:
    """How the traversal went so far."""

    seeds: tuple[Passage, ...] = ()
    steps: list[Step] = field(default_factory=list)
    flags: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Kgp:
    """Fields as in conf/method/kgp.yaml, which cites the source of each value."""

    agent: Literal["llm", "t5", "llama", "mdr", "tfidf", "random"]
    match: Literal["tfidf", "encoder"]
    scope: Searched
    seeds: Count
    branching: Count
    hops: Count
    budget: Count
    rounds: tuple[Count, ...]
    structure: bool
    max_evidence_tokens: Count
    max_answer_tokens: Count
    instruction: str
    examples_from: tuple[Mapping[str, Json], ...]
    seed: int

    @property
    def uses(self) -> frozenset[Need]:
        needs: set[Need] = {"model", "graph", "search" if self.scope == "corpus" else "pool"}
        return frozenset(needs | ({"ranker"} if self.scorer == "ranker" else set()))

    @property
    def scorer(self) -> Literal["ranker", "tfidf"]:
        """φ of Equation 1: what is written is compared as text, what MDR encodes by inner products."""
        encodes = self.agent == "mdr" or (self.agent in ("llm", "t5", "llama") and self.match == "encoder")
        return "ranker" if encodes else "tfidf"

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages of the paths in their order, each once; of a structural question its pages and tables.

        Figures: seeds, steps, paths, visited (distinct passages), neighbours (mean of a step). Flags: `no_seeds`,
        `no_neighbours` and `empty_evidence`, `repeated_evidence`, `cut_reply` for each step; `context_cut`;
        `structural`, `unknown_place` where the pages or tables named are not there; those of the reader.
        """
        if self.structure and (nodes := structural(question.passages)):
            reply = await Generate(render("kgp/classify", question=question.text), self.max_evidence_tokens, ("\n\n",))
            places = places_named(reply.text)
            if pages := nodes_at(places, of_documents_named(question.text, nodes)):
                return await self.read_places(question, pages)
            flags = Counter(unknown_place=int(bool(places)))
            return await self.walk(question, flags)
        return await self.walk(question, Counter())

    async def walk(self, question: Question, flags: Counter[str]) -> Answer:
        """A question about content: Algorithm 1, then the reader."""
        course = Course(flags=flags)
        paths = await (self.collect(question, course) if self.agent == "tfidf" else self.traverse(question, course))
        answer = await read_paths(question, paths, self.max_answer_tokens)
        candidates = [len(step.candidates) for step in course.steps]
        figures = {
            "seeds": len(course.seeds),
            "steps": len(course.steps),
            "paths": len(paths),
            "visited": len(answer.evidence),
            "neighbours": sum(candidates) / len(candidates) if candidates else 0.0,
        }
        flags = course.flags + Counter(answer.flags)
        notes = {"traversal": _note(self.agent, course, paths)}
        return replace(answer, flags=counted(**flags), figures=figures, notes=notes)

    async def traverse(self, question: Question, course: Course) -> list[Path]:
        """Algorithm 1. Paths that cannot grow stay as they are; `budget` bounds the passages visited after the seeds.

        Paths at the head of the queue do not depend on each other, so their steps are asked for side by side.
        """
        scope = await self.seeded(question, course)  # line 1
        queue, ended, visited = deque[Path]((seed,) for seed in course.seeds), list[Path](), 0  # lines 2 to 4
        if self.hops == 1:
            return list(queue)
        while queue and visited < self.budget:  # line 5
            ahead = min(len(queue), -(-(self.budget - visited) // self.branching))
            heads = [queue.popleft() for _ in range(ahead)]  # line 6
            for step in await gather(*(self.step(question, path, scope, course.flags) for path in heads)):  # line 7
                chosen = step.chosen[: self.budget - visited]  # lines 10 to 12
                course.steps.append(replace(step, chosen=chosen))
                visited += len(chosen)
                grown = [(*step.path, passage) for passage in chosen]  # lines 8 and 9
                (queue if len(step.path) + 1 < self.hops else ended).extend(grown)
                if not grown:
                    ended.append(step.path)
        return ended + list(queue)

    async def seeded(self, question: Question, course: Course) -> Scope:
        """Find the seeds; gives where they were looked for."""
        scope = Scope(pool=ordinary(question.passages)) if self.scope == "own" else Scope()
        course.seeds = ordinary(await scope.search(question.text, self.seeds))
        course.flags["no_seeds"] += not course.seeds
        return scope

    async def collect(self, question: Question, course: Course) -> list[Path]:
        """KGP-TF-IDF (supplement 8.2): single passages, in each round the best neighbours of those found last."""
        scope = await self.seeded(question, course)
        reached: dict[str, Path] = {seed.id: (seed,) for seed in course.seeds}
        last = course.seeds
        found = list(last)
        for count in self.rounds:
            groups = [ordinary(group) for group in await gather(*(Neighbours(passage, scope.pool) for passage in last))]
            new = {passage.id: passage for group in groups for passage in group if passage.id not in reached}
            if not new:
                course.flags["no_neighbours"] += 1
                break
            best = await self.best(question.text, tuple(new.values()), count)
            for passage, group in zip(last, groups, strict=True):
                path, around = reached[passage.id], tuple(other for other in group if other.id in new)
                chosen = tuple(other for other in best if other in around and other.id not in reached)
                course.steps.append(Step(path, around, "", chosen))
                reached |= {other.id: (*path, other) for other in chosen}
            found, last = [*found, *best], best
        return [(passage,) for passage in found]

    async def step(self, question: Question, path: Path, scope: Scope, flags: Counter[str]) -> Step:
        """Equation 1: the `branching` neighbours that match best what the agent says is needed next."""
        on_path = {passage.id for passage in path}
        around = ordinary(await Neighbours(path[-1], scope.pool))
        candidates = tuple(passage for passage in around if passage.id not in on_path)
        if not candidates:
            flags["no_neighbours"] += 1
            return Step(path, (), "", ())
        if self.agent == "random":
            chance = random.Random(f"{self.seed}/{question.id}/{'/'.join(p.id for p in path)}")  # noqa: S311
            return Step(path, candidates, "", tuple(chance.sample(candidates, min(self.branching, len(candidates)))))
        evidence = await self.evidence(question, path, flags)
        return Step(path, candidates, evidence, await self.best(evidence, candidates, self.branching))

    async def best(self, sought: str, candidates: tuple[Passage, ...], count: int) -> tuple[Passage, ...]:
        """The `count` candidates most similar to what is sought."""
        return best_of(candidates, await Rank(sought, tuple(each.wording for each in candidates), self.scorer), count)

    async def evidence(self, question: Question, path: Path, flags: Counter[str]) -> str:
        """What the agent looks for after these passages; the question where it writes nothing.

        `mdr` writes nothing: question and passages themselves are what the encoder compares.
        """
        so_far = " ".join(passage.wording for passage in path)
        if self.agent == "mdr":
            return f"{question.text} {so_far}"
        prompt = self.evidence_prompt(question.text, so_far)
        reply = await Generate(prompt, self.max_evidence_tokens, ("\n\n", "\nQuestion:"), role="agent")
        written = " ".join(reply.text.split())
        flags["cut_reply"] += reply.finish == "length"
        flags["empty_evidence"] += not written
        flags["repeated_evidence"] += bool(written) and written in (
            question.text,
            *(passage.wording for passage in path),
        )
        flags.update(reply.flags)
        return written or question.text

    def evidence_prompt(self, question: str, so_far: str) -> Prompt:
        """What the agent is asked, and what it is trained with."""
        given = {"question": question, "evidence": so_far}
        if self.agent in ("t5", "llama"):
            return render(f"kgp/evidence_{self.agent}", instruction=self.instruction, **given)
        return render("kgp/evidence", examples=self.examples_from, **given)

    async def read_places(self, question: Question, nodes: Sequence[Passage], share: float = 1.0) -> Answer:
        """A question about structure: each page as its text, each table as Markdown, under its name.

        share: of each text, from its beginning; less where the prompt is too long for the model.
        """
        context = "\n\n".join(f"{node.title}, {node.place}:\n{beginning(node.text, share)}" for node in nodes)
        evidence = tuple(node.id for node in nodes)
        try:
            answer = await read(question, context, evidence, self.max_answer_tokens, "kgp/answer")
        except PromptTooLong as error:
            if share < SMALLEST_SHARE:
                raise
            less = share * min(error.limit / error.tokens, SHORTER)
        else:
            flags = {**answer.flags, "structural": 1, **({"context_cut": 1} if share < 1 else {})}
            return replace(answer, flags=flags, notes={"places": [node.place for node in nodes]})
        return await self.read_places(question, nodes, less)


def best_of(candidates: Sequence[Passage], scores: Sequence[float], count: int) -> tuple[Passage, ...]:
    """The `count` candidates with the highest scores, best first, equal ones in the candidates' order."""
    order = sorted(range(len(candidates)), key=lambda place: -scores[place])[:count]
    return tuple(candidates[place] for place in order)


def beginning(text: str, share: float) -> str:
    """The first lines of a text that are at most this share of it; of a longer first line its first words."""
    if share >= 1:
        return text
    kept = text[: int(len(text) * share)]
    return kept[: max(kept.rfind("\n"), 0) or max(kept.rfind(" "), 0)]


def of_documents_named(question: str, nodes: Sequence[Passage]) -> tuple[Passage, ...]:
    """The nodes of the documents whose titles stand in the question; of all where it names none."""
    plain = _plain(question)
    named = tuple(node for node in nodes if node.title.strip() and f" {_plain(node.title)} " in f" {plain} ")
    return named or tuple(nodes)


def _plain(text: str) -> str:
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text.casefold()).split())


def _note(agent: str, course: Course, paths: Sequence[Path]) -> Json:
    """The traversal for the trace, passages by id."""
    steps = [
        {
            "path": [passage.id for passage in step.path],
            "neighbours": len(step.candidates),
            "evidence": step.evidence,
            "chosen": [passage.id for passage in step.chosen],
        }
        for step in course.steps
    ]
    seeds = [passage.id for passage in course.seeds]
    return {"agent": agent, "seeds": seeds, "steps": steps, "paths": [[p.id for p in path] for path in paths]}
