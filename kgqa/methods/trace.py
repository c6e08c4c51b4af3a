"""TRACE (Fang et al., Findings of EMNLP 2024): beam search for chains of triples, which the reader is given.

§3.3 and Algorithm 1: at every step a ranker cuts the question's knowledge graph down to K candidates and a selector,
asked a multiple-choice question, gives a distribution over them and the option to stop.

Part I of the algorithm, a passage's triples (§3.2), is `kgqa.kg.extraction`, made once per passage and model before the
first question; here they are asked for by `Triples`. Roles: `selector` chooses, `reader` answers.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Literal

from kgqa.calls import Choose, Rank, Triples, gather, labels
from kgqa.constraints import Bound, Count
from kgqa.demonstrations import ChainDemonstration, Mode, Selection, choose_demonstrations, nearest_last
from kgqa.errors import ConfigError, DataError
from kgqa.methods.steps.reader import numbered, passages_text, read
from kgqa.methods.steps.sentences import sentences
from kgqa.methods.steps.trace_chains import Chain, Unit, best_chains, log_softmax
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question

MAX_CANDIDATES = 727  # labels there are, less one for the option to stop
Layout = Literal["figures", "released", "begun"]
SELECT: dict[Layout, str] = {
    "figures": "trace/select",
    "released": "trace/select_released",
    "begun": "trace/select_begun",
}
READ: dict[Layout, str] = {
    "figures": "reader/answer",
    "released": "trace/answer_released",
    "begun": "reader/answer",
}


@dataclass(frozen=True, slots=True)
class ChainState:
    """What stays the same while the chains of one question grow."""

    question: str
    pool: tuple[Unit, ...]  # the knowledge graph, in the passages' order
    demonstrations: tuple[ChainDemonstration, ...] = ()  # that may be shown, the nearest first


@dataclass(frozen=True, slots=True)
class Example:
    """One step of a labelled chain as the prompt shows it."""

    question: str
    chain: tuple[str, ...]
    so_far: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    letter: str


Candidates = Annotated[
    Count, Bound(f"at most {MAX_CANDIDATES} can be labelled", lambda number: number <= MAX_CANDIDATES)
]
Probability = Annotated[float, Bound("must be in [0, 1)", lambda share: 0 <= share < 1)]


@dataclass(frozen=True)
class Trace:
    """Fields as in conf/method/trace.yaml, which cites the source of each value.

    `beam` chains are kept at each of `max_length` steps, each grown by its `branch` likeliest choices among
    `candidates` units; `chains` of the last beam are read.
    """

    context: Literal["triples", "documents"]
    units: Literal["triples", "sentences", "documents"]
    candidates: Candidates
    ranker: bool
    selector: bool
    top: Count | None
    max_length: Count
    beam: Count
    branch: Count
    chains: Count
    min_probability: Probability
    adaptive_termination: bool
    query_order: Literal["question_first", "triples_first"]
    query_labels: bool
    demonstrations: Mode
    demonstration_count: Count
    demonstrations_from: tuple[ChainDemonstration, ...]
    short_demonstrations: Literal["last_step", "next"]
    layout: Layout
    max_answer_tokens: Count

    def __post_init__(self) -> None:
        if self.chains > self.beam:
            raise ConfigError(f"method.chains={self.chains}: cannot exceed method.beam={self.beam}")
        if not self.ranker and (self.top is not None or not self.selector):
            raise ConfigError("method.ranker=false: method.top and method.selector=false need the ranker")
        if self.demonstrations != "none" and self.demonstration_count > len(self.demonstrations_from):
            count, available = self.demonstration_count, len(self.demonstrations_from)
            raise ConfigError(f"method.demonstration_count={count}: the file holds only {available} chains")

    @property
    def uses(self) -> frozenset[Need]:
        needs: dict[Need, bool] = {
            "model": True,
            "triples": self.units == "triples",
            "ranker": self.ranker,
            "demonstrations_ranker": self.selector and self.top is None and self.demonstrations == "adaptive",
        }
        return frozenset(need for need, needed in needs.items() if needed)

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages of the read chains, most votes first. Notes: those chains, best first.

        Flag `no_chain`: no read chain holds a unit (nothing was extracted, or the selector stopped at once); the
        reader then answers without context.
        """
        passages = {passage.id: passage for passage in question.passages}.values()
        pool = tuple(unit for units in await gather(*map(self.units_of, passages)) for unit in units)
        state = ChainState(question.text, pool)
        if not pool:
            chains = [Chain()]
        elif self.top is not None:  # Table 2, "w. Top-T Triples": the ranking is read as one chain
            chains = [Chain(tuple(unit for unit, _ in (await self.rank(state, Chain()))[: self.top]))]
        else:
            chains = await self.construct(state)
        return await self.read_chains(question, chains[: self.chains])

    async def units_of(self, passage: Passage) -> list[Unit]:
        """Sentences: the data set's own, else those of our splitter."""
        if self.units == "triples":
            triples = await Triples(passage)
            return [Unit(str(t), (t.head, t.relation, t.tail), passage.id) for t in triples]
        if self.units == "documents":
            texts = [f"{passage.title}: {passage.text}"]
        else:
            texts = list(passage.sentences or sentences(passage.text))
        folded = [" ".join(text.split()) for text in texts]  # an option is one line
        return [Unit(text, (text,), passage.id) for text in folded if text]

    async def construct(self, state: ChainState) -> list[Chain]:
        """Algorithm 1, Part II, with adaptive termination: the final beam, best first."""
        if self.selector:
            state = replace(state, demonstrations=await self.nearest_demonstrations(state.question))
        beam = [Chain()]
        for _ in range(self.max_length):
            if all(chain.ended for chain in beam):
                break
            extended = await gather(*(self.extend(state, chain) for chain in beam))
            beam = best_chains([chain for chains in extended for chain in chains], self.beam)
        return beam

    async def nearest_demonstrations(self, question: str) -> tuple[ChainDemonstration, ...]:
        """Those that a question's selections may show, the nearest first."""
        labelled = self.demonstrations_from
        count = len(labelled) if self.short_demonstrations == "next" else self.demonstration_count
        return await choose_demonstrations(labelled, self.demonstrations, count, question)

    async def extend(self, state: ChainState, chain: Chain) -> list[Chain]:
        """The chain after each of its `branch` likeliest choices; an ended chain as it is, without a call.

        A chain also ends where nothing is left to add, or where every choice is less likely than `min_probability`.
        """
        if chain.ended:
            return [chain]
        candidates = await self.rank(state, chain)
        if not candidates:
            return [replace(chain, ended=True)]
        if self.selector:
            options = await self.select(state, chain, [unit for unit, _ in candidates])
        else:
            options = log_softmax(candidates)
        likeliest = sorted(options, key=lambda option: -option[1])[: self.branch]
        floor = math.log(self.min_probability) if self.min_probability else -math.inf
        grown = [chain.then(unit, logprob) for unit, logprob in likeliest if logprob >= floor]
        return grown or [replace(chain, ended=True)]

    async def rank(self, state: ChainState, chain: Chain) -> list[tuple[Unit, float]]:
        """Candidates with their relevance, best first, ties in the passages' order; used texts are masked.

        Without the ranker, the whole knowledge graph in the passages' order, every relevance 0.
        """
        used = set(chain.texts)
        unused = [unit.text not in used for unit in state.pool]
        if not any(unused):
            return []
        if not self.ranker:
            if len(state.pool) > MAX_CANDIDATES:
                raise DataError(f"method.ranker=false: {len(state.pool)} candidates, {MAX_CANDIDATES} can be labelled")
            return [(unit, 0.0) for unit, is_unused in zip(state.pool, unused, strict=True) if is_unused]
        scores = await Rank(self.query(state.question, chain), tuple(unit.text for unit in state.pool))
        scored = [
            pair for pair, is_unused in zip(zip(state.pool, scores, strict=True), unused, strict=True) if is_unused
        ]
        kept = self.candidates if self.top is None else self.top
        return sorted(scored, key=lambda pair: -pair[1])[:kept]

    def query(self, question: str, chain: Chain) -> str:
        """What candidates are compared with."""
        asked, found = question, " ".join(chain.texts)
        if self.query_labels:
            kind = "knowledge triples" if self.units == "triples" else self.units
            asked, found = f"question: {asked}", f"{kind}: {found}"
        parts = (asked, found) if self.query_order == "question_first" else (found, asked)
        return ("\n" if self.query_labels else " ").join(filter(None, parts))

    async def select(self, state: ChainState, chain: Chain, candidates: list[Unit]) -> list[tuple[Unit | None, float]]:
        """Log-probability of each candidate and, where chains may stop, of None, the first option."""
        options = [None, *candidates] if self.adaptive_termination else [*candidates]
        choice = await Choose(self.selection_prompt(state, chain, candidates), labels(len(options)))
        return list(zip(options, choice.logprobs, strict=True))

    def selection_prompt(self, state: ChainState, chain: Chain, candidates: list[Unit]) -> Prompt:
        """Demonstrations are always of triples, also where chains are of sentences or documents (not in the paper)."""
        step = len(chain.units)
        return render(
            SELECT[self.layout],
            unit=self.units.removesuffix("s"),
            may_stop=self.adaptive_termination,
            number=step + 1,
            examples=[self.example(demonstration, step) for demonstration in self.shown(state, step)],
            question=state.question,
            so_far=chain.texts,
            options=self.lettered([unit.text for unit in candidates]),
        )

    def shown(self, state: ChainState, step: int) -> tuple[ChainDemonstration, ...]:
        """The demonstrations of this step, in the order to show them."""
        repeats = self.short_demonstrations == "last_step"
        enough = (each for each in state.demonstrations if repeats or len(self.selections(each)) > step)
        chosen = tuple(islice(enough, self.demonstration_count))
        return chosen if self.layout == "released" else nearest_last(chosen, self.demonstrations)

    def selections(self, demonstration: ChainDemonstration) -> list[Selection]:
        """Its steps; where chains may not stop, those that stop are left out."""
        return [each for each in demonstration.selections if self.adaptive_termination or each.choice is not None]

    def example(self, demonstration: ChainDemonstration, step: int) -> Example:
        """The demonstration's selection at this step (from 0), or its last one, if its chain is shorter."""
        selections = self.selections(demonstration)
        step = min(step, len(selections) - 1)
        selection = selections[step]
        options = self.lettered(selection.candidates)
        letter = "A" if selection.choice is None else options[selection.choice][0]
        return Example(demonstration.question, demonstration.chain, demonstration.chain[:step], options, letter)

    def lettered(self, candidates: list[str] | tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Candidates with their labels; A is kept for the option to stop, where there is one."""
        first = 1 if self.adaptive_termination else 0
        return tuple(zip(labels(len(candidates) + first)[first:], candidates, strict=True))

    async def read_chains(self, question: Question, chains: list[Chain]) -> Answer:
        """§3.4: the chains' texts in chain order (TRACE-Triple), or their passages by votes (TRACE-Doc)."""
        votes = Counter(unit.passage_id for chain in chains for unit in chain.units)
        evidence = tuple(passage_id for passage_id, _ in votes.most_common())  # ties: first seen first
        if self.context == "triples":
            context = self.triples_text(chains)
        else:
            passages = {passage.id: passage for passage in question.passages}
            context = self.documents_text([passages[passage_id] for passage_id in evidence])
        answer = await read(question, context, evidence, self.max_answer_tokens, READ[self.layout])
        flags = answer.flags if evidence else {**answer.flags, "no_chain": 1}
        return replace(answer, flags=flags, notes={"chains": [chain.note() for chain in chains]})

    def triples_text(self, chains: list[Chain]) -> str:
        """Each text once; the released layout leaves out brackets and semicolons of triples."""
        units = [unit for chain in chains for unit in chain.units]
        if self.layout == "released":
            return numbered(dict.fromkeys(" ".join(unit.parts) for unit in units), ". ")
        return "\n".join(dict.fromkeys(unit.text for unit in units))

    def documents_text(self, passages: list[Passage]) -> str:
        if self.layout == "released":
            return numbered((f"title: {passage.title}, text: {passage.text}" for passage in passages), ". ")
        return passages_text(passages)
