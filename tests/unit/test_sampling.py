"""`sample=trace_paper`: the questions of TRACE's development sets."""

from __future__ import annotations

import numpy as np
import pytest

from kgqa.config.overrides import override_values
from kgqa.datasets.sampling import TRAIN_SIZES, sample_as_trace, trace_positions
from kgqa.errors import ConfigError
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.tables import load_table, table_ids
from kgqa.types import Question


@pytest.mark.parametrize("size", sorted(TRAIN_SIZES.values()))
def test_places_are_the_last_500_of_the_permutation_of_seed_0(size: int) -> None:
    state = np.random.get_state()
    np.random.seed(0)
    expected = np.random.permutation(size)[-500:]
    np.random.set_state(state)
    assert trace_positions(size) == sorted(expected)


def test_the_questions_at_these_places_are_chosen() -> None:
    size = TRAIN_SIZES["musique"]
    chosen = sample_as_trace([Question(f"{place}", "", ()) for place in range(size)], "musique")
    assert [int(question.id) for question in chosen] == trace_positions(size)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [("demo", "needs dataset=hotpotqa or 2wiki or musique"), ("2wiki", "with 167,454 questions")],
)
def test_another_file_is_an_error(dataset: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sample_as_trace([Question("q", "", ())], dataset)
    with pytest.raises(ConfigError, match="needs dataset="):
        _ = Experiment.of(["dataset=demo", "sample=trace_paper"]).questions


def test_the_tables_of_the_training_questions_use_them() -> None:
    tables = [load_table(id_) for id_ in table_ids() if id_.startswith("trace/")]
    values = [override_values(cell.overrides) for table in tables for cell in table.cells]
    samples = {value.get("sample") for value in values if value.get("dataset.split") == "train"}
    assert samples == {"trace_paper"}
