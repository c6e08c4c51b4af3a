"""What a configuration means, before anything is open."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from hydra import compose as compose_with_hydra

from kgqa.cache.store import CallCache, Origin
from kgqa.config.building import build
from kgqa.config.composing import RUN, compose, hydra_ready
from kgqa.config.keys import find_sources
from kgqa.datasets.passages import distinct_passages
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.check import check, note_unreached_limit
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.identity import find_run_folder, identify
from kgqa.experiment.prepare.triples import extract_all
from kgqa.experiment.run import explain_unknown_evidence
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.protocols import Method
from kgqa.runtime.display import QUIET
from kgqa.types import Answer, Question
from kgqa.util.redaction import function_line
from tests.composed import composed_node
from tests.unit.files import write


def test_run_id_has_what_can_change_an_answer(tmp_path: Path) -> None:
    def build(*overrides: str) -> Experiment:
        return compose_experiment(["method=no_context", "model=smollm2_135m", *overrides])

    folder = find_run_folder(build())
    assert folder == find_run_folder(build("limit=2", "max_parallel_questions=3", "judge=kgp"))
    assert folder != find_run_folder(build("seed=3"))
    assert find_run_folder(build("scoring=musique")) == folder  # the dataset's own
    assert find_run_folder(build("scoring=trace")).name == f"{folder.name}-trace"
    assert find_run_folder(build("run_name=mine")).parts[-4:] == (
        "demo",
        "no_context",
        "smollm2_135m",
        "mine",
    )
    assert find_run_folder(build("output_dir=elsewhere")) == Path("elsewhere")
    unread = build(f"dataset.path={tmp_path / 'none.jsonl'}", "reranker=null")
    with pytest.raises(DataError, match=r"none\.jsonl"):
        _ = unread.data.questions
    with pytest.raises(
        ConfigError, match=r"reranker=null: method=no_context needs one\. Choose from"
    ):
        Session(unread).ranker("reranker")


def test_settings_show_source_and_paper_value() -> None:
    arguments = [
        "experiment=quick",
        "method.chains=2",
        "method.max_answer_tokens=9",
        "ranker=lexical",
    ]
    sources = find_sources(compose(["method=trace", *arguments]))
    assert sources["method.beam"] == "experiment=quick; paper: 5 (§C.4)"
    assert (
        sources["kg.demonstrations"] == "experiment=quick (TRACE Table 9); paper: adaptive (§C.4)"
    )
    assert sources["method.chains"].startswith("set on the command line; paper: 5 (§C.4")
    assert (
        sources["method.max_answer_tokens"]
        == "set on the command line; default: 25 (not in the paper; released code)"
    )
    assert sources["method.min_probability"].startswith("not in the paper")


def test_own_model_needs_no_optional_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys = "_target_: kgqa.engines.weights.Model\nname: mine\npath: mine.gguf\nhub: null\npackages: []\nsha256: null\n"
    own = {
        "model": f"{keys}context: 512\n",
        "engine": "defaults: [openai]\nbase_url: http://127.0.0.1:9/v1\nserved_model: mine\n",
    }
    for group, text in own.items():
        write(f"conf/{group}/mine.yaml", text)
    experiment = compose_experiment(["model=mine", "engine=scripted", "method=no_context"])
    assert identify(experiment)["answering"]["default"]["model"]["context"] == 512
    with Session(experiment) as session:
        assert session.engines.prices("reader") is None
    experiment = compose_experiment(["engine=mine", "model=gpt_4o_mini", "method=no_context"])
    assert experiment.config["engine"]["base_url"] == "http://127.0.0.1:9/v1"
    assert experiment.config["engine"]["served_model"] == "mine"
    with Session(experiment) as session:
        assert session.engines.prices("reader") is not None


LEXICAL = ("engine=scripted", "limit=1", "ranker=lexical", "demonstrations_ranker=lexical")


def extract(*overrides: str, new_calls: bool) -> None:
    with Session(compose_experiment([*LEXICAL, *overrides])) as session:
        questions = session.experiment.data.questions
        extract_all(session, lambda: distinct_passages(questions), QUIET, new_calls=new_calls)


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        pytest.param((), ("ranker=levenshtein",), True, id="another ranker"),
        pytest.param((), ("method.candidates=9",), True, id="another method"),
        pytest.param(
            (), ("demonstrations_ranker=levenshtein",), False, id="another ranker of examples"
        ),
        pytest.param((), ("kg.head=any",), False, id="another prompt"),
        pytest.param(
            ("kg.demonstrations=fixed",),
            ("kg.demonstrations=fixed", "demonstrations_ranker=levenshtein"),
            True,
            id="a ranker that is not used",
        ),
    ],
)
def test_runs_with_the_same_extractor_share_triples(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[str, ...],
    second: tuple[str, ...],
    is_shared: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    extract(*first, new_calls=True)
    with (
        nullcontext()
        if is_shared
        else pytest.raises(DataError, match=r"no triples in .* for . of . passages, first")
    ):
        extract(*second, new_calls=False)


@pytest.mark.parametrize(
    ("overrides", "is_used"),
    [
        pytest.param(["method=trace"], True, id="trace"),
        pytest.param(
            ["method.demonstrations=fixed", "kg.demonstrations=fixed"], False, id="fixed examples"
        ),
        pytest.param(["method=no_context"], False, id="no examples"),
    ],
)
def test_ranker_of_examples_is_in_the_run_id(overrides: list[str], is_used: bool) -> None:
    rankers = ["ranker=levenshtein", "demonstrations_ranker=lexical"]
    with Session(compose_experiment(["engine=scripted", *rankers, *overrides])) as session:
        assert ("demonstrations_ranker" in session.experiment.choices) is is_used
        assert ("demonstrations_ranker" in identify(session.experiment)) is is_used


def test_parts_of_hydra_are_not_loaded() -> None:
    with hydra_ready():
        hydra = compose_with_hydra(RUN, return_hydra_config=True).hydra
    assert not [part for part, name in hydra.runtime.choices.items() if "hydra/" in part and name]


def test_missing_key_is_reported_first(cache: CallCache, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    reply = {"text": "Oslo", "finish": "stop", "usage": [9, 0, 3, 0.1], "flags": []}
    experiment = compose_experiment(
        ["method=no_context", "dataset=demo", "model=gpt_4o_mini", "engine=openai"]
    )
    with Session(experiment, calls=cache) as session:
        for model in ("", "another"):
            cache.put([(model, reply)], Origin("openai", model))
            with pytest.raises(ConfigError, match=r"\$OPENAI_API_KEY is not set"):
                session.engines.check_ready(cache)
        cache.put([("key", reply)], Origin.of(identity_of(session.engines("reader"))))
        session.engines.check_ready(cache)


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        (["method.protocol=functions", "engine=scripted"], True),
        (["method.protocol=functions", "engine=openai", "engine.endpoints=completions"], True),
        (["method.protocol=functions", "engine=openai", "engine.endpoints=chat"], False),
        (["method.protocol=text", "engine=scripted"], False),
    ],
    ids=["local", "completions", "chat", "text"],
)
def test_missing_function_calls_are_reported_first(
    words: list[str], is_refused: bool, cache: CallCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc")
    experiment = compose_experiment(
        ["method=tool_agent", "dataset=demo", "model=gpt_4o_mini", *words]
    )
    refused = (
        pytest.raises(ConfigError, match="has no function calls here")
        if is_refused
        else nullcontext()
    )
    with Session(experiment, calls=cache) as session, refused:
        check(session)


@pytest.mark.parametrize(
    ("server", "is_refused"),
    [("hosted", True), ("vllm", False), ("llamacpp", False)],
    ids=["hosted", "vllm", "llama"],
)
def test_missing_stop_strings_are_reported_first(
    server: str, is_refused: bool, cache: CallCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc")
    words = [
        "method=search_agent",
        "method.closed_tags=true",
        "engine=openai",
        f"engine.server={server}",
    ]
    experiment = compose_experiment([*words, "dataset=demo", "model=gpt_4o_mini"])
    refused = (
        pytest.raises(ConfigError, match=r"method\.closed_tags=true: the server")
        if is_refused
        else nullcontext()
    )
    with Session(experiment, calls=cache) as session, refused:
        check(session)


def sample_demo(*overrides: str) -> list[Question]:
    words = ("method=golden", "dataset=demo", "engine=scripted", *overrides)
    return list(compose_experiment(words).data.questions)


@pytest.mark.parametrize("attribute", ["hops", "type"])
def test_sample_has_equal_shares(attribute: str) -> None:
    every = Counter(getattr(question, attribute) for question in sample_demo())
    count = 2 * len(every)
    balanced = sample_demo(f"sample={count}", f"sample_by={attribute}")
    assert Counter(getattr(question, attribute) for question in balanced) == dict.fromkeys(every, 2)
    larger = sample_demo(f"sample={count + 3}", f"sample_by={attribute}")
    assert {question.id for question in balanced} < {question.id for question in larger}


def test_balanced_sample_can_be_all_questions() -> None:
    assert sample_demo("sample=36", "sample_by=hops") == sample_demo()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(["sample_by=hops"], "works only with a number. Add sample=N", id="no sample"),
        pytest.param(
            ["sample=1", "sample_by=type", "dataset=flashrag", "dataset.path=own.jsonl"],
            "the questions of dataset=flashrag have no type",
            id="no types",
        ),
    ],
)
def test_balanced_sample_needs_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write("own.jsonl", {"id": "a", "question": "Who?", "golden_answers": ["Ann"]})
    with pytest.raises(ConfigError, match=re.escape(message)):
        sample_demo(*overrides)


class NamesEvidence:
    async def answer(self, question: Question) -> Answer:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("method", "evidence", "is_reported"),
    [
        (NamesEvidence(), ("Candle Bridge",), True),
        (NamesEvidence(), ("Candle Bridge", "p1"), False),
        (NamesEvidence(), (), False),
        (build(composed_node("method", "golden"), "method"), ("Candle Bridge",), False),
    ],
    ids=["title", "id", "none", "built_in"],
)
def test_title_as_evidence_is_reported(
    method: Method, evidence: tuple[str, ...], is_reported: bool
) -> None:
    answer = Answer("Ann", evidence=evidence)

    warning = explain_unknown_evidence(method, answer, {"p1": "Candle Bridge"}) or ""

    expected = f"warning: {function_line(NamesEvidence.answer)}: 'Candle Bridge' is no id"
    assert warning.startswith(expected) == is_reported


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        (["limit=500"], "limit=500: the dataset has 36 questions"),
        (["limit=5", "sample=3"], "limit=5: the selection has 3 questions"),
        (["limit=36"], None),
        (["limit=40", "shard=1/2"], None),
        ([], None),
    ],
    ids=["all", "sample", "equal", "shard", "unset"],
)
def test_limit_above_the_number_of_questions_is_noted(
    overrides: list[str], note: str | None
) -> None:
    experiment = compose_experiment(["method=golden", "dataset=demo", *overrides])
    assert note_unreached_limit(experiment.settings, len(experiment.data.questions)) == note
