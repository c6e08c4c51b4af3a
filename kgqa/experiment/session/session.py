"""`kgqa run`: questions to answers to a folder with everything that explains them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose, groups
from kgqa.experiment.config.settings import NOT_IDENTITY, REACHING, Settings
from kgqa.experiment.prepare.triples import Graph
from kgqa.experiment.run.executing import Outcomes, execute, yaml_text
from kgqa.experiment.run.judging import Judged, chosen_judge, judge_answers, judge_engines
from kgqa.experiment.run.measuring import scored_question
from kgqa.experiment.run.tracking import chosen_tracker
from kgqa.experiment.session.engines import Engines, role_nodes
from kgqa.experiment.session.runner import Workbench
from kgqa.judge.judges import AnyJudge
from kgqa.protocols import Ranker, Retriever
from kgqa.report.summary import print_summary
from kgqa.retrieval.graphs.links import PassageGraph
from kgqa.runtime.cache import CallCache
from kgqa.runtime.costs import NOTHING, Spent
from kgqa.runtime.folder import run_name
from kgqa.scoring.metrics import profile_formula
from kgqa.storage import call_cache, outputs
from kgqa.types import Json, Question

if TYPE_CHECKING:
    from rich.console import Console


class Session:
    """One command's configuration, questions and services; leaving it closes what was opened."""

    def __init__(
        self, overrides: Sequence[str], config: Mapping[str, Any] | None = None, console: Console | None = None
    ) -> None:
        """`config`: what `compose` gave for these overrides earlier, which then holds even if conf/ has changed."""
        from rich.console import Console

        self.overrides = list(overrides)
        self.config = compose(overrides) if config is None else dict(config)
        self.settings = Settings.of(self.config)
        self.console = console or Console(width=None if sys.stdout.isatty() else 120)
        self.benches: list[Workbench] = []  # the method's, and the judge's
        self._open = ExitStack()
        self._models = self._open.enter_context(ExitStack())
        said = logging.getLogger("kgqa")  # what takes long and is no call, such as the conversion of weights
        said_here = _Said(self.console)
        said.setLevel(logging.INFO)
        said.addHandler(said_here)
        self._open.callback(said.removeHandler, said_here)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    @cached_property
    def method(self) -> Any:
        return build(self.config["method"], "method")

    @cached_property
    def source(self) -> Any:
        """The dataset as its files give it."""
        return build(self.config["dataset"], "dataset")

    @cached_property
    def dataset(self) -> Any:
        """The same, its questions with their collections if such were chosen."""
        node = self.config.get("collection")
        return self.source if node is None else build(node, "collection").over(self.source)

    @cached_property
    def questions(self) -> list[Question]:
        """Those asked for by `ids` and `limit`, in file order; the whole file is read, so that all of it is checked."""
        questions = list(self.source.questions())
        if self.settings.ids is not None:
            known = {question.id for question in questions}
            for wanted in self.settings.ids:
                if wanted not in known:
                    hint = nearest(wanted, known) if len(known) < 100 else "see the data file for its ids"
                    raise ConfigError(f"ids={wanted}: no such question in dataset={self.name('dataset')}; {hint}")
            questions = [question for question in questions if question.id in self.settings.ids]
        questions = questions[: self.settings.limit]
        return list(self.dataset.collect(questions)) if "collection" in self.choices else questions

    @cached_property
    def bench(self) -> Workbench:
        cache = CallCache(call_cache())
        self._models.callback(cache.close)
        engines = Engines(role_nodes(self.config) if self.asks_models else {})
        bench = Workbench(cache, engines, self.ranker)
        self._models.callback(bench.close)
        self.benches.append(bench)
        return bench

    def spent(self) -> Spent:
        """What this session's calls were paid for so far, whether or not it comes to an end."""
        return sum((bench.spent() for bench in self.benches), NOTHING)

    @cached_property
    def judge(self) -> AnyJudge | None:
        return chosen_judge(self.config)

    def judged(self, outcomes: Outcomes) -> Judged | None:
        """The method's answers before the judge, if there is one; ends the method's own engines, to make room."""
        if self.judge is None:
            return None
        self._models.close()
        rows = [scored_question(question, outcomes[question.id], self.profile) for question in self.questions]
        texts = {question.id: question.text for question in self.questions}
        return judge_answers(self, self.judge, rows, texts)

    def ranker(self, group: str) -> Ranker:
        """The ranker chosen in a group (ranker or reranker), built once."""
        ranker: Ranker = self._chosen(group)
        return ranker

    @property
    def retriever(self) -> Retriever:
        retriever: Retriever = self._chosen("retriever")
        return retriever

    @property
    def passage_graph(self) -> PassageGraph:
        graph: PassageGraph = self._chosen("graph")
        return graph

    def _chosen(self, group: str) -> Any:
        node = self.config.get(group)
        if node is None:
            raise ConfigError(f"{group}=null: method={self.name('method')} needs one; {nearest('', groups()[group])}")
        return self.bench.engines.pool.shared(node, lambda: build(node, group))

    def check(self) -> None:
        """Raise whatever is wrong with the configuration or the data before anything is asked or written."""
        profile_formula(self.profile)
        chosen_tracker(self.config)
        self.bench.engines.identities()
        _ = self.questions
        for group in ("retriever", "graph", "ranker", "reranker"):
            if group in self.choices or group in self.method.uses:
                self._chosen(group)
        if self.judge and not self.asks_models:
            raise ConfigError(f"judge={self.name('judge')}: method={self.name('method')} answers nothing; leave it out")
        if self.judge:
            judge_engines(self.config, self.judge).identities()

    @property
    def asks_models(self) -> bool:
        return bool(self.method.uses & {"model", "triples"})

    @property
    def searches(self) -> bool:
        return bool(self.method.uses & {"search", "pool"})

    @cached_property
    def choices(self) -> dict[str, str]:
        """What was chosen in each group that this run makes use of."""
        uses = self.method.uses
        used = {
            "model": self.asks_models,
            "engine": self.asks_models,
            "kg": "triples" in uses,
            "retriever": self.searches,
            "graph": "graph" in uses,
            "ranker": bool(uses & {"ranker", "triples"}),  # triples: it may pick demonstrations
            "reranker": "reranker" in uses,
        }
        return {group: name for group, name in self.config["choices"].items() if name and used.get(group, True)}

    @property
    def profile(self) -> str:
        return str(self.settings.profile or self.config["dataset"]["profile"])

    def graph(self) -> Graph:
        return Graph(self.config, self.bench)

    def name(self, group: str) -> str:
        """What was chosen in a group, e.g. the dataset's name."""
        return str(self.config["choices"][group])

    @cached_property
    def identity(self) -> dict[str, Json]:
        """Everything that can change an answer: the configuration, with the data's hash in place of its path."""
        kept = {key: value for key, value in self.config.items() if key not in (*NOT_IDENTITY, "graph", "collection")}
        # in the hash, or without influence on answers
        elsewhere = ("path", "files", "questions_file", "corpus", "aliases", "profile", "family")
        dataset = {key: value for key, value in self.config["dataset"].items() if key not in elsewhere}
        triples = {key: value for key, value in self.config["kg"].items() if key != "offline"}
        model = {key: value for key, value in self.config["model"].items() if key != "prices"}
        # a server that is named may move
        reaching = (*REACHING, "base_url") if self.config["engine"].get("deployment") else REACHING
        engine = {key: value for key, value in self.config["engine"].items() if key not in reaching}
        uses = self.method.uses
        return {
            **kept,
            "engine": engine if self.asks_models else None,
            "dataset": {**dataset, "sha256": self.source.sha256},
            **({"collection": dict(self.dataset.identity())} if "collection" in self.choices else {}),
            "model": model if self.asks_models else None,
            "roles": {role: each for role, each in kept["roles"].items() if role != "judge" and self.asks_models},
            "kg": triples if "triples" in uses else None,
            "ranker": kept["ranker"] if "ranker" in self.choices else None,
            "reranker": kept.get("reranker") if "reranker" in uses else None,
            "retriever": dict(self.retriever.identity()) if self.searches else None,
            **({"graph": dict(self.passage_graph.identity())} if "graph" in uses else {}),
            "corpus": dict(self.dataset.corpus_identity()) if "search" in uses else None,
        }

    @cached_property
    def folder(self) -> Path:
        if self.settings.out is not None:
            return Path(self.settings.out)
        run = self.settings.name or run_name(self.identity)
        third = "model" if self.asks_models else "retriever"
        return outputs() / self.name("dataset") / self.name("method") / self.name(third) / run


class _Said(logging.Handler):
    """Log messages as plain lines above the progress display."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)


def run(overrides: Sequence[str]) -> int:
    """Run one experiment, or plan it with `dry_run=true`; the run's folder is the last line printed."""
    with Session(overrides) as session:
        session.check()
        if session.settings.dry_run:
            from kgqa.experiment.run.planning import plan

            return plan(session)
        executed = execute(session)
        print_summary(session.console, session.choices, executed.metrics, executed.errors)
        session.console.print(f"report: {session.folder / 'report.html'}", highlight=False, soft_wrap=True)
        sys.stdout.write(f"{session.folder}\n")  # plain, so that scripts can take it
        sys.stdout.flush()
    return 0


def print_configuration(overrides: Sequence[str]) -> None:
    """The configuration a command line stands for, as YAML."""
    sys.stdout.write(yaml_text({key: value for key, value in compose(overrides).items() if key != "choices"}))
