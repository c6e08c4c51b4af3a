"""The script for a machine with GPUs, as far as a CPU can run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import gpu_check
from scripts.gpu_check import PARTS, SIZES, main


def test_rows_are_those_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    monkeypatch.setenv("SIZE", "tiny")
    monkeypatch.setattr(sys, "argv", ["gpu_check", "faiss", str(tmp_path)])
    main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert {len(row) for row in rows} == {3}
    assert [row[1] for row in rows if "k=3000" in row[1]] == [
        "3,000 × 32, flat: 1 queries, k=3000",
        "3,000 × 32, ivf: 1 queries, k=3000",
    ]


@pytest.mark.parametrize("part", PARTS)
def test_part_without_its_library_is_not_run(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["gpu_check", part, "."])
    main()
    library = PARTS[part][0][0]
    assert capsys.readouterr().out == f"| {part} | not run: {library} is not installed | |\n"


def test_sizes_of_the_stand_ins_are_those_of_the_models() -> None:
    layers, width, heads, kv_heads = SIZES["full"].reader
    # config.json of Llama-3.1-8B
    assert (layers, width, heads, kv_heads) == (32, 4096, 32, 8)
