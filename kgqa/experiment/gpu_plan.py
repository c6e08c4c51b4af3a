"""Plan the GPUs of a run: what its models, its encoder and its index need, and which devices they get."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kgqa.config import building as parts
from kgqa.config.files import Config, Node
from kgqa.config.run_keys import RunSettings
from kgqa.engines.weights import Model, read_settings
from kgqa.errors import ConfigError
from kgqa.experiment.devices import Devices, GpuPlan, find_devices
from kgqa.experiment.engines import RoleBinding, RoleNodes
from kgqa.experiment.placement import (
    GB,
    OVERHEAD,
    Demand,
    Placement,
    bytes_per_token,
    merge_names,
    place,
)
from kgqa.system.models import Preset

VLLM = "kgqa.engines.vllm.Vllm"
SEARCH = "encoder and index"
# bytes for an encoder of any size: 7 billion parameters in half precision
ENCODER = 16 * GB
# dimensions of an encoder whose preset does not name them
DIMENSIONS = 1024
# of corpora that are too large to count, by the name of their file: DPR's passages of Wikipedia
PASSAGES = {"wiki18_100w.jsonl": 21_015_324}
# bytes of a line of a corpus, roughly
LINE = 650
STORED = {"float16": 2, "float32": 4}
ON_DEVICE = ("kgqa.retrieval.encoders.", "kgqa.retrieval.rerankers.")


def plan_gpus(
    settings: RunSettings,
    roles: RoleNodes,
    judges: RoleNodes,
    searches: Sequence[Config],
    corpus: str,
) -> GpuPlan:
    """Return the plan of a run's GPUs. Only models of engine=vllm without `devices` get some.

    Args:
        searches: nodes of the retriever and of rankers.
        corpus: the file of passages, "" without one.

    Raises:
        ConfigError: the models do not fit on the GPUs, or nothing shows their size.
    """
    plan, devices = GpuPlan(roles, judges), find_devices(settings)
    if devices is None:
        return plan
    devices = _leave_out(devices, roles)
    answering = _list_models(roles)
    judging = [
        each for each in _list_models(judges) if each[0] not in [other for other, _ in answering]
    ]
    if not (answering or judging) or not devices.names:
        return plan
    try:
        answer = [_find_demand(roles, nodes, names, "") for nodes, names in answering]
        judge = [_find_demand(judges, nodes, names, "roles.judge.") for nodes, names in judging]
    except ConfigError:
        # without `gpus=` a run with a model of unknown size starts as it is
        if settings.gpus is None:
            return plan
        raise
    demands = {"answer": answer, "judge": judge}
    search = _find_search_demand(searches, corpus)
    if search and len(devices.names) > 1:
        demands["answer"] = [*answer, search]
    elif search and settings.gpus is not None:
        _check_shared(answer, _measure_indexes(searches, corpus), devices.memory)
    placement = place(
        {stage: each for stage, each in demands.items() if each}, len(devices.names), devices.memory
    )
    searching = placement.find(SEARCH)
    return replace(
        plan,
        roles=_apply(roles, answering, answer, placement, devices),
        judges=_apply(judges, [*answering, *judging], [*answer, *judge], placement, devices),
        placement=placement,
        devices=devices,
        search=tuple(devices.indexes[each] for each in searching.devices) if searching else (),
    )


def _check_shared(models: Sequence[Demand], index: float, memory: float) -> None:
    """Raise a ConfigError if an index of `index` bytes on the only GPU needs more than vLLM leaves."""
    share = 1 - (index + OVERHEAD) / memory
    for demand in models:
        if index and demand.share > share:
            remedy = f"{demand.key}.gpu_memory_utilization={share:.2f} or " if share > 0 else ""
            raise ConfigError(
                f"gpus: the index needs {index / GB:.0f} GB of the only GPU, and {demand.name} uses "
                f"{demand.share:.0%} of it. Set {remedy}retriever.device=cpu"
            )


# one model: its configuration as text, with the roles that it has
Models = list[tuple[str, list[str]]]


def _leave_out(devices: Devices, roles: RoleNodes) -> Devices:
    """Return the GPUs without those that `devices` gives to other models of the run."""
    occupied = {name for binding in roles.values() for name in binding.engine.get("devices") or ()}
    free = [place for place, name in enumerate(devices.names) if name not in occupied]
    return replace(
        devices,
        names=tuple(devices.names[place] for place in free),
        indexes=tuple(devices.indexes[place] for place in free),
    )


def _key(binding: RoleBinding) -> str:
    return json.dumps([binding.model, binding.engine], sort_keys=True)


def _list_models(roles: RoleNodes) -> Models:
    """Return the models that kgqa places, the reader's first, each with its roles."""
    models: dict[str, list[str]] = {}
    for role in sorted(roles, key=lambda role: (role != "reader", role != "", role)):
        binding = roles[role]
        if binding.engine.get("_target_") == VLLM and not binding.engine.get("devices"):
            models.setdefault(_key(binding), []).append(role)
    return list(models.items())


