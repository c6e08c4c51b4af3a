"""A wrong command is one line that says what to change; its exit code is 2, and it leaves nothing behind."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.e2e.conftest import DEMO, QUICK, Kgqa, refused

TUNE = "tune method=ircot method.scope=own method.passages_per_step=1,4 "
SOME = "reproduce trace/table1 dataset=demo 'only=w/o documents,TRACE-Triple,HotPotQA' "
CELL = "reproduce ircot/table4 'only=Flan-T5-XXL? OneR QA? Direct,HotpotQA' dataset=demo model=smollm2_135m "
WRONG = [
    (
        "collect kgp dataset=demo --from last",
        "last: no finished run in outputs/. List runs: kgqa runs",
    ),
    ("collect kgp dataset=demo collect.agent=oracle", "collect.agent=oracle"),
    ("collect mdr dataset=pdf limit=2", "no examples: fewer than two passages in an order"),
    ("collect mdr dataset=demo collect.held_out=2", "must be between 0 and 1"),
    ("collect knowtrace", "needs finished runs. Name them: --from RUN"),
    ("collect knowtrace collect.filter=some", "collect.filter=some: must be"),
    (
        "data download to=elsewhere",
        "dataset= is missing. Example: kgqa data download dataset=musique",
    ),
    ("data download dataset=musique from=nowhere", "from=nowhere: no such file or folder"),
    ("data download dataset=iirc from=hub", "not on Hugging Face's hub"),
    (
        "data download dataset=flashrag",
        "has no download. Name your own file or folder: dataset.path=PATH",
    ),
    (
        "demo method=golden",
        "method=golden: kgqa demo sets method itself. Use kgqa run method=golden …",
    ),
    ("show lst", "lst: no finished run matches. Did you mean last?"),
    ("evaluate a --subset", "--subset: works only with --predictions"),
    ("evaluate a limit=3", "limit=3: works only with --predictions. A run has its own questions"),
    ("evaluate --predictions nowhere.jsonl dataset=demo", "nowhere.jsonl: cannot be read"),
    ("evaluate a profile=hotpotqa", "set by scoring=NAME, e.g. scoring=hotpotqa"),
    ("compare a b limit=3", "limit=3: not a key of kgqa compare"),
    ("compare a b difference=0", "difference=0: must be from 0.01 to 100 points"),
    ("plan a b difference=1e-300", "difference=1e-300: must be from 0.01 to 100 points"),
    ("compare a b seed=x", "seed=x: must be an integer"),
    ("evaluate last other=second", "other=second: only with --calibrate"),
    ("data check-index dataset=demo", "no finished index. Run: kgqa data index dataset=demo"),
    ("data index retriever.fields.title=-1", "above 0"),
    ("data index retriever.k1=0.9", "retriever.k1"),
    ("kg link dataset=demo", "set a graph: graph=NAME. Choose from: entities"),
    ("run method=kgp ranker@graph.encoder=minilm limit=2", "ranker@graph.encoder=minilm"),
    ("reproduce trace/table1 only=Nothing", "trace/table1 has no such row or column"),
    ("reproduce trace/table1 output_dir=x", "output_dir=x: every cell has its own run folder"),
    ("reproduce trace/table1 margin=-1", "margin=-1: must be above 0"),
    ("reproduce trace/table2 protocol=paper", "trace/table2 has no other protocol"),
]
WRONG_OVERRIDES = [
    ("engine=null", "no such engine"),
    ("+@=x", "+@=x"),
    ("ranker=null", "ranker=null: method=trace needs one"),
    ("limit=abc", "limit=abc: must be an integer or null"),
    (
        "method.beam=[3,5]",
        "must be an integer. Several values are a sweep, without brackets: kgqa run -m method.beam=3,5",
    ),
    (
        "method.beam=3-5",
        "must be an integer. For a range of values: kgqa run -m 'method.beam=range(3,6)'",
    ),
    ("method.beam=3..5", "kgqa run -m 'method.beam=range(3,6)'"),
    ("ids=[]", "ids=[]: name at least one id"),
    ("max_failure_rate=-0.1", "max_failure_rate=-0.1"),
    ("method.beam=0", "method.beam=0: must be at least 1"),
    ("method.context=tripels", "method.context=tripels"),
    ("+dataset.verified=[null]", "dataset.verified=[null]: expected the folder of a run, or null"),
    ("run_name=a/b", "run_name=a/b: must be a plain folder name"),
    ("scoring=squad", "squad"),
    ("limit", "expected key=value"),
    ("seed=1,2", "seed=1,2: several values are a sweep: kgqa run -m seed=1,2. Write a list as"),
    ("seed=range(1,3)", "several values are a sweep: kgqa run -m 'seed=range(1,3)'."),
    (
        "prompts=a,b",
        "prompts=a,b: several values are a sweep: kgqa run -m prompts=a,b. Write a list as prompts=[a,b], a text",
    ),
    (
        "dataset.path=a#b",
        "dataset.path=a#b: cannot be read. Close all brackets, or put quotes around",
    ),
    ("dataset.path=cut.jsonl", "cut.jsonl:2"),
    ("engine._target_=7", "kgqa: engine._target_=7: no module in this name"),
    ("limit=" + "9" * 5_000, "kgqa: limit=999"),
    ("method.few_shot.path=" + "x" * 5_000, "xxx: File name too long"),
]
WRONG_WITHOUT_WEIGHTS = [
    ("kg build --corpus ids=[2hop__demo_01]", "Set limit=N for N passages"),
    (SOME + "hydra/sweeper=optuna", "hydra/sweeper=optuna: not used. A table names its cells"),
    ("run experiment=results engine=scripted", "Remove experiment=results, or use engine=vllm"),
    (
        "run -m method=golden limit=2,5",
        "these values of limit= do not change the answers of method=golden. Make two sweeps, or choose one value",
    ),
    (
        "run -m method=retrieve_read method.passages=3,5 run_name=x",
        "retrieve_read/scripted/x: run_name= is equal. Make two sweeps, or remove run_name=",
    ),
    ("run -m method=golden seed=range(", "cannot be read as a sweep"),
    ("run -m method=golden, no_context", "Write values with commas and without spaces"),
    ("run -m method=golden seed=interval(1,2)", "an interval, not a list of values"),
    ("run -m seed=1,2 seed=3", "seed: set twice"),
    ("run -m hydra/sweeper=grid", "no such sweeper"),
    ("run -m budget=3usd hydra/launcher=joblib", "do not see each other's cost"),
    ("run -m hydra.launcher.n_jobs=4", "this key needs hydra/launcher="),
    ("run -m hydra.sweeper.n_trials=4 hydra/launcher=joblib", "this key has no effect"),
    ("run -m sweep.nme=x", "sweep.nme=x: unknown key. Did you mean sweep.name?"),
    ("run -m sweep.metric=f1", "only hydra/sweeper=optuna searches by a score"),
    (TUNE + "tune.metric=ff tune.dev=2", "tune.metric=ff: choose from em, f1"),
    (TUNE + "tune.metric=EM tune.dev=2", "tune.metric=EM: no such score. Did you mean em?"),
    (TUNE + "tune.metric=recall tune.dev=2", "no such score. Did you mean recall@K?"),
    (TUNE, "tune.metric= is missing: choose from em, f1"),
    (TUNE + "tune.metric=f1", "tune.dev: set the number of dev questions"),
    ("tune method=ircot method.scope=own tune.metric=f1 tune.dev=2", "no values to choose from"),
    (TUNE + "tune.metric=f1 tune.dev=5000", "tune.dev=5000: only"),
    (TUNE + "tune.metric=f1 tune.dev=36", "tune.test=None: only 0 questions are left"),
    (TUNE + "tune.metric=f1 tune.dev=0", "tune.dev=0: must be at least 1"),
    (TUNE + "tune.metric=f1 tune.dev_split=train tune.dev_path=x", "set only one of them"),
    (TUNE + "tune.metric=f1 tune.dev=2 seed=1,2", "seed: not a hyperparameter"),
    (TUNE + "tune.metric=judge tune.dev=2 tune.test=2", "Set judge=NAME"),
    (TUNE + "tune.metric=f1 tune.dev=2 limit=9", "tune.dev= and tune.test= select the questions"),
    (TUNE + "tune.metric=f1 tune.dev=2 run_name=x", "Set tune.name="),
    (
        TUNE + "tune.metric=f1 tune.dev=2 tune.test=2 engine.rules=none.jsonl,null",
        "engine.rules=none.jsonl: ",
    ),
    (CELL + "protocol=long", "protocol=long: must be 'short' or 'paper'"),
    (CELL + "protocol.dev=3", "protocol.dev: works only with protocol=paper"),
    (CELL + "protocol=paper limit=3", "limit=3: protocol=paper sets the questions. Set"),
    (CELL + "protocol=paper protocol.test=0", "protocol.test=0: must be at least 1"),
    (CELL + "protocol=paper dry_run=true", "dry_run=true does not work with protocol=paper"),
    (
        "run method=no_context limit=1 'model.prices={input: -1, cached: 0, output: 2}'",
        "model.prices.input=-1",
    ),
    ("run method=retrieve_only judge=kgp limit=2", "does not answer questions"),
    (
        "run method=retrieve_only method.reranker=true limit=1",
        "reranker=null: method=retrieve_only needs one",
    ),
]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *WRONG,
        *(
            (shlex.join(["run", *QUICK, override]), message)
            for override, message in WRONG_OVERRIDES
        ),
        *(
            (shlex.join([*shlex.split(line), *QUICK]), message)
            for line, message in WRONG_WITHOUT_WEIGHTS
        ),
    ],
    ids=lambda text: text[:60],
)
def test_wrong_command_is_one_line_and_leaves_nothing(kgqa: Kgqa, line: str, message: str) -> None:
    Path("cut.jsonl").write_text(
        f"{DEMO.read_text(encoding='utf-8').splitlines()[0]}\n{{", encoding="utf-8"
    )
    refused(kgqa(*shlex.split(line)), message)
    left = [
        file for file in Path("outputs").rglob("*") if file.is_file() and ".cache" not in file.parts
    ]
    # dropped.jsonl says why each question gave no example
    collected = (
        {"dropped.jsonl", "examples.jsonl", "identity.json", ".lock"}
        if "no examples" in message
        else set()
    )
    assert {file.name for file in left} <= {"log.jsonl", *collected}
    assert not Path("data").exists()


def test_loop_of_links_as_a_folder_is_one_line(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    refused(kgqa("run", "method=golden", "limit=1", *QUICK, "output_dir=loop"), "loop: ")
