"""`footing=shared`: the rows of KnowTrace's Table 1 with the same examples."""

from __future__ import annotations

import pytest

from kgqa.config.composing import compose
from kgqa.errors import ConfigError
from kgqa.reproduce.tables import choose_footing, load_table


def test_all_baselines_show_the_same_examples_without_distractors() -> None:
    table = choose_footing(load_table("knowtrace/table1"), "shared")
    cells = [cell for cell in table.cells if cell.column == "2Wiki"]
    deciding = [tuple(word for word in cell.overrides if not word.startswith("model=")) for cell in cells]
    assert len(set(deciding)) > 5
    for overrides in dict.fromkeys(deciding):
        method = compose(overrides)["method"]
        assert method.get("few_shot_path", "hotpotqa") == "hotpotqa", overrides
        few_shot = method.get("few_shot", {})
        assert few_shot.get("distractors", 0) == 0, overrides


@pytest.mark.parametrize(("id_", "footing"), [("knowtrace/table1", "equal"), ("trace/table1", "shared")])
def test_another_value_or_table_is_an_error(id_: str, footing: str) -> None:
    with pytest.raises(ConfigError, match=f"footing={footing}: must be own or, for knowtrace/table1, shared"):
        choose_footing(load_table(id_), footing)
