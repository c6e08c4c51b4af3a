"""Knowledge graph prompting (KGP: Wang et al., AAAI 2024): an agent walks through a graph of passages.

Algorithm 1: TF-IDF finds seed passages. For each path in the queue, the agent generates the evidence that is needed
next, and the best matching neighbors extend the path. Questions about pages and tables are answered from these (§4).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from kgqa.calls import Generate, Neighbours, Rank, gather
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.reader import Path, evidence_of, read, read_paths
from kgqa.methods.steps.replies import plain_words
from kgqa.methods.steps.search import Scope, SearchScope
from kgqa.methods.steps.structure import find_nodes, pages_and_tables, parse_nodes, text_passages
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Json, Passage, Prompt, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

# maximum factor by which a structural context that is too long is shortened
SHORTEN = 0.9
# of pages and tables; if that is still too long, the question itself is too long
SMALLEST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to the graph: from the last passage of a path to the best of its neighbors."""

    path: Path
    # its neighbors that are not on the path
    candidates: tuple[Passage, ...] = ()
    # the query; "" for an agent that generates no text
    evidence: str = ""
    chosen: tuple[Passage, ...] = ()  # best first, within the budget


@dataclass(slots=True)
class WalkState:
    """The traversal for one question so far."""

    question: Question
    scope: Scope
    seeds: tuple[Passage, ...] = ()
    steps: list[Visit] = field(default_factory=list)
    flags: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Kgp:
    """The method, with the fields of conf/method/kgp.yaml."""

    agent: Annotated[
        Literal["llm", "t5", "llama", "mdr", "tfidf", "random"],
        Setting(
            "Who generates the next evidence: llm (ChatGPT, few-shot) | t5 (fine-tuned, Table 1's) | llama "
            "(fine-tuned) | mdr | tfidf | random (§5.3).",
            paper="Table 2",
        ),
    ] = "llm"
    match: Annotated[
        Literal["tfidf", "encoder"],
        Setting(
            "How generated evidence is matched with neighbors: tfidf, as the released code | encoder, by ranker= "
            "(not in the paper).",
            other="Eq. (1)",
        ),
    ] = "tfidf"
    scope: Annotated[
        SearchScope,
        Setting(
            "What is traversed: own, the question's own collection | corpus, all passages.",
            paper="supplement 8.1",
        ),
    ] = "own"
    seeds: Annotated[
        Count, Setting("Passages of the first hop, found by the retriever.", paper="supplement 8.2")
    ] = 10
    branching: Annotated[
        Count, Setting("Neighbors visited per passage in later hops.", paper="supplement 8.2")
    ] = 3
    hops: Annotated[Count, Setting("Number of hops.", paper="supplement 8.2")] = 2
    budget: Annotated[
        Count,
        Setting(
            "Number of passages visited after the seeds, K: 30 reasoning paths. Algorithm 1 includes seeds.",
            paper="supplement 8.2",
        ),
    ] = 30
    rounds: Annotated[
        tuple[Count, ...],
        Setting(
            "Agent=tfidf: passages per round after the seeds, 30 in total (supplement 8.2).",
            ours="the split is not in the paper",
            code="released code",
            only_if="agent=tfidf",
        ),
    ] = (5, 5, 5, 3, 2)
    structure: Annotated[
        bool,
        Setting(
            "Classify questions about pages and tables first, if the documents have any.",
            paper="§4",
        ),
    ] = True
    max_evidence_tokens: Annotated[
        Count,
        Setting(
            "Maximum tokens of generated evidence, and of the pages and tables that a question names.",
            ours="our choice",
            only_if="agent=llm|t5|llama or structure=true",
        ),
    ] = 100
    max_answer_tokens: Annotated[
        Count,
        Setting("Maximum tokens of the answer, which has fewer than 6 words.", ours="our choice"),
    ] = 25
    instruction: Annotated[
        str,
        Setting(
            "Instruction of agent=t5 and llama. Set the one that the model was trained with.",
            ours="Listing 1, the words are ours",
            only_if="agent=t5|llama",
        ),
    ] = "Which evidence is still needed to answer the question, given the evidence so far?"
    few_shot: Annotated[
        tuple[Mapping[str, Json], ...],
        Setting(
            "Few-shot examples of agent=llm, §5.3.",
            ours="the examples are ours",
            only_if="agent=llm",
        ),
    ] = field(kw_only=True)
    seed: Annotated[
        int, Setting("Random seed of agent=random.", ours="our choice", only_if="agent=random")
    ] = field(kw_only=True)

    @property
    def uses(self) -> frozenset[Need]:
        needs: set[Need] = {"model", "graph", "search" if self.scope == "corpus" else "pool"}
        return frozenset(needs | ({"ranker"} if self.scorer == "ranker" else set()))

    @property
    def scorer(self) -> Literal["ranker", "tfidf"]:
        """Return φ of Equation 1: TF-IDF for generated texts, inner products for MDR."""
        encodes = self.agent == "mdr" or (
            self.agent in ("llm", "t5", "llama") and self.match == "encoder"
        )
        return "ranker" if encodes else "tfidf"

    async def answer(self, question: Question) -> Answer:
        """Walk through the graph and answer, or answer from the pages and tables that the question names.

        Evidence: the distinct passages of the paths, or the pages and tables. Figures: seeds, steps, paths, visited
        (distinct passages), `neighbours` (mean per step). Flags: `no_seeds`; per step `no_neighbours`,
        `empty_evidence`, `repeated_evidence` and `cut_reply`; `context_cut`; `structural`, `unknown_place` (the named
        pages or tables do not exist); those of the reader.
        """
        is_own = self.scope == "own"
        walk = WalkState(
            question, Scope(pool=text_passages(question.passages)) if is_own else Scope()
        )
        if self.structure and (nodes := pages_and_tables(question.passages)):
            reply = await Generate(
                render("kgp/classify", question=question.text), self.max_evidence_tokens, ("\n\n",)
            )
            nodes_named = parse_nodes(reply.text)
            if pages := find_nodes(nodes_named, filter_by_title(question.text, nodes)):
                return await self.read_pages(question, pages)
            walk.flags["unknown_place"] += bool(nodes_named)
        walk.seeds = text_passages(await walk.scope.search(question.text, self.seeds))
        walk.flags["no_seeds"] += not walk.seeds
        paths = await (self.collect(walk) if self.agent == "tfidf" else self.traverse(walk))
        answer = await read_paths(question, paths, self.max_answer_tokens)
        candidates = [len(step.candidates) for step in walk.steps]
        figures = {
            "seeds": len(walk.seeds),
            "steps": len(walk.steps),
            "paths": len(paths),
            "visited": len(answer.evidence),
            "neighbours": sum(candidates) / len(candidates) if candidates else 0.0,
        }
        flags = walk.flags + Counter(answer.flags)
        steps = [
            {
                "path": [passage.id for passage in step.path],
                "neighbours": len(step.candidates),
                "evidence": step.evidence,
                "chosen": [passage.id for passage in step.chosen],
            }
            for step in walk.steps
        ]
        traversal = {
            "agent": self.agent,
            "seeds": [seed.id for seed in walk.seeds],
            "steps": steps,
            "paths": [[passage.id for passage in path] for path in paths],
        }
        return replace(answer, flags=flags, figures=figures, notes={"traversal": traversal})

    async def traverse(self, walk: WalkState) -> list[Path]:
        """Run Algorithm 1. `budget` is the maximum number of passages visited after the seeds.

        Paths at the head of the queue are independent, so their visits run in parallel.
        """
        queue, ended, visited = (
            deque[Path]((seed,) for seed in walk.seeds),
            list[Path](),
            0,
        )  # lines 1 to 4
        if self.hops == 1:
            return list(queue)
        while queue and visited < self.budget:  # line 5
            ahead = min(len(queue), -(-(self.budget - visited) // self.branching))
            heads = [queue.popleft() for _ in range(ahead)]  # line 6
            for step in await gather(*(self.visit(walk, path) for path in heads)):  # line 7
                neighbors = step.chosen[: self.budget - visited]  # lines 10 to 12
                walk.steps.append(replace(step, chosen=neighbors))
                visited += len(neighbors)
                paths = [(*step.path, passage) for passage in neighbors]  # lines 8 and 9
                (queue if len(step.path) + 1 < self.hops else ended).extend(paths)
                if not paths:
                    ended.append(step.path)
        return ended + list(queue)

    async def collect(self, walk: WalkState) -> list[Path]:
        """Run KGP-TF-IDF (supplement 8.2): in each round, add the best neighbors of the latest passages."""
        reached: dict[str, Path] = {seed.id: (seed,) for seed in walk.seeds}
        last = walk.seeds
        collected = list(last)
        for count in self.rounds:
            groups = await gather(*(_neighbors(walk, passage) for passage in last))
            new = {
                passage.id: passage
                for group in groups
                for passage in group
                if passage.id not in reached
            }
            if not new:
                walk.flags["no_neighbours"] += 1
                break
            best = await self.rank(walk.question.text, tuple(new.values()), count)
            for passage, group in zip(last, groups, strict=True):
                path, around = (
                    reached[passage.id],
                    tuple(other for other in group if other.id in new),
                )
                neighbors = tuple(
                    other for other in best if other in around and other.id not in reached
                )
                walk.steps.append(Visit(path, around, chosen=neighbors))
                reached |= {other.id: (*path, other) for other in neighbors}
            collected, last = [*collected, *best], best
        return [(passage,) for passage in collected]

    async def visit(self, walk: WalkState, path: Path) -> Visit:
        """Choose the `branching` neighbors that match the needed evidence best (Equation 1)."""
        on_path = {passage.id for passage in path}
        candidates = tuple(
            passage for passage in await _neighbors(walk, path[-1]) if passage.id not in on_path
        )
        if not candidates:
            walk.flags["no_neighbours"] += 1
            return Visit(path)
        if self.agent == "random":
            chance = random.Random(f"{self.seed}/{walk.question.id}/{'/'.join(p.id for p in path)}")  # noqa: S311
            return Visit(
                path,
                candidates,
                "",
                tuple(chance.sample(candidates, min(self.branching, len(candidates)))),
            )
        evidence = await self.request_evidence(walk.question, path, walk.flags)
        return Visit(
            path, candidates, evidence, await self.rank(evidence, candidates, self.branching)
        )

    async def rank(
        self, query: str, candidates: tuple[Passage, ...], count: int
    ) -> tuple[Passage, ...]:
        """Return the `count` candidates most similar to a query, best first; of equals the last, as released."""
        scores = await Rank(query, tuple(each.wording for each in candidates), self.scorer)
        order = sorted(
            range(len(candidates)), key=lambda index: (scores[index], index), reverse=True
        )[:count]
        return tuple(candidates[index] for index in order)

    async def request_evidence(self, question: Question, path: Path, flags: Counter[str]) -> str:
        """Return the evidence that the agent needs after these passages, or the question if the reply is empty.

        `mdr` generates no text: its query is the question with the passages.
        """
        so_far = " ".join(passage.wording for passage in path)
        if self.agent == "mdr":
            return f"{question.text} {so_far}"
        prompt = self.evidence_prompt(question.text, so_far)
        reply = await Generate(
            prompt, self.max_evidence_tokens, ("\n\n", "\nQuestion:"), role="agent"
        )
        evidence = " ".join(reply.text.split())
        flags["cut_reply"] += reply.finish == "length"
        flags["empty_evidence"] += not evidence
        earlier = (question.text, *(passage.wording for passage in path))
        flags["repeated_evidence"] += bool(evidence) and evidence in earlier
        flags.update(reply.flags)
        return evidence or question.text

    def evidence_prompt(self, question: str, so_far: str) -> Prompt:
        """Render the prompt of the agent, which is also its training prompt."""
        values = {"question": question, "evidence": so_far}
        if self.agent in ("t5", "llama"):
            return render(f"kgp/evidence_{self.agent}", instruction=self.instruction, **values)
        return render("kgp/evidence", examples=self.few_shot, **values)

    async def read_pages(self, question: Question, nodes: Sequence[Passage]) -> Answer:
        """Answer a question about structure from pages and tables (as Markdown), each shortened if they do not fit."""
        share = 1.0  # of each text
        while True:
            texts = ((node, node.text[: int(len(node.text) * share)]) for node in nodes)
            context = "\n\n".join(f"{node.title}, {node.place}:\n{text}" for node, text in texts)
            try:
                answer = await read(
                    question, context, evidence_of(nodes), self.max_answer_tokens, "kgp/answer"
                )
                flags = {**answer.flags, "structural": 1, "context_cut": share < 1}
                return replace(
                    answer, flags=flags, notes={"places": [node.place for node in nodes]}
                )
            except PromptTooLong as error:
                if share < SMALLEST_SHARE:
                    raise
                share *= min(error.limit / error.tokens, SHORTEN)


async def _neighbors(walk: WalkState, passage: Passage) -> tuple[Passage, ...]:
    return text_passages(await Neighbours(passage, walk.scope.pool))


def filter_by_title(question: str, nodes: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return the nodes of documents with their title in the question, or all nodes if there are none."""
    plain = plain_words(question)
    named = tuple(
        node
        for node in nodes
        if node.title.strip() and f" {plain_words(node.title)} " in f" {plain} "
    )
    return named or tuple(nodes)
