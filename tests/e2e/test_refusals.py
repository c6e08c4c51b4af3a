"""A wrong command is one line that says what to change; its exit code is 2, and it leaves nothing behind."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa

TUNE = "tune method=ircot method.scope=own method.passages_per_step=1,4 "
SOME = "reproduce trace/table1 dataset=demo 'only=w/o documents,TRACE-Triple,HotPotQA' "
CELL = "reproduce ircot/table4 'only=Flan-T5-XXL? OneR QA? Direct,HotpotQA' dataset=demo model=smollm2_135m "
WRONG = [
    ("collect nosuch", "no such collect. Choose from"),
    ("collect kgp dataset=demo --from last", "last: no finished run in outputs/. List runs: kgqa runs"),
    ("collect kgp dataset=demo method=trace", "Remove method="),
    ("collect kgp dataset=demo collection=kgp", "Remove collection="),
    ("collect kgp dataset=demo collect.agent=oracle", "collect.agent=oracle"),
    ("collect kgp dataset=demo,nosuch", "dataset=nosuch: no such dataset"),
    ("collect kgp dataset=demo,pdf dataset.path=x", "applies to one dataset. Choose"),
    ("collect mdr dataset=pdf limit=2", "no examples: fewer than two passages in an order"),
    ("collect mdr dataset=demo collect.held_out=2", "must be between 0 and 1"),
    ("collect knowtrace", "needs finished runs. Name them: --from RUN"),
    ("collect knowtrace --from nowhere", "nowhere: no finished run matches. List runs: kgqa runs"),
    ("collect knowtrace collect.filter=some", "collect.filter=some: must be"),
    ("data download to=elsewhere", "dataset= is missing. Example: kgqa data download dataset=musique"),
    ("data download dataset=musiqe", "Did you mean musique or musique_full"),
    ("data download dataset=musique form=hub", "Did you mean from?"),
    ("data download dataset=musique to=", "expected a value"),
    ("data download dataset=musique from=nowhere", "from=nowhere: no such file or folder"),
    ("data download dataset=iirc from=hub", "not on Hugging Face's hub"),
    ("demo method=golden", "method=golden: kgqa demo sets method itself. Use kgqa run method=golden …"),
    ("demo output_dir=here", "output_dir=here: kgqa demo sets output_dir itself. Use kgqa run output_dir=here …"),
    ("evaluate", "RUN|FILE is missing. Example: kgqa evaluate last"),
    ("evaluate nowhere", "nowhere: no finished run matches. List runs: kgqa runs"),
    ("evaluate a b", "b: unexpected argument of kgqa evaluate"),
    ("evaluate a --subset", "--subset: works only with --predictions"),
    ("evaluate a --fast", "--fast: no such option"),
    ("evaluate a limit=3", "limit=3: works only with --predictions"),
    ("evaluate --predictions nowhere.jsonl dataset=demo", "nowhere.jsonl: cannot be read"),
    ("compare a", "another RUN is missing. Example: kgqa compare demo/trace"),
    ("compare a b limit=3", "limit=3: not a key of kgqa compare"),
    ("compare a b difference=0", "difference above 0"),
    ("compare a b seed=x", "must be numbers"),
    ("evaluate last human=x.csv", "human=x.csv: only with --calibrate"),
    ("evaluate --calibrate", "RUN|FILE is missing. Example: kgqa evaluate last"),
    ("evaluate --calibrate nowhere", "nowhere: no finished run matches. List runs: kgqa runs"),
    ("data check-index dataset=demo", "no finished index. Run: kgqa data index dataset=demo"),
    ("data index retriever=bm52", "Did you mean bm25"),
    ("data index retriever=null", "retriever=null"),
    ("data index retriever.fields.title=-1", "above 0"),
    ("data index retriever.k1=0.9", "retriever.k1"),
    ("data index dataset.corpus=nowhere.jsonl", "nowhere.jsonl"),
    ("kg link dataset=demo", "set a graph: graph=NAME. Choose from: entities"),
    ("run method=kgp ranker@graph.encoder=minilm limit=2", "the chosen graph has no encoder that is a ranker"),
    ("run retriever=knn ranker@retriever.sparse=minilm limit=2", "the chosen retriever has no sparse that is"),
    ("run method=kgp graph=null", "graph=null: method=kgp needs one"),
    ("run method=kgp method.agent=oracle", "method.agent=oracle"),
    ("reproduce trace/tabel1", "no such table or figure. Did you mean trace/table1"),
    ("reproduce trace/table1 limt=3", "limt=3: unknown key. Did you mean limit?"),
    ("reproduce trace/table1 model=llama", "model=llama: no such model"),
    ("reproduce trace/table1 only=Nothing", "trace/table1 has no such row or column"),
    ("reproduce trace/table1 output_dir=x", "output_dir=x: every cell has its own run folder"),
    ("reproduce trace/table1 margin=-1", "margin=-1: must be a number of points above 0"),
    ("reproduce trace/table1 budget=2", "budget=2: expected dollars or tokens"),
    ("reproduce trace/table1 trace/table2", "trace/table2: unexpected argument of kgqa reproduce"),
    ("reproduce", "ID is missing. Example: kgqa reproduce trace/table1"),
    ("reproduce trace/table2 protocol=paper", "trace/table2 has no other protocol"),
]
WRONG_WITHOUT_WEIGHTS = [
    ("kg build --corpus ids=[2hop__demo_01]", "Set limit=N for N passages"),
    ("kg build --workers 2", "--workers 2: only with --ray"),
    ("kg build --ray --workers 0", "--workers 0: must be at least 1"),
    ("kg build --ray --gpus -1", "--gpus -1: must be at least 0"),
    (SOME + "hydra/launcher=joblb", "hydra/launcher=joblb: no such launcher. Did you mean joblib"),
    (SOME + "hydra/launcher=joblib budget=3usd", "do not see each other's cost"),
    (SOME + "hydra.launcher.n_jobs=2", "hydra.launcher.n_jobs=2: this key needs hydra/launcher="),
    (SOME + "hydra/sweeper=optuna", "hydra/sweeper=optuna: not used. A table names its cells"),
    ("run -m method=tracee,golden", "Did you mean trace"),
    ("run -m method.nothing=1,2", "unknown key"),
    ("run -m method=golden limit=2,5", "they differ in limit"),
    ("run -m method=golden seed=range(", "cannot be read as a sweep"),
    ("run -m method=golden seed=interval(1,2)", "an interval, not a list of values"),
    ("run -m seed=1,2 seed=3", "seed: set twice"),
    ("run -m sweep.names=x", "Did you mean sweep.name"),
    ("run -m sweep.name=a/b", "plain folder name"),
    ("run -m budget=3euro", "expected dollars or tokens"),
    ("run -m hydra/launcher=joblb", "Did you mean joblib"),
    ("run -m hydra/sweeper=grid", "no such sweeper"),
    ("run -m budget=3usd hydra/launcher=joblib", "do not see each other's cost"),
    ("run -m limit=0", "limit=0: must be at least 1"),
    ("run -m hydra.launcher.n_jobs=4", "this key needs hydra/launcher="),
    ("run -m hydra.sweeper.n_trials=4 hydra/launcher=joblib", "this key has no effect"),
    ("run -m sweep.metric=f1", "only hydra/sweeper=optuna maximizes a score"),
    (TUNE + "tune.metric=ff tune.dev=2", "tune.metric=ff: choose from em, f1"),
    (TUNE + "tune.metric=f1", "tune.dev: set the number of dev questions"),
    (TUNE + "tune.metric=f1 tune.dev=5000", "tune.dev=5000: only"),
    (TUNE + "tune.metric=f1 tune.dev=36", "tune.test=None: only 0 questions are left"),
    (TUNE + "tune.metric=f1 tune.dev=two", "tune.dev=two: must be a number from 1"),
    (TUNE + "tune.metric=f1 tune.dev=0", "tune.dev=0: must be a number from 1"),
    (TUNE + "tune.metric=f1 tune.devs=2", "Did you mean dev"),
    (TUNE + "tune.metric=f1 tune.dev_split=train tune.dev_path=x", "set only one of them"),
    (TUNE + "tune.metric=f1 tune.dev=2 seed=1,2", "seed: not a hyperparameter"),
    (TUNE + "tune.metric=judge tune.dev=2 tune.test=2", "Set judge=NAME"),
    (TUNE + "tune.metric=recall@few tune.dev=2", "tune.metric=recall@few: choose from em, f1"),
    (TUNE + "tune.metric=f1 tune.dev=2 scoring=trace,musique", "scoring: not a hyperparameter"),
    (TUNE + "tune.metric=f1 tune.dev=2 judge=three_way judge.votes=1,3", "judge.votes: not a hyperparameter"),
    (TUNE + "tune.metric=f1 tune.dev=2 limit=9", "tune.dev= and tune.test= select the questions"),
    (TUNE + "tune.metric=f1 tune.dev=2 run_name=x", "Set tune.name="),
    (TUNE + "tune.metric=f1 tune.dev=2 tune.test=2 engine.rules=none.jsonl,null", "engine.rules=none.jsonl: "),
    (CELL + "protocol=long", "protocol=long: choose from: short"),
    (CELL + "protocol.dev=3", "protocol.dev: works only with protocol=paper"),
    (CELL + "protocol=paper limit=3", "limit=3: protocol=paper sets the questions. Set"),
    (CELL + "protocol=paper protocol.test=0", "protocol.test=0: must be a number from 1"),
    (CELL + "protocol=paper dry_run=true", "dry_run=true does not work with protocol=paper"),
    ("run method=no_context limit=1 'model.prices={input: -1, cached: 0, output: 2}'", "model.prices.input=-1"),
    ("run method=no_context limit=1 'model.prices={input: 1, output: 2}'", "model.prices="),
    ("run method=retrieve_only method.reranker=true limit=1", "reranker=null: method=retrieve_only needs one"),
]


@pytest.mark.parametrize(
    ("line", "said"),
    [*WRONG, *((shlex.join([*shlex.split(line), *QUICK]), said) for line, said in WRONG_WITHOUT_WEIGHTS)],
)
def test_wrong_command_is_one_line_and_leaves_nothing(kgqa: Kgqa, line: str, said: str) -> None:
    ran = kgqa(*shlex.split(line))
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    left = [file for file in Path("outputs").rglob("*") if file.is_file() and ".cache" not in file.parts]
    # dropped.jsonl says why each question gave no example
    collected = {"dropped.jsonl", "examples.jsonl", "identity.json", ".lock"} if "no examples" in said else set()
    assert {file.name for file in left} <= {"log.jsonl", *collected}
    assert not Path("data").exists()
