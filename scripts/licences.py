"""Licences of what kgqa depends on, from the metadata of what is installed, as docs/LICENCES.md lists them.

    python scripts/licences.py [SITE-PACKAGES …]           write the page; the environment's own unless others are named
    python scripts/licences.py --check [SITE-PACKAGES …]   exit code 1 where a licence is neither permissive nor listed
                                                           below with its reason, or the page lacks a package

A package that is in none of the environments is left out: the page says what was looked at.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "LICENCES.md"
PERMISSIVE = frozenset(
    {
        *("MIT", "MIT-0", "MIT-CMU", "BSD", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Zlib", "HPND"),
        *("Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSL-1.0", "CC0-1.0", "Unlicense"),
        *("PSF-2.0", "Python-2.0", "CNRI-Python"),
    }
)
# What packages write in place of an SPDX expression; BSD alone is one of the two, and its text says which
SPELT = {
    "mit license": "MIT",
    "apache software license": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache": "Apache-2.0",
    "bsd license": "BSD",
    "bsd 3-clause license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "isc license (iscl)": "ISC",
    "isc license": "ISC",
    "python software foundation license": "PSF-2.0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
# Not permissive, or not said in the metadata: licence, and why it may be used
LISTED: Mapping[str, tuple[str, str]] = {
    "certifi": ("MPL-2.0", "a list of certificates, used as it is; the licence asks for what is changed in it alone"),
    "hypothesis": ("MPL-2.0", "runs in tests alone and is used as it is"),
    "pathspec": ("MPL-2.0", "comes with mypy, used as it is, in the gates alone"),
    "tqdm": ("MPL-2.0 AND MIT", "comes with the hub's client, used as it is"),
    "pypdfium2": (
        "BSD-3-Clause AND Apache-2.0",
        "in words of its own; PDFium brings those of its parts",
    ),
    "setuptools": ("MIT", "said in its file LICENSE"),
}
HEAD = """# Licences of what kgqa depends on

kgqa itself is under the licence in [LICENSE](../LICENSE). `make licences` writes this page from the metadata of the
packages in the environments of the Makefile; `make test` refuses a package that is not here, or whose licence is
neither permissive nor listed with a reason in `scripts/licences.py`. kgqa contains none of them: they are installed
beside it. "core" is needed always, the others belong to extras (`pip install 'kgqa[NAME]'`), or to groups with which
kgqa is developed.

| package | licence | for |
|---|---|---|
"""


@dataclass(frozen=True, order=True)
class Licensed:
    name: str
    licence: str  # "": not said
    wanted_by: tuple[str, ...]  # core, extras, groups
    reason: str = ""

    @property
    def accepted(self) -> bool:
        return bool(self.reason) or permissive(self.licence)

    def row(self) -> str:
        why = f"; {self.reason}" if self.reason else ""
        return f"| {self.name} | {self.licence or 'unknown'}{why} | {', '.join(self.wanted_by)} |"


def permissive(expression: str) -> bool:
    """One of alternatives is enough; of what holds together, each must be."""
    parts = re.split(r"\s+(?:AND|OR)\s+", expression.replace("(", "").replace(")", ""))
    enough = any if " AND " not in expression else all
    return enough(part in PERMISSIVE for part in parts)


def licence(found: Distribution) -> str:
    """As an SPDX expression where the package gives one, else what its classifiers or its word for it stand for."""
    metadata: Any = found.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classified = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or [] if "License ::" in text]
    word = (metadata.get("License") or "").strip().partition("\n")[0].strip()  # some have the whole text there
    known = [SPELT[text.lower()] for text in classified if text.lower() in SPELT]
    if word in PERMISSIVE or " AND " in word or " OR " in word:
        return word
    return SPELT.get(word.lower(), "") or " AND ".join(dict.fromkeys(known))


def licensed(sites: Sequence[str]) -> list[Licensed]:
    """What is installed there and wanted by kgqa, directly or not."""
    installed: dict[str, Distribution] = {}
    for found in distributions(path=list(sites)):
        installed.setdefault(canonicalize_name(found.metadata["Name"]), found)  # the first environment's
    wanted: dict[str, set[str]] = {}
    for group, requirements in roots().items():
        for name in closure(requirements, installed):
            wanted.setdefault(name, set()).add(group)
    packages = []
    for name, groups in wanted.items():
        shown = ("core",) if "core" in groups else tuple(sorted(groups))
        text, reason = LISTED.get(name, (licence(installed[name]), ""))
        packages.append(Licensed(name, text, shown, reason))
    return sorted(packages)


def roots() -> dict[str, list[str]]:
    """Requirements of kgqa: core, by extra, by group."""
    tomllib: Any = import_module("tomllib")  # of Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {
        name: [line for line in lines if isinstance(line, str)] for name, lines in project["dependency-groups"].items()
    }
    return {"core": project["project"]["dependencies"], **project["project"]["optional-dependencies"], **groups}


def closure(requirements: Iterable[str], installed: Mapping[str, Distribution]) -> set[str]:
    """Names of what is installed of the requirements and of theirs; kgqa's own extras lead to their requirements."""
    seen: set[tuple[str, str]] = set()
    left = [Requirement(text) for text in requirements]
    own = roots()
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in requirement.extras or {""}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name == "kgqa":
                left += map(Requirement, own[extra])
            elif name in installed:
                left += _required(installed[name], extra)
    return {name for name, _ in seen if name in installed}


def _required(found: Distribution, extra: str) -> Iterator[Requirement]:
    for requirement in map(Requirement, found.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def complaints(packages: Iterable[Licensed], page: str) -> list[str]:
    """What is not in order, a line each."""
    rows = {cells[1].strip(): cells[2].strip() for line in page.splitlines() if len(cells := line.split("|")) == 5}
    lines = []
    for package in packages:
        if not package.accepted:
            lines.append(f"{package.name}: {package.licence or 'no licence in its metadata'}; list it with a reason")
        if rows.get(package.name) != package.row().split("|")[2].strip():
            lines.append(f"{package.name}: docs/LICENCES.md does not have it so; run: make licences")
    return lines


def main(arguments: Sequence[str]) -> int:
    sites = [argument for argument in arguments if argument != "--check"] or sys.path
    packages = licensed(sites)
    if "--check" not in arguments:
        PAGE.write_text(HEAD + "\n".join(package.row() for package in packages) + "\n", encoding="utf-8")
    failed = complaints(packages, PAGE.read_text(encoding="utf-8") if PAGE.is_file() else "")
    for line in failed:
        print(line, file=sys.stderr)
    print(f"{len(packages)} packages, {len(failed)} not in order")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
