"""Words that a person put on runs and sweeps: `.tags.json` beside them, `{key: [tag, …]}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kgqa.artefacts.form import checked, read_json
from kgqa.errors import DataError
from kgqa.storage import json_text, locked, replace_file

TAGS = ".tags.json"
LONGEST = 40  # characters of a tag
MOST = 20  # of one run
_REMEDY = "correct it, or remove it to begin without tags"
Tags = Mapping[str, tuple[str, ...]]


def read_tags(root: Path) -> Tags:
    """By the key of a run or sweep. Raises DataError: the file is damaged."""
    file = root / TAGS
    if not file.is_file():
        return {}
    tags: Tags = checked(dict[str, tuple[str, ...]], read_json(file, remedy=_REMEDY), str(file), _REMEDY)
    return tags


def change_tags(root: Path, keys: Iterable[str], add: Iterable[str], remove: Iterable[str]) -> Tags:
    """Put some on each of the runs and take others off; gives all tags as they now are.

    Raises:
        DataError: a tag is empty, too long or no plain text, a run has too many, or the file is damaged.
        StorageError: the disk refuses.
    """
    added, removed = [_tag(text) for text in add], {text.strip() for text in remove}
    file = root / TAGS
    with locked(file.with_suffix(".lock")):
        tags = {key: list(each) for key, each in read_tags(root).items()}
        for key in keys:
            kept = [tag for tag in dict.fromkeys([*tags.get(key, ()), *added]) if tag not in removed]
            if len(kept) > MOST:
                raise DataError(f"{key}: {len(kept)} tags; {MOST} are the most of one run")
            tags[key] = kept
        kept_tags = {key: tuple(tags[key]) for key in sorted(tags) if tags[key]}
        replace_file(file, json_text({key: list(each) for key, each in kept_tags.items()}))
    return kept_tags


def _tag(text: str) -> str:
    tag = text.strip()
    if not tag or len(tag) > LONGEST or not tag.isprintable():
        raise DataError(f"{tag!r:.60}: a tag has 1 to {LONGEST} characters that can be seen")
    return tag
