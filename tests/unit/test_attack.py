"""The judges of `make attack` see what they are there for, and its mutations are drawn by the seed alone."""

from __future__ import annotations

import base64
import gzip
import html
import json
import random
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import zstandard

from kgqa.records import records
from kgqa.types import Json
from scripts.attack import bending, composed, judging
from scripts.attack.driver import Plan
from scripts.attack.forms import FORMS
from scripts.attack.judging import HEART, KEY, Harm
from scripts.attack.on_inputs import formulas
from scripts.attack.processes import Ended
from scripts.attack.trial import Attack, Trial

SEEN = {
    "Traceback (most recent call last):\n  File": (1, Harm.TRACEBACK),
    "kgqa: an error that kgqa did not foresee (KeyError: 'a'); a file says where": (1, Harm.TRACEBACK),
    "thread 'main' panicked at src/lib.rs:7": (2, Harm.TRACEBACK),
    "kgqa: a message": (7, Harm.EXIT),
    "kgqa: killed": (-11, Harm.EXIT),
    "": (2, Harm.EXIT),
    "kgqa: no end": (None, Harm.HANG),
    "kgqa: \x1b[31mred": (2, Harm.CONTROL),
    "kgqa: a\u202eb": (2, Harm.CONTROL),
    "kgqa: a\x9bb": (2, Harm.CONTROL),
    "kgqa: a\x7fb": (2, Harm.CONTROL),
}


@pytest.mark.parametrize(("said", "code", "harm"), [(said, *seen) for said, seen in SEEN.items()])
def test_what_no_command_may_do_is_seen(said: str, code: int | None, harm: Harm) -> None:
    found = [finding.harm for finding in judging.of_command(Ended(code, "", said, 1.0), (0, 2))]
    assert found == [harm]


@pytest.mark.parametrize("code", [0, 2])
def test_a_command_that_ends_as_it_may_is_let_be(code: int) -> None:
    assert not list(judging.of_command(Ended(code, "EM 1.0\n\tλ → é\n", "kgqa: a line\n", 1.0), (0, 2)))


SPELLED: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "without its ends": lambda _: HEART,
    "JSON": json.dumps,
    "JSON with escaped slashes": lambda key: json.dumps(key).replace("/", "\\/"),
    "escaped letters": lambda key: "".join(f"\\u{ord(letter):04X}" for letter in key),
    "address": lambda key: urllib.parse.quote(key, safe=""),
    "HTML": html.escape,
    "hexadecimal": lambda key: key.encode().hex(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of more": lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(f"a: {key}!".encode()).decode(),
}


@pytest.mark.parametrize("spelling", SPELLED.values(), ids=SPELLED.keys())
@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gz", "zst"])
def test_the_key_is_found_in_every_spelling(
    spelling: Callable[[str], str], packed: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / ("a.zst" if packed is zstandard.compress else "a")
    file.write_bytes(packed(f"before {spelling(KEY)} behind".encode()))
    assert [finding.harm for finding in judging.keys_in(tmp_path, 0)] == [Harm.KEY]


def test_the_key_is_found_in_names_of_files_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "sound.json").write_text(
        f'{{"api_key_env": "OPENAI_API_KEY", "digits": "{KEY[:8]}"}}', encoding="utf-8"
    )
    assert not list(judging.keys_in(tmp_path, 0))
    (tmp_path / urllib.parse.quote(KEY, safe="")).touch()
    assert [finding.harm for finding in judging.keys_in(tmp_path, 0)] == [Harm.KEY]


@pytest.mark.parametrize("name", bending.DAMAGES)
def test_a_damage_changes_the_bytes_and_is_drawn_by_the_dice_alone(name: str) -> None:
    raw = FORMS["musique"].raw()
    changed = [bending.DAMAGES[name](raw, random.Random(3)) for _ in range(2)]
    assert changed[0] == changed[1] != raw


@pytest.mark.parametrize("name", bending.HARMLESS)
def test_another_dress_holds_the_same_records(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(FORMS["musique"].raw())
    (tmp_path / "b").write_bytes(bending.HARMLESS[name](FORMS["musique"].raw(), random.Random(3)))
    plain, dressed = ([record for _, record in records(tmp_path / file)] for file in ("a", "b"))
    assert plain == dressed


def test_bending_leaves_the_value_it_was_given_alone() -> None:
    value = json.loads(FORMS["hotpotqa"].raw())
    before = json.dumps(value)
    bent = {json.dumps(bending.bent(value, random.Random(seed))[0], default=repr) for seed in range(30)}
    assert json.dumps(value) == before
    assert len(bent) > 20


def test_what_was_composed_is_handed_on_for_the_same_words_environment_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def compose(overrides: Sequence[str]) -> Json:
        asked.append(tuple(overrides))
        return {"limit": len(asked)}

    monkeypatch.chdir(tmp_path)
    (tmp_path / "composed").mkdir()
    once = composed.kept(compose, tmp_path / "composed")
    assert once(["limit=1"]) == once(("limit=1",)) == {"limit": 1}
    monkeypatch.setenv("KGQA_DATA", "elsewhere")
    assert once(["limit=1"]) == {"limit": 2}
    (tmp_path / "conf").mkdir()  # a person's own: what it holds may change
    assert [once(["limit=1"]), once(["limit=1"])] == [{"limit": 3}, {"limit": 4}]


def test_a_larger_attack_begins_with_the_tries_of_a_smaller_one(tmp_path: Path) -> None:
    attacks = [Attack("short", lambda _: None, 3), Attack("long", lambda _: None, 2, slow=9)]
    one, three = (Plan(attacks, tmp_path, "1", size, 1).tries() for size in (1, 3))
    assert one == [(attacks[1], 0), (attacks[1], 1), *((attacks[0], number) for number in range(3))]
    assert three[: len(one)] == one
    assert len(set(three)) == 15


@pytest.mark.parametrize(("cell", "found"), [("=1+1", 1), ("'=1+1", 0), ("-1.5", 0), ("x" * 200_000, 0)])
def test_a_cell_that_a_spreadsheet_would_run_is_found(cell: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "report.csv").write_text(f"question,answer\nq1,{cell}\n", encoding="utf-8")
    trial = Trial("", 0, "", random.Random(0), tmp_path, tmp_path, real=False)
    formulas(trial, tmp_path / "report.csv")
    assert [finding.harm for finding in trial.findings] == [Harm.SILENT] * found
