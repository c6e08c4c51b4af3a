"""The settings of `kgqa bootstrap`, which its help shows without importing what it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Count


@dataclass(frozen=True)
class Bootstrapping:
    """KnowTrace's rounds of answering, collecting useful steps and training on them."""

    rounds: Annotated[
        Count,
        Setting(
            "Number of rounds. The paper stops when EM no longer grows (§4.2).", paper="Figure 4"
        ),
        NotIdentity("more rounds continue in the same folder"),
    ] = 4
    filter: Annotated[
        Literal["backtracing", "none"],
        Setting(
            "How examples are filtered: backtracing | none, all replies of right answers (§4.4).",
            paper="§3.3",
        ),
    ] = "backtracing"
    split: Annotated[
        str | None,
        Setting(
            "Split of the training questions. null: the split of the evaluation.", ours="our choice"
        ),
    ] = "train"
    sample: Annotated[
        Count | None,
        Setting("Number of training questions, sampled with `seed`. null: all.", paper="§4.2"),
    ] = 5000
    limit: Annotated[Count | None, Setting("Maximum number of training questions.")] = None
    ids: Annotated[tuple[str, ...] | None, Setting("Only these training questions.")] = None
    fewest: Annotated[
        Count,
        Setting("Minimum number of right answers. A round with fewer stops.", ours="our choice"),
        NotIdentity("decides when to stop"),
    ] = 300
    collect: Annotated[str, Setting("Recipe of kgqa collect.", paper="Algorithm 2: P⁺ and T⁺")] = (
        "knowtrace"
    )
    train: Annotated[
        Mapping[str, str],
        Setting(
            "Recipe of an adapter for each role, always on the base model (Algorithm 2, line 17).",
            paper="§3.3",
        ),
    ] = field(
        default_factory=lambda: {
            "explorer": "knowtrace_explorer",
            "completer": "knowtrace_completer",
        }
    )
