"""TRACE (Fang et al., Findings of EMNLP 2024): beam search for chains of triples, from which the reader answers.

§3.3 and Algorithm 1: at every step a ranker reduces the question's knowledge graph to K candidates. A selector gets a
multiple-choice question and gives a distribution over the candidates and the option to stop.

Part I of the algorithm, the triples of a passage (§3.2), is `kgqa.kg.extraction`. It runs once per passage and model
before the first question. Roles: `selector` chooses, `reader` answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, ClassVar, Literal

from kgqa.calls import Choose, Triples, gather, labels, rank
from kgqa.errors import ConfigError, DataError
from kgqa.methods.steps.reader import number_contexts, passages_text, read
from kgqa.prompting import render
from kgqa.prompting.demonstrations import ChainDemonstration, Mode, choose_demonstrations
from kgqa.protocols import Need
from kgqa.types import Answer, Json, Passage, Prompt, Question
from kgqa.util.sentences import sentences
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Validator

# number of labels, less one for the option to stop
MAX_CANDIDATES = 727
Layout = Literal["figures", "released", "prefixed"]
SELECT: dict[Layout, str] = {
    "figures": "trace/select",
    "released": "trace/select_released",
    "prefixed": "trace/select_begun",
}


@dataclass(frozen=True, slots=True)
class Unit:
    """One element of a chain: a triple, a sentence or a document."""

    text: str  # as prompts show it
    # head, relation and tail; one part otherwise
    parts: tuple[str, ...]
    passage_id: str


@dataclass(frozen=True, slots=True)
class Chain:
    units: tuple[Unit, ...] = ()
    # log of the product of its choices' probabilities, the choice to stop included
    score: float = 0.0
    # the selector stopped it, or nothing was left to add
    ended: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(unit.text for unit in self.units)

    def extend_with(self, unit: Unit | None, logprob: float) -> Chain:
        """Return this chain after one more choice; None is the choice to stop."""
        added = () if unit is None else (unit,)
        return Chain(self.units + added, self.score + logprob, ended=unit is None)

    def note(self) -> Json:
        triples = [[*unit.parts, unit.passage_id] for unit in self.units]
        return {"score": self.score, "ended": self.ended, "triples": triples}


def top_chains(chains: list[Chain], count: int) -> list[Chain]:
    """Return the likeliest chains, ties in the given order, without repeated chains.

    Two passages can contain the same triple, so the beam can reach equal chains twice.
    """
    distinct: dict[tuple[tuple[str, ...], bool], Chain] = {}
    for chain in sorted(chains, key=lambda chain: -chain.score):
        distinct.setdefault((chain.texts, chain.ended), chain)
    return list(distinct.values())[:count]


def log_softmax(candidates: list[tuple[float, Unit]]) -> list[tuple[Unit | None, float]]:
    """Turn the scores of the ranker into log-probabilities, for chains without a selector (not in the paper)."""
    highest = max(score for score, _ in candidates)
    log_total = highest + math.log(sum(math.exp(score - highest) for score, _ in candidates))
    return [(unit, score - log_total) for score, unit in candidates]


@dataclass(frozen=True, slots=True)
class ChainState:
    """The constant part of the search for the chains of one question."""

    question: str
    # the knowledge graph, in the passages' order
    pool: tuple[Unit, ...]
    demonstrations: tuple[ChainDemonstration, ...] = ()  # few-shot examples, the nearest first


Candidates = Annotated[
    Count,
    Validator(f"at most {MAX_CANDIDATES} can be labeled", lambda number: number <= MAX_CANDIDATES),
]
Probability = Annotated[float, Validator("must be in [0, 1)", lambda share: 0 <= share < 1)]


@dataclass(frozen=True)
class Trace:
    """The method, with the fields of conf/method/trace.yaml.

    Each of `max_length` steps keeps `beam` chains. A chain is extended by its `branch` likeliest choices among
    `candidates` units. The reader gets `chains` chains of the last beam.
    """

    context: Annotated[
        Literal["triples", "documents"],
        Setting(
            "What the reader gets: triples (TRACE-Triple) | documents (TRACE-Doc).", paper="§3.4"
        ),
    ] = "triples"
    units: Annotated[
        Literal["triples", "sentences", "documents"],
        Setting("What chains are built of: triples | sentences | documents.", paper="Tables 2, 6"),
    ] = "triples"
    candidates: Annotated[
        Candidates,
        Setting(
            "K: number of triples that the ranker offers to the selector at each step.",
            paper="tuned in {15, 20, 25, 30} (§C.4), best for HotpotQA in Fig. 10",
            code="released code",
        ),
    ] = 20
    ranker: Annotated[
        bool,
        Setting(
            'Rank the candidates. false: all units are candidates ("w/o Triple Ranker").',
            paper="Tables 2, 6",
        ),
    ] = True
    selector: Annotated[
        bool,
        Setting(
            'Let the model choose among the candidates. false: the ranker\'s best `branch` ("w/o Triple Selector").',
            paper="Tables 2, 6",
        ),
    ] = True
    top: Annotated[
        Count | None,
        Setting(
            'Number of best triples that the reader gets instead of chains ("w. Top-T Triples"): 10, 20 or 25. '
            "null: chains.",
            paper="Tables 2, 6",
        ),
    ] = None
    max_length: Annotated[
        Count,
        Setting("L: maximum number of triples in a chain.", paper="§C.4; 1 to 6 in Figs. 4 and 8"),
    ] = 4
    beam: Annotated[
        Count, Setting("Beam width: number of chains kept at each step.", paper="§C.4")
    ] = 5
    branch: Annotated[
        Count, Setting("b: number of choices tried for each chain at each step.", paper="§C.4")
    ] = 5
    chains: Annotated[
        Count,
        Setting(
            "R: number of chains given to the reader, at most `beam`.",
            paper="§C.4; 1 to 20 in Fig. 9",
        ),
    ] = 5
    min_probability: Annotated[
        Probability, Setting("Drop less likely choices. 0: keep all.", code="released code")
    ] = 1e-4
    adaptive_termination: Annotated[
        bool,
        Setting(
            'Let the selector end a chain early. false: all chains have max_length ("Fixed-Length Reasoning '
            'Chains", Fig. 11).',
            paper="§3.3",
        ),
    ] = True
    query_order: Annotated[
        Literal["question_first", "triples_first"],
        Setting(
            "Order in the ranker's query: question_first | triples_first, as in the released code.",
            paper="§3.3",
        ),
    ] = "question_first"
    query_labels: Annotated[
        bool,
        Setting(
            "Name the parts of the ranker's query, as the released code does. false: a plain concatenation.",
            paper="§3.3",
        ),
    ] = False
    demonstrations: Annotated[
        Mode,
        Setting(
            "Few-shot examples of the selector: adaptive, the most similar ones | fixed | none.",
            paper="§C.4; Table 9",
        ),
    ] = "adaptive"
    demonstration_count: Annotated[
        Count,
        Setting("Few-shot examples in the selector's prompt: 1 to 10.", paper="§C.4; Table 9"),
    ] = 3
    few_shot: Annotated[
        tuple[ChainDemonstration, ...],
        Setting(
            "24 per family: hotpotqa, 2wiki, musique, iirc. Or another file, or the authors'.",
            ours="the examples are ours",
        ),
    ] = field(kw_only=True)
    short_demonstrations: Annotated[
        Literal["last_step", "next"],
        Setting(
            "What to show if an example's chain has fewer steps: last_step | next, the next nearest "
            "example instead (the "
            "released code).",
            ours="our choice",
            only_if="demonstrations=adaptive|fixed",
        ),
    ] = "last_step"
    layout: Annotated[
        Layout,
        Setting(
            "Form of the prompts: figures, as in Figs. 6 and 7 | released, as in the released code | prefixed, as "
            'figures with "Next:" before the selector\'s letter (ours, for small models and few candidates).',
            paper="Figs. 6, 7",
        ),
    ] = "figures"
    reader_layout: Annotated[
        Layout | None, Setting("Layout of the reader's prompt. null: as layout.", ours="our choice")
    ] = None
    max_answer_tokens: Annotated[
        Count, Setting("Maximum tokens of the answer.", code="released code")
    ] = 25

    def __post_init__(self) -> None:
        if self.chains > self.beam:
            raise ConfigError(
                f"method.chains={self.chains}: more than method.beam={self.beam}, the chains that are kept. "
                f"Set method.chains={self.beam}, or method.beam={self.chains}"
            )
        if not self.ranker and (self.top is not None or not self.selector):
            raise ConfigError(
                "method.ranker=false: method.top and method.selector=false need the ranker"
            )
        if self.demonstrations != "none" and self.demonstration_count > len(self.few_shot):
            count, available = self.demonstration_count, len(self.few_shot)
            raise ConfigError(
                f"method.demonstration_count={count}: the file has only {available} chains"
            )

    reads_passages: ClassVar[bool] = True

    @property
    def uses(self) -> frozenset[Need]:
        needs: set[Need] = {"model"}
        if self.units == "triples":
            needs.add("triples")
        if self.ranker:
            needs.add("ranker")
        if self.selector and self.top is None and self.demonstrations == "adaptive":
            needs.add("demonstrations_ranker")
        return frozenset(needs)

    async def answer(self, question: Question) -> Answer:
        """Answer from the best chains.

        Evidence: the passages of the chains, most votes first. Notes: the chains, best first. Flag `no_chain`: all
        chains are empty (no triples, or the selector stopped at once), so the reader answers without context.
        """
        passages = {passage.id: passage for passage in question.passages}.values()
        pool = tuple(
            unit for units in await gather(*map(self.split_units, passages)) for unit in units
        )
        state = ChainState(question.text, pool)
        if not pool:
            chains = [Chain()]
        elif self.top is not None:
            # Table 2, "w. Top-T Triples": the ranking is one chain
            chains = [
                Chain(tuple(unit for _, unit in (await self.rank(state, Chain()))[: self.top]))
            ]
        else:
            chains = await self.build_chains(state)
        return await self.read_chains(question, chains[: self.chains])

    async def split_units(self, passage: Passage) -> list[Unit]:
        """Return the units of a passage. Sentences are those of the dataset, or those of `sentences`."""
        if self.units == "triples":
            triples = await Triples(passage)
            return [Unit(str(t), (t.head, t.relation, t.tail), passage.id) for t in triples]
        if self.units == "documents":
            texts = [f"{passage.title}: {passage.text}"]
        else:
            texts = list(passage.sentences or sentences(passage.text))
        lines = [" ".join(text.split()) for text in texts]  # an option is one line
        return [Unit(line, (line,), passage.id) for line in lines if line]

    async def build_chains(self, state: ChainState) -> list[Chain]:
        """Run Algorithm 1, Part II, with adaptive termination, and return the final beam, best first."""
        if self.selector:
            state = replace(state, demonstrations=await self.nearest_demonstrations(state.question))
        beam = [Chain()]
        for _ in range(self.max_length):
            if all(chain.ended for chain in beam):
                break
            extended = await gather(*(self.extend(state, chain) for chain in beam))
            beam = top_chains([chain for chains in extended for chain in chains], self.beam)
        return beam

    async def nearest_demonstrations(self, question: str) -> tuple[ChainDemonstration, ...]:
        """Return the few-shot examples for the selections of a question, the nearest first."""
        count = (
            len(self.few_shot) if self.short_demonstrations == "next" else self.demonstration_count
        )
        return await choose_demonstrations(self.few_shot, self.demonstrations, count, question)

    async def extend(self, state: ChainState, chain: Chain) -> list[Chain]:
        """Return the chain after each of its `branch` likeliest choices, or a finished chain without a call.

        A chain also ends if no unit is left, or if every choice is less likely than `min_probability`.
        """
        if chain.ended:
            return [chain]
        candidates = await self.rank(state, chain)
        if not candidates:
            return [replace(chain, ended=True)]
        if self.selector:
            options = await self.select(state, chain, [unit for _, unit in candidates])
        else:
            options = log_softmax(candidates)
        likeliest = sorted(options, key=lambda option: -option[1])[: self.branch]
        floor = math.log(self.min_probability) if self.min_probability else -math.inf
        extensions = [
            chain.extend_with(unit, logprob) for unit, logprob in likeliest if logprob >= floor
        ]
        return extensions or [replace(chain, ended=True)]

    async def rank(self, state: ChainState, chain: Chain) -> list[tuple[float, Unit]]:
        """Return the unused candidates with their relevance, best first, ties in the order of the passages.

        Without the ranker these are all units of the knowledge graph with relevance 0.
        """
        used = set(chain.texts)
        if all(unit.text in used for unit in state.pool):
            return []
        if not self.ranker:
            if len(state.pool) > MAX_CANDIDATES:
                raise DataError(
                    f"method.ranker=false: {len(state.pool)} candidates, {MAX_CANDIDATES} can be labeled"
                )
            return [(0.0, unit) for unit in state.pool if unit.text not in used]
        ranked = await rank(self.query(state.question, chain), state.pool, attrgetter("text"))
        unused = [(score, unit) for score, unit in ranked if unit.text not in used]
        return unused[: self.candidates if self.top is None else self.top]

    def query(self, question: str, chain: Chain) -> str:
        """Return the query of the ranker."""
        first, second = question, " ".join(chain.texts)
        if self.query_labels:
            kind = "knowledge triples" if self.units == "triples" else self.units
            first, second = f"question: {first}", f"{kind}: {second}"
        parts = (first, second) if self.query_order == "question_first" else (second, first)
        return ("\n" if self.query_labels else " ").join(filter(None, parts))

    async def select(
        self, state: ChainState, chain: Chain, candidates: list[Unit]
    ) -> list[tuple[Unit | None, float]]:
        """Return the log-probability of each option. With adaptive termination, the first option is None (stop)."""
        options = [None, *candidates] if self.adaptive_termination else [*candidates]
        choice = await Choose(self.selection_prompt(state, chain, candidates), labels(len(options)))
        return list(zip(options, choice.logprobs, strict=True))

    def selection_prompt(self, state: ChainState, chain: Chain, candidates: list[Unit]) -> Prompt:
        """Render the prompt. Few-shot examples have triples, also for sentences and documents (not in the paper)."""
        step = len(chain.units)
        return render(
            SELECT[self.layout],
            unit=self.units.removesuffix("s"),
            may_stop=self.adaptive_termination,
            number=step + 1,
            examples=self.step_examples(state, step),
            question=state.question,
            so_far=chain.texts,
            options=self.label_options([unit.text for unit in candidates]),
        )

    def step_examples(self, state: ChainState, step: int) -> list[Mapping[str, Json]]:
        """Return the few-shot examples of this step (from 0) in the order of the prompt.

        An example shows the selection at this step, or the last one of a shorter chain. Without adaptive termination
        it has no step that stops.
        """
        examples = list[Mapping[str, Json]]()
        for labelled in state.demonstrations:
            steps = [
                each
                for each in labelled.selections
                if self.adaptive_termination or each.choice is not None
            ]
            if len(steps) <= step and self.short_demonstrations == "next":
                continue
            number = min(step, len(steps) - 1)
            options, choice = self.label_options(steps[number].candidates), steps[number].choice
            letter = "A" if choice is None else options[choice][0]
            example = {
                "question": labelled.question,
                "chain": labelled.chain,
                "so_far": labelled.chain[:number],
            }
            examples.append({**example, "options": options, "letter": letter})
        examples = examples[: self.demonstration_count]
        # the nearest is next to the question (not in the paper)
        is_last = self.layout != "released" and self.demonstrations == "adaptive"
        return examples[::-1] if is_last else examples

    def label_options(self, candidates: list[str] | tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Return candidates with their labels. With adaptive termination, A is the option to stop."""
        first = 1 if self.adaptive_termination else 0
        return tuple(zip(labels(len(candidates) + first)[first:], candidates, strict=True))

    async def read_chains(self, question: Question, chains: list[Chain]) -> Answer:
        """Answer from the texts of the chains (TRACE-Triple), or from their passages by votes (TRACE-Doc) (§3.4)."""
        units = [unit for chain in chains for unit in chain.units]
        votes = Counter(unit.passage_id for unit in units)
        evidence = tuple(
            passage_id for passage_id, _ in votes.most_common()
        )  # ties: first seen first
        is_released = (
            self.reader_layout or self.layout
        ) == "released"  # without brackets and semicolons
        if self.context == "triples":
            texts = dict.fromkeys(
                " ".join(unit.parts) if is_released else unit.text for unit in units
            )
            context = number_contexts(texts, ". ") if is_released else "\n".join(texts)
        else:
            by_id = {passage.id: passage for passage in question.passages}
            passages = [by_id[passage_id] for passage_id in evidence]
            released = (f"title: {passage.title}, text: {passage.text}" for passage in passages)
            context = number_contexts(released, ". ") if is_released else passages_text(passages)
        template = "trace/answer_released" if is_released else "reader/answer"
        answer = await read(question, context, evidence, self.max_answer_tokens, template)
        flags = {**answer.flags, "no_chain": not evidence}
        return replace(answer, flags=flags, notes={"chains": [chain.note() for chain in chains]})
