"""Which attacks there are, and how often each is tried at SIZE=1."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.attack import on_caches, on_command_lines, on_folders, on_inputs
from scripts.attack.trial import Attempt


@dataclass(frozen=True)
class Attack:
    """`tries` at SIZE=1; `slow`: seconds of a try on a machine at rest, so that long ones begin first."""

    name: str
    attempt: Attempt
    tries: int
    slow: float = 0.4


ATTACKS = (
    Attack("data files", on_inputs.data_files, 350),
    Attack("corpora", on_inputs.corpora, 60),
    Attack("predictions", on_inputs.predictions, 120),
    Attack("demonstrations", on_inputs.demonstrations, 80),
    Attack("hostile replies", on_inputs.rules, 50, slow=1.5),
    Attack("run folders", on_folders.runs, 200),
    Attack("sweeps", on_folders.sweeps, 60),
    Attack("triples", on_folders.triples, 100),
    Attack("indexes", on_folders.indexes, 150),
    Attack("caches", on_caches.anything, 150),
    Attack("single bits of caches", on_caches.single_bits, 250),
    Attack("overrides", on_command_lines.overrides, 600),
    Attack("commands", on_command_lines.commands, 300),
)
