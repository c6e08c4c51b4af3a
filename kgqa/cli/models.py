"""`kgqa models`: the presets of models and the adapters, as they fit this machine."""

from __future__ import annotations

from argparse import Namespace

from kgqa.artifacts.adapter import Adapter
from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError, DataError
from kgqa.system.hardware import GB, gpus, memory
from kgqa.system.models import Preset, group_by_fitness, list_adapters, load_presets
from kgqa.util.hub import is_offline


def models(_: Namespace, terminal: Terminal) -> None:
    """Show the presets with size, context and license, how to get missing ones, and the adapters."""
    loadable = load_presets()
    presets = [preset for preset in loadable.values() if isinstance(preset, Preset)]
    column = max(map(len, loadable)) + 2
    for heading, group in group_by_fitness(presets).items():
        terminal.heading(heading)
        terminal.lines(
            "  ".join((preset.name.ljust(column), *_describe(preset))).rstrip() for preset in group
        )
    terminal.line("")
    terminal.lines(
        (f"✗ {name}: {error}" for name, error in loadable.items() if not isinstance(error, Preset)),
        alarm=True,
    )
    room = f"{sum(gpu.memory for gpu in gpus()) / GB:.0f} GB of GPU memory" if gpus() else "no GPU"
    terminal.line(
        f"This machine: {memory() / GB:.0f} GB of memory, {room}. Missing sizes are estimated in bfloat16."
    )
    terminal.lines(f"+{adapter.name}: {_describe_adapter(adapter)}" for adapter in list_adapters())
    terminal.line(
        "From the hub: pip install huggingface_hub. The first run downloads the weights"
        + (", but HF_HUB_OFFLINE is set: unset it. " if is_offline() else ". ")
        + "Gated: accept the license on the hub, set HF_TOKEN. To use your own copy: model.path=FOLDER"
    )


def _describe(preset: Preset) -> tuple[str, str, str]:
    """Return the size, the context and the license in columns."""
    size = preset.size()
    text = (
        "" if size is None else f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 1e6:.0f} MB"
    )
    context = f"{preset.model.context:,}" if preset.model.context else ""
    license_ = (preset.about.licence or "").partition(" of its base")[0]
    license_ = license_.replace(" Community", "").replace(" License", "")
    return text.rjust(8), context.rjust(7), license_


def _describe_adapter(adapter: Adapter) -> str:
    """Return the use of an adapter, or what is wrong with it."""
    try:
        preset, _ = adapter.trained_on()
        rank = f"an adapter of rank {adapter.rank}" if adapter.path else "an adapter on a server"
    except (ConfigError, DataError) as error:
        return str(error)
    return f"{rank} on {preset or 'an unknown base'}: roles.ROLE={preset or ''}+{adapter.name}[@ENGINE]"
