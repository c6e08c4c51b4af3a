"""The keys of a run that belong to no component."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from kgqa.config.keys import Key, to_plain
from kgqa.types import Json
from kgqa.util.settings import AddedLater, NotIdentity, Setting, Source, declared_fields
from kgqa.util.validators import Count, Positive, Share, Validator, matches

SCOPE = NotIdentity("the same answers to fewer or more questions")
PLACE = NotIdentity("where the files are", reported=False)
FolderName = Annotated[
    str,
    Validator(
        "must be a plain folder name, without slashes or a leading dot",
        lambda name: name != "" and name == Path(name).name and not name.startswith("."),
    ),
]
Folder = Annotated[
    str,
    Validator("set the run's folder, or leave it out", bool),
    Validator(
        "a run needs its own folder. Name one in it",
        # unlike `resolve`, it accepts a loop of links, which the disk then rejects
        lambda folder: os.path.realpath(folder) not in ("/", os.path.realpath(Path.home())),
    ),
]


@dataclass(frozen=True)
class RunSettings:
    """The keys of a run. `require_existing` is the key `kg.require_existing`."""

    limit: Annotated[
        Count | None,
        Setting("Maximum number of questions, the first in file order. null: all."),
        SCOPE,
    ] = None
    sample: Annotated[
        Count | Literal["trace_paper"] | None,
        Setting(
            "Number of questions sampled with `seed`, before `limit`. null: all. trace_paper: the 500 of TRACE's "
            "development sets (§C.1, as its released code samples them from the official train file)."
        ),
    ] = None
    sample_by: Annotated[
        Literal["hops", "type"] | None,
        Setting(
            "Balance `sample`: the same number of questions of each number of hops or of each type, while the file has "
            "enough of them. null: sample from all questions alike."
        ),
        AddedLater(),
    ] = None
    ids: Annotated[
        Annotated[tuple[str, ...], Validator("name at least one id, or leave it out", bool)] | None,
        Setting("Ids of the questions to answer, e.g. ids=[a,b]. null: all."),
        SCOPE,
    ] = None
    shard: Annotated[
        Annotated[
            str, matches(r"[1-9]\d{0,3}/[1-9]\d{0,3}", "must be like 3/64: the third of 64 parts")
        ]
        | None,
        Setting(
            "Part of the questions: 3/64 is the third of 64. After all parts, the same command without shard= joins "
            "them from the call cache. null: all."
        ),
        SCOPE,
    ] = None
    seed: Annotated[
        int, Setting("Random seed of sampled calls, `sample` and bootstrap intervals.")
    ] = 0
    repeat: Annotated[
        Count,
        Setting(
            "Number of the repetition, which changes the random seed of sampled calls. repeats=N runs 1 to N."
        ),
        AddedLater(),
    ] = 1
    prompts: Annotated[
        str | None,
        Setting(
            "Folder with templates that replace kgqa's, e.g. short with short/reader/answer.j2. shipped: kgqa's own. "
            "null: prompts/ of your folder before kgqa's."
        ),
        NotIdentity("the texts of its templates are in the hash of the code", reported=False),
    ] = None
    max_parallel_questions: Annotated[
        Count | None,
        Setting(
            "Questions processed in parallel. Memory grows with it. null: 64, or four times the parallel calls of the "
            "server."
        ),
        NotIdentity("the order of the work only", reported=False),
    ] = None
    run_name: Annotated[
        FolderName | None,
        Setting(
            "Name of the run. null: 8 hex digits, a hash of all settings that can change an answer, with scoring= its "
            "name, too."
        ),
        PLACE,
    ] = None
    output_dir: Annotated[
        Folder | None,
        Setting("Folder of the run. null: outputs/<dataset>/<method>/<model>/<run_name>."),
        PLACE,
    ] = None
    dry_run: Annotated[
        bool,
        Setting("Estimate calls, tokens, time and cost, without calling a model."),
        NotIdentity("a dry run writes no files", reported=False),
    ] = False
    gpus: Annotated[
        Count | tuple[int | str, ...] | None,
        Setting(
            "GPUs to plan with: a number, or a list as in CUDA_VISIBLE_DEVICES, e.g. [0,1]. null: all visible ones. "
            "dry_run=true prints the plan, on any machine."
        ),
        NotIdentity("where it runs", reported=False),
    ] = None
    gpu_memory: Annotated[
        Positive | None,
        Setting("GB of each GPU, for the plan. null: as nvidia-smi lists it, otherwise 80."),
        NotIdentity("where it runs", reported=False),
    ] = None
    max_calls: Annotated[
        Count,
        Setting("Maximum number of calls for one question. A question with more fails."),
        NotIdentity("stops a method that makes calls forever", reported=False),
    ] = 1000
    max_failure_rate: Annotated[
        Share,
        Setting("A run with a higher share of failed questions fails, with exit code 2."),
        NotIdentity("decides when a run counts as failed", reported=False),
    ] = 0.05
    allow_trained_questions: Annotated[
        bool,
        Setting(
            "Run on questions that an adapter or encoder was trained on, with a warning in the report."
        ),
        NotIdentity("a permission"),
    ] = False
    scoring: Annotated[
        str | None,
        Setting(
            "Rules of EM and F1: hotpotqa | 2wiki | musique | drop | ircot | trace | kgp | safe | hipporag | "
            "linearrag | arag | r1_searcher. null: those of the dataset."
        ),
        NotIdentity("how answers are scored"),
    ] = None
    require_existing: Annotated[
        bool,
        Setting("Stop if triples are missing, instead of extracting them."),
        NotIdentity("forbids to extract triples"),
    ] = False
    roles: Annotated[
        dict[str, str | None],
        Setting("Models per role."),
        NotIdentity("added by the experiment, without the judge's"),
    ] = field(default_factory=dict)

    @property
    def call_seed(self) -> str:
        """Return what the seeds of sampled calls are made from."""
        return f"{self.seed}" if self.repeat == 1 else f"{self.seed} repeat {self.repeat}"

    def identity(self) -> dict[str, Json]:
        """Return the settings that can change an answer."""
        values = {
            name: (field, getattr(self, name))
            for name, field in declared_fields(type(self)).items()
        }
        return {
            name: value for name, (field, value) in values.items() if field.is_in_identity(value)
        }


# a method that does not search has no choice of these
SEARCH_GROUPS = ("retriever", "reranker", "ranker", "graph")
REQUIRE_EXISTING = "kg.require_existing"
ANY = (
    "[PRESET][+ADAPTER][@ENGINE], also as .model, .engine and .engine.KEY, e.g. roles.judge.engine.tensor_parallel=4. "
    "null: the model of the run."
)
AS_READER = "[PRESET][+ADAPTER][@ENGINE]. null: the model of roles.reader."
ROLES: Mapping[str, Setting] = {
    "reader": Setting(f"Answers from passages or triples: {ANY}"),
    "selector": Setting(f"Chooses triples in TRACE, and passages: {ANY}"),
    "extractor": Setting(f"Extracts triples, and the descriptions of lightrag: {ANY}"),
    "judge": Setting(f"Judges answers: {ANY}"),
    "feedback": Setting(f"Checks the steps of SAFE: {ANY}"),
    "agent": Setting(f"Walks the graph in KGP: {ANY}"),
    "explorer": Setting(f"Explores in KnowTrace: {AS_READER}"),
    "completer": Setting(f"Completes in KnowTrace: {AS_READER}"),
    "teacher": Setting(f"Writes training examples: {AS_READER}"),
    "fact_filter": Setting(
        "Filters the facts of retriever=hipporag, lists the entities of hipporag_1 and the keywords of lightrag: "
        f"{AS_READER}"
    ),
    "summarizer": Setting(f"Writes the summaries of retriever=raptor: {AS_READER}"),
}
SERVER_KEY = Setting(
    "Address of a running server, e.g. http://127.0.0.1:8000/v1. Implies engine=openai and the model that it serves."
)
DATASET_KEYS: Mapping[str, Setting] = {
    "verified": Setting(
        "Folder of a run with method=verify: use only its valid questions. null: all."
    ),
    "perturb": Setting(
        "Change each question: remove_gold | distractors:K | swap_answer | other_answer | shuffle. null: unchanged."
    ),
}


def default_config() -> dict[str, Json]:
    """Return the keys of a run that belong to no choice, with their defaults."""
    config: dict[str, Json] = {"server": None}
    for name, declared in declared_fields(RunSettings).items():
        if name not in ("require_existing", "roles"):
            config[name] = to_plain(declared.default)
    return {
        **config,
        "kg": {"require_existing": False},
        "dataset": dict.fromkeys(DATASET_KEYS),
        "roles": dict.fromkeys(ROLES),
    }


def list_run_keys() -> tuple[Key, ...]:
    """Return the keys of a run that belong to no choice."""
    keys = [Key("server", None, SERVER_KEY.meaning, Source())]
    for name, declared in declared_fields(RunSettings).items():
        if name != "roles":
            key = REQUIRE_EXISTING if name == "require_existing" else name
            keys.append(Key(key, to_plain(declared.default), declared.setting.meaning, Source()))
    keys += (
        Key(f"dataset.{name}", None, setting.meaning, Source())
        for name, setting in DATASET_KEYS.items()
    )
    keys += (
        Key(f"roles.{role}", None, setting.meaning, Source()) for role, setting in ROLES.items()
    )
    return tuple(keys)
