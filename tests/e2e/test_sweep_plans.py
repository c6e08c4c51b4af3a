"""Dry runs of sweeps: what all cells together would ask."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import replies_kept
from tests.e2e.sweeping import TWO


def test_a_dry_run_counts_every_cell_and_asks_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    planned = kgqa(*TWO, "dry_run=true", "budget=9tokens")
    assert planned.code == 0
    assert "time: not known, no finished run here with smollm2_135m@scripted" in planned.out
    assert "budget=9tokens may not cover all of it" in planned.out
    assert (
        "budget=1usd stops nothing: none of these models has a price" in kgqa(*TWO, "dry_run=true", "budget=1usd").out
    )
    assert replies_kept(tmp_path) == 0
    assert not (tmp_path / "outputs/sweeps").exists()
    kgqa(*TWO)
    assert planned_calls(kgqa(*TWO, "dry_run=true").out) == (0, 0)
    assert "finished" in kgqa(*TWO, "dry_run=true").out


def test_a_dry_run_counts_what_two_cells_share_once(kgqa: Kgqa) -> None:
    """Both read the same triples: 12 passages are extracted once."""
    pair = ["run", "-m", "method=trace", "method.beam=5,6", "limit=2", *QUICK]
    _, asked = planned_calls(kgqa(*pair, "dry_run=true").out)
    alone = [planned_calls(kgqa(*pair[:3], f"method.beam={n}", *pair[4:], "dry_run=true").out)[1] for n in (5, 6)]
    assert asked < sum(alone)
    ran = kgqa(*pair)
    paid = 0
    for cell in ran.json("sweep.json")["cells"]:
        cost = json.loads((Path(cell["run"]) / "metrics.json").read_text())["cost"]
        paid += cost["paid"]["calls"] + cost["extraction_paid"]["calls"]
    assert paid <= asked
    assert "from the rates of" in kgqa(*pair, "dry_run=true", "limit=9").out


def test_a_dry_run_counts_the_judge(kgqa: Kgqa) -> None:
    without = planned_calls(kgqa(*TWO, "dry_run=true").out)[1]
    assert planned_calls(kgqa(*TWO, "dry_run=true", "judge=three_way").out)[1] == without + 8  # asked twice if need be
    assert "judge" in kgqa("run", "method=golden", "limit=2", "dry_run=true", "judge=three_way", *QUICK).out


def planned_calls(out: str) -> tuple[int, int]:
    """Calls and those to be asked, of the line for all cells."""
    line = next(line for line in out.splitlines() if "cells that can run" in line)
    calls, asked = line.split("cells that can run")[1].split()[:2]
    return int(calls.replace(",", "")), int(asked.replace(",", ""))
