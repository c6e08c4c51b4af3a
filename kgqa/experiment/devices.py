"""Find the GPUs of a run, and show what each of its parts gets. `gpu_plan.py` makes the plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from kgqa.config.files import Config
from kgqa.config.run_keys import RunSettings
from kgqa.errors import ConfigError
from kgqa.experiment.engines import RoleNodes
from kgqa.system.hardware import GB
from kgqa.system.hardware import gpus as list_gpus
from kgqa.types import Json

if TYPE_CHECKING:
    from kgqa.experiment.placement import Placement

# without nvidia-smi, as on the laptop where a run is planned: A100 and H100
ASSUMED_MEMORY = 80.0
# share of a GPU's memory in use before the run: another process works there
OCCUPIED = 0.1


@dataclass(frozen=True)
class Devices:
    """The GPUs of a plan. memory: bytes of each. assumed: nothing on this machine shows the memory.

    indexes: the number of each GPU in this process, as in cuda:0. used: bytes of other processes, by name.
    """

    names: tuple[int | str, ...]
    indexes: tuple[int, ...]
    memory: float
    assumed: bool = False
    used: Mapping[int | str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuPlan:
    """The models of all roles with their GPUs. placement: None if nothing is placed."""

    roles: RoleNodes
    judges: RoleNodes
    placement: Placement | None = None
    devices: Devices | None = None
    search: tuple[int, ...] = ()

    def place_search(self, node: Config) -> dict[str, Json]:
        """Return a retriever's or a ranker's node on its GPUs."""
        return (
            _set_devices(node, [f"cuda:{number}" for number in self.search])
            if self.search
            else dict(node)
        )

    def lines(self) -> Iterator[str]:
        if self.placement is not None and self.devices is not None and self.devices.assumed:
            yield f"assumed: GPUs with {self.placement.memory / GB:.0f} GB each. Set gpu_memory=GB for others"
        if self.placement is not None and self.devices is not None and self.devices.used:
            sizes = ", ".join(
                f"{name} ({used / GB:.0f} GB)" for name, used in self.devices.used.items()
            )
            free = [name for name in self.devices.names if name not in self.devices.used]
            remedy = f"To leave them out: gpus=[{','.join(map(str, free))}]" if free else ""
            yield f"in use by other processes: GPU {sizes}. {remedy}".strip()


def find_devices(settings: RunSettings) -> Devices | None:
    """Return the GPUs of the run, or None if it has none. `gpus=` can name GPUs that this machine lacks.

    Raises:
        ConfigError: `gpus=` is more than a run can use here.
    """
    listed, visible = list_gpus(), _list_visible()
    if isinstance(settings.gpus, int):
        if visible and settings.gpus > len(visible) and not settings.dry_run:
            raise ConfigError(
                f"gpus={settings.gpus}: only {len(visible)} visible here. Use at most gpus={len(visible)}, set "
                "CUDA_VISIBLE_DEVICES, or plan with dry_run=true"
            )
        # on a laptop they are only planned
        names = (
            visible[: settings.gpus]
            if len(visible) >= settings.gpus
            else tuple(range(settings.gpus))
        )
    else:
        names = visible if settings.gpus is None else settings.gpus
    if not names:
        return None
    indexes = tuple(
        visible.index(name) if name in visible else place for place, name in enumerate(names)
    )
    memory = min((float(gpu.memory) for gpu in listed), default=0.0)
    if settings.gpu_memory is not None:
        memory = settings.gpu_memory * GB
    used: dict[int | str, float] = {
        name: float(listed[name].used)
        for name in names
        if isinstance(name, int)
        and name < len(listed)
        and listed[name].used > OCCUPIED * listed[name].memory
    }
    return Devices(names, indexes, memory or ASSUMED_MEMORY * GB, assumed=not memory, used=used)


def _list_visible() -> tuple[int | str, ...]:
    """Return the GPUs that CUDA shows to this process. It ignores -1 and what follows, so -1 hides all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(range(len(list_gpus())))
    names = filter(None, map(str.strip, named.split(",")))
    visible = takewhile(lambda name: name != "-1", names)
    return tuple(int(name) if name.isdigit() else name for name in visible)


def _set_devices(node: Config, devices: Sequence[str]) -> dict[str, Json]:
    """Return a node whose parts with `device: auto` have these devices. An encoder uses the first one."""
    changed = {
        name: _set_devices(value, devices)
        if isinstance(value, Mapping) and "_target_" in value
        else value
        for name, value in node.items()
    }
    if changed.get("device") == "auto":
        changed["device"] = ",".join(devices) if "backend" in changed else devices[0]
    return changed


# plans the models of the method and of the judge, and what searches the file of passages
GpuPlanner = Callable[[RunSettings, RoleNodes, RoleNodes, Sequence[Config], str], GpuPlan]