def _find_demand(roles: RoleNodes, nodes: str, names: Sequence[str], group: str) -> Demand:
    binding = next(binding for binding in roles.values() if _key(binding) == nodes)
    model, engine = parts.model(binding.model), binding.engine
    size = Preset(model.name, model).size()
    layers = _find_layers(model)
    if size is None or layers is None:
        raise ConfigError(
            f"gpus: the size of model={model.name} is unknown. Set model.about.parameters (billions), "
            "model.about.layers, model.about.kv_heads and model.about.head_size, from its config.json"
        )
    copies = int(engine["data_parallel"])
    stages = int((engine["extra_args"] or {}).get("pipeline_parallel_size", 1))
    # the sizes are those of half precision
    wide = 2 if engine["dtype"] == "float32" else 1
    role = next((name for name in names if name), "")
    return Demand(
        name=f"{merge_names(names)}: {model.name}",
        key=f"{group or (f'roles.{role}.' if role else '')}engine",
        weights=size * wide,
        per_token=bytes_per_token(*layers) * wide,
        tokens=min(engine["max_model_len"] or model.window, model.window),
        share=float(engine["gpu_memory_utilization"]),
        least=int(engine["tensor_parallel"]) * stages,
        stages=stages,
        kv_heads=layers[1],
        copies=copies if copies > 1 else None,
    )


def _find_layers(model: Model) -> tuple[int, int, int] | None:
    """Return layers, heads of keys and values, and their size, of the preset or of the weights on this machine."""
    about = model.about
    if about and about.layers and about.kv_heads and about.head_size:
        return about.layers, about.kv_heads, about.head_size
    folder = next(iter(model.at_hand()), Path())
    config = read_settings(folder / "config.json") if folder.is_dir() else {}
    config = config.get("text_config") or config
    try:
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        return config["num_hidden_layers"], config.get("num_key_value_heads") or heads, size
    except KeyError:
        return None


def _find_search_demand(nodes: Sequence[Config], corpus: str) -> Demand | None:
    """Return the demand of the encoder, and of the index if it is on GPUs. None: nothing of it uses a GPU."""
    targets = [str(part.get("_target_", "")) for part in _list_movable(nodes)]
    encoders = [target for target in targets if target.startswith(ON_DEVICE)]
    size = _measure_indexes(nodes, corpus)
    if not encoders and not size:
        return None
    return Demand(SEARCH, "retriever", ENCODER * bool(encoders) + size, copies=1, splits=True)


def _measure_indexes(nodes: Iterable[Config], corpus: str) -> float:
    """Return the bytes of all indexes on GPUs."""
    indexes = [part for part in _list_movable(nodes) if part.get("backend", "numpy") != "numpy"]
    return sum(_index_bytes(index, corpus) for index in indexes)


def _list_movable(nodes: Iterable[Config]) -> list[Node]:
    """Return the parts that kgqa places."""
    return [part for node in nodes for part in _list_parts(node) if part.get("device") == "auto"]


def _index_bytes(node: Config, corpus: str) -> float:
    encoder = node.get("encoder")
    dimensions = (encoder.get("dimensions") if isinstance(encoder, Mapping) else None) or DIMENSIONS
    # FAISS stores half precision on GPUs, see `kgqa.retrieval.dense`
    bytes_each = STORED[node["storage"]] if node["backend"] == "torch" else STORED["float16"]
    return float(_count_passages(corpus) * dimensions * bytes_each)


def _count_passages(corpus: str) -> int:
    """Return the passages of a corpus: known ones by their name, others by the size of the file."""
    path = Path(corpus)
    if path.name in PASSAGES:
        return PASSAGES[path.name]
    return path.stat().st_size // LINE if path.is_file() else 0


def _list_parts(node: Config) -> Iterator[Node]:
    yield dict(node)
    for value in node.values():
        if isinstance(value, Mapping) and "_target_" in value:
            yield from _list_parts(value)


def _apply(
    roles: RoleNodes,
    models: Models,
    demands: Sequence[Demand],
    placement: Placement,
    devices: Devices,
) -> RoleNodes:
    """Return the roles with the devices of their models."""
    places = {
        nodes: placement.find(demand.name)
        for (nodes, _), demand in zip(models, demands, strict=True)
    }
    placed = dict(roles)
    for role, binding in roles.items():
        if (target := places.get(_key(binding))) is not None:
            names = [devices.names[position] for position in target.devices]
            more = {
                "devices": names,
                "tensor_parallel": target.split // target.demand.stages,
                "data_parallel": target.copies,
            }
            placed[role] = binding._replace(engine={**binding.engine, **more})
    return placed
