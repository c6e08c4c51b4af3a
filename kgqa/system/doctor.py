"""Check what is installed, reachable and on disk, for `kgqa doctor`."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from urllib.parse import urlsplit

from kgqa.config import building as parts
from kgqa.config.building import check_node, errors_name
from kgqa.config.files import SECOND, config_files, find_misspelled_groups, groups, is_own
from kgqa.config.keys import load_node
from kgqa.config.scaffolding import find_unused_templates
from kgqa.errors import ConfigError, DataError, UsageError, nearest
from kgqa.scoring.own_metrics import check_own_metrics
from kgqa.system.hardware import GB, free_space, gpus, memory, size_text
from kgqa.system.models import first_model, list_local_models
from kgqa.util.http import trusted_certificates
from kgqa.util.machine import count_cores
from kgqa.util.optional_deps import find_version, install_command, is_available, requirements
from kgqa.util.places import call_cache, home, outputs

# how long to wait for a server
SECONDS = 1.0
ELASTICSEARCH = "http://127.0.0.1:9200"  # its default address


@dataclass(frozen=True)
class Diagnosis:
    """One line.

    state: "ok", "gap" (something is missing) or "note". remedy: how to get what is missing.
    """

    area: str
    name: str
    state: str
    text: str
    remedy: str = ""

    @property
    def optional(self) -> bool:
        """Return whether only the part that the finding is named after needs it."""
        return self.area in ("extras", "servers", "data") and self.name != "kgqa"


def examine(names: Sequence[str]) -> list[Diagnosis]:
    """Return all findings, or those with the given names (an extra, a dataset, …).

    Raises:
        ConfigError: no finding has the name.
    """
    checks = (_machine, _extras, _servers, _datasets, _own_files, _own_templates, _folders, _start)
    findings = [finding for check in checks for finding in check()]
    wanted = [name.partition("=")[2] or name for name in names]
    examined = {finding.name for finding in findings}
    for name in wanted:
        if name not in examined:
            raise ConfigError(f"kgqa doctor {name}: no such check. {nearest(name, examined)}")
    return [finding for finding in findings if not wanted or finding.name in wanted]


def _gap_if(is_gap: object, area: str, name: str, text: str, remedy: str) -> Diagnosis:
    """Return a finding with a remedy if something is missing."""
    return (
        Diagnosis(area, name, "gap", text, remedy) if is_gap else Diagnosis(area, name, "ok", text)
    )


def _machine() -> Iterator[Diagnosis]:
    is_supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    yield _gap_if(not is_supported, "machine", "python", platform.python_version(), "use 3.10–3.13")
    yield Diagnosis(
        "machine",
        "platform",
        "note",
        f"{platform.system()} {platform.machine()}, {count_cores()} cores",
    )
    yield Diagnosis("machine", "memory", "note", f"{memory() / GB:.1f} GB")
    if not gpus():
        yield Diagnosis("machine", "gpu", "note", "not found by nvidia-smi")
    for gpu in gpus():
        text = f"{gpu.name}, {gpu.memory / GB:.0f} GB, driver {gpu.driver}"
        remedy = "torch is built for CPUs: install the build for CUDA, see pytorch.org"
        yield _gap_if(find_version("torch").endswith("+cpu"), "machine", "gpu", text, remedy)


def _extras() -> Iterator[Diagnosis]:
    """Yield the extras of the installed package."""
    try:
        about = metadata("kgqa")
    except PackageNotFoundError:
        yield Diagnosis(
            "extras",
            "kgqa",
            "gap",
            "runs from its source without being installed",
            "pip install -e .",
        )
        return
    yield Diagnosis("extras", "kgqa", "ok", version("kgqa"))
    for extra in sorted(about.get_all("Provides-Extra") or []):
        wanted = requirements(extra, about.get_all("Requires-Dist") or [])
        missing = [text for name, text in wanted.items() if not is_available(name)]
        text = ", ".join(
            f"{name} {find_version(name)}".strip() for name in wanted if is_available(name)
        )
        if missing:
            text = f"{text}, lacks {', '.join(missing)}" if text else f"lacks {', '.join(missing)}"
        yield _gap_if(missing, "extras", extra, text, install_command(extra))


def _servers() -> Iterator[Diagnosis]:
    key = "a key is set" if os.environ.get("OPENAI_API_KEY") else "no OPENAI_API_KEY"
    if base := os.environ.get("OPENAI_BASE_URL"):
        yield _server(
            "openai-server",
            f"{base.rstrip('/')}/models",
            f"start it or fix OPENAI_BASE_URL ({key})",
        )
    else:
        text = f"OPENAI_BASE_URL is not set, {key}. See conf/engine/openai.yaml"
        yield Diagnosis("servers", "openai-server", "note", text)
    remedy = "start one and set KGQA_ES_URL. Only retriever=elasticsearch needs it"
    yield _server(
        "elasticsearch", os.environ.get("KGQA_ES_URL", "").rstrip("/") or ELASTICSEARCH, remedy
    )


def _server(name: str, url: str, remedy: str) -> Diagnosis:
    """Check whether a server answers HTTP. No key is sent, so a rejected login counts as an answer."""
    import requests

    parsed = urlsplit(url)
    # without the credentials that an address may hold
    address = f"{parsed.scheme}://{parsed.hostname}"
    try:
        address += f":{parsed.port}" if parsed.port else ""
        certificates = trusted_certificates()
        answer = requests.get(
            f"{address}{parsed.path}", timeout=SECONDS, verify=certificates, allow_redirects=False
        )
        status = answer.status_code
    except (
        requests.RequestException,
        ConfigError,
        OSError,
        ValueError,
    ) as error:  # ValueError: no valid port
        return Diagnosis(
            "servers", name, "gap", f"{address} does not answer ({error!s:.100})", remedy
        )
    return Diagnosis("servers", name, "ok", f"{address} answers (HTTP {status})")


def _datasets() -> Iterator[Diagnosis]:
    for name in groups()["dataset"]:
        try:
            yield Diagnosis("data", name, "ok", str(parts.dataset(load_node("dataset", name)).file))
        except DataError as error:  # noqa: PERF203 - each dataset has its own error
            missing = re.split(r"[;.] ", str(error).partition(": ")[2])[0]
            remedy = f"kgqa data download dataset={name}, or set KGQA_DATA=FOLDER"
            yield Diagnosis("data", name, "gap", missing, remedy)
        except ConfigError as error:
            # the user's own documents, which have to be named
            yield Diagnosis("data", name, "note", str(error).partition(": ")[2])


def _own_files() -> Iterator[Diagnosis]:
    """Yield each file of the user's conf/ that names a class or a metric: it must exist and have the file's keys."""
    for group in (each for each in groups() if each not in (*SECOND, "experiment", "adapter")):
        parts = {"engine": {"model"}, "collection": {"dataset"}}.get(group, ())
        for name, file in config_files(group).items():
            if is_own(group, name):
                try:
                    with errors_name(file):
                        check_node(load_node(group, name), group, parts)
                    yield Diagnosis("own files", name, "ok", str(file))
                except UsageError as error:
                    yield Diagnosis("own files", name, "gap", str(error))
    for metric, reason in check_own_metrics().items():
        text = reason or os.path.relpath(metric)
        yield Diagnosis("own files", metric.stem, "gap" if reason else "ok", text)
    for folder, target in find_misspelled_groups().items():
        text = f"{folder}: kgqa reads no folder of this name"
        yield Diagnosis("own files", folder.name, "gap", text, f"move its files to {target}")


def _own_templates() -> Iterator[Diagnosis]:
    for file, hint in find_unused_templates().items():
        yield Diagnosis(
            "own files", file.stem, "gap", f"{file}: no method renders this template", hint
        )


def _folders() -> Iterator[Diagnosis]:
    for name, folder, hint in (
        ("outputs", outputs(), "set output_dir=DIR"),
        ("call-cache", call_cache(), "set KGQA_CACHE"),
        ("models-cache", home(), "set KGQA_HOME"),
    ):
        existing = next(
            each for each in (folder.absolute(), *folder.absolute().parents) if each.exists()
        )
        is_writable = existing.is_dir() and os.access(existing, os.W_OK)
        text = f"{folder.resolve()}: {size_text(folder)}, {free_space(folder) / GB:.1f} GB free"
        yield _gap_if(not is_writable, "folders", name, text, f"not writable: {hint}")


def _start() -> Iterator[Diagnosis]:
    """Yield the requirements of a new user's first commands."""
    yield Diagnosis("to start", "recorded-demo", "ok", "kgqa demo --recorded needs no model")
    server = next(
        (name for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY") if os.environ.get(name)), ""
    )
    if preset := next(iter(list_local_models()), None):
        text = f"{preset.name} ({(preset.size() or 0.0) / GB:.1f} GB): kgqa demo"
        yield Diagnosis("to start", "model", "ok", text)
    elif server:
        text = f"none on this machine. On the server of ${server}: engine=openai model=PRESET"
        yield Diagnosis("to start", "model", "ok", text)
    else:
        remedy = f"{first_model()}, or name a server: export OPENAI_BASE_URL=URL"
        yield Diagnosis(
            "to start", "model", "gap", "no weights with an engine for them, and no server", remedy
        )
    missing = [name for name in ("semantic-text-splitter", "pdfplumber") if not is_available(name)]
    text = (
        "document readers are not installed"
        if missing
        else "text, Markdown, HTML, DOCX, PDF: kgqa ask QUESTION FOLDER"
    )
    yield _gap_if(missing, "to start", "own-documents", text, install_command("pdf"))
