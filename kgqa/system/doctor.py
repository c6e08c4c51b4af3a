"""Check what is installed, reachable and on disk, for `kgqa doctor`."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import Literal
from urllib.parse import urlsplit

from kgqa.config import factories as parts
from kgqa.config.files import groups, load_node
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.retrieval.faiss_search import check_index
from kgqa.system.adapters import list_adapters
from kgqa.system.hardware import GB, cores, free_space, gpus, memory, size_text
from kgqa.system.local_model import best_local_model, first_model
from kgqa.util import http
from kgqa.util.fs import call_cache, home, outputs
from kgqa.util.optional_deps import find_version, is_available, missing_libraries, requirements

SECONDS = 1.0  # that a server may take to say anything
ELASTICSEARCH = "http://127.0.0.1:9200"  # where it listens unless told otherwise


@dataclass(frozen=True)
class Finding:
    """One line. A gap is something that is missing for what its name stands for; `remedy` says how to get it.
    `optional`: only what is named after it needs it."""

    area: str
    name: str
    state: Literal["ok", "gap", "note"]
    text: str
    remedy: str = ""
    optional: bool = False


def examine(named: Sequence[str]) -> list[Finding]:
    """Return all findings, or those with the given names (an engine, an extra, a dataset, …).

    Raises:
        ConfigError: nothing is called so.
    """
    findings = list(_findings())
    wanted = [argument.partition("=")[2] or argument for argument in named]
    known = {finding.name for finding in findings}
    for name in wanted:
        if name not in known:
            raise ConfigError(f"kgqa doctor {name}: nothing of that name; {nearest(name, known)}")
    return [finding for finding in findings if not wanted or finding.name in wanted]


def _findings() -> Iterator[Finding]:
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _machine, _extras, _engines, _adapters, _servers, _datasets, _folders, _beginnings,
    )  # fmt: skip
    for check in checks:
        optional = check in (_extras, _engines, _servers, _datasets)
        yield from (replace(finding, optional=optional and finding.name != "kgqa") for finding in check())


def _machine() -> Iterator[Finding]:
    python = platform.python_version()
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    yield Finding("machine", "python", "ok" if supported else "gap", python, "" if supported else "use 3.10–3.13")
    yield Finding("machine", "platform", "note", f"{platform.system()} {platform.machine()}, {cores()} cores")
    yield Finding("machine", "memory", "note", f"{memory() / GB:.1f} GB")
    if not gpus():
        apple = platform.system() == "Darwin" and platform.machine() == "arm64"
        yield Finding("machine", "gpu", "note", "Apple's (engine.device=mps)" if apple else "none seen by nvidia-smi")
    cpu_torch = find_version("torch").endswith("+cpu")
    for gpu in gpus():
        text = f"{gpu.name}, {gpu.memory / GB:.0f} GB, driver {gpu.driver}"
        remedy = "torch is built for CPUs: install the build for CUDA, see pytorch.org" if cpu_torch else ""
        yield Finding("machine", "gpu", "gap" if cpu_torch else "ok", text, remedy)


def _extras() -> Iterator[Finding]:
    """Yield the extras of the installed package."""
    try:
        about = metadata("kgqa")
    except PackageNotFoundError:
        yield Finding("extras", "kgqa", "gap", "runs from its source without being installed", "pip install -e .")
        return
    yield Finding("extras", "kgqa", "ok", version("kgqa"))
    for extra in sorted(about.get_all("Provides-Extra") or []):
        wanted = requirements(extra, about.get_all("Requires-Dist") or [])
        lacking = [text for name, text in wanted.items() if not is_available(name)]
        text = ", ".join(f"{name} {find_version(name)}".strip() for name in wanted if is_available(name))
        if lacking:
            text = f"{text}; lacks {', '.join(lacking)}" if text else f"lacks {', '.join(lacking)}"
        remedy = f"pip install 'kgqa[{extra}]'" if lacking else ""
        if extra.startswith("faiss-"):
            yield _faiss(extra, text, lacking)
            continue
        yield Finding("extras", extra, "gap" if lacking else "ok", text, remedy)


def _faiss(extra: str, text: str, lacking: Sequence[str]) -> Finding:
    """Check the two extras of faiss: one is enough, both at once conflict."""
    try:
        check_index()
    except ConfigError as error:
        problem, _, remedy = str(error).partition("; ")
        return Finding("extras", extra, "gap", problem, remedy)
    if lacking:
        return Finding("extras", extra, "note", "not needed: the other build of FAISS is here")
    return Finding("extras", extra, "ok", text)


def _engines() -> Iterator[Finding]:
    for engine in groups()["engine"]:
        lacking = missing_libraries(engine)
        remedy = f"pip install 'kgqa[{engine}]'" if lacking else ""
        text = f"lacks {', '.join(lacking)}" if lacking else "can run"
        yield Finding("engines", engine, "gap" if lacking else "ok", text, remedy)


def _adapters() -> Iterator[Finding]:
    """Yield the adapters with a name; one that cannot be loaded is a gap."""
    for adapter in list_adapters():
        if adapter.path is None:
            yield Finding("adapters", adapter.name, "note", "only a server has it")
            continue
        try:
            preset, _ = adapter.trained_on()
            adapter.check_plain()
        except (ConfigError, DataError) as error:
            yield Finding("adapters", adapter.name, "gap", str(error))
            continue
        on = f"rank {adapter.rank} on {preset or 'a base that nothing names'}"
        wanting = "" if adapter.gguf.is_file() else f"; engine=llamacpp: kgqa models trained {adapter.name} --gguf"
        yield Finding("adapters", adapter.name, "ok", f"{on}: {adapter.folder}{wanting}")


def _servers() -> Iterator[Finding]:
    key = "a key is set" if os.environ.get("OPENAI_API_KEY") else "no OPENAI_API_KEY"
    base = os.environ.get("OPENAI_BASE_URL")
    if base:
        yield _server("openai-server", base, "/models", f"start it or mend OPENAI_BASE_URL; {key}")
    else:
        yield Finding(
            "servers", "openai-server", "note", f"OPENAI_BASE_URL is not set, {key}; see conf/engine/openai.yaml"
        )
    url = os.environ.get("KGQA_ES_URL", "").rstrip("/")
    yield _server(
        "elasticsearch",
        url or ELASTICSEARCH,
        "",
        "start one and set KGQA_ES_URL; only retriever=elasticsearch needs it",
    )


def _server(name: str, url: str, path: str, remedy: str) -> Finding:
    """Check whether a server answers HTTP. No key is sent, so a refused login counts as an answer."""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.hostname}"  # without the credentials that an address may hold
    try:
        shown += f":{parts.port}" if parts.port else ""
        with http.translate_errors(), http.create_client(SECONDS, redirected=False) as client:
            status = client.get(f"{shown}{parts.path.rstrip('/')}{path}").status_code
    except (http.NoResponse, ConfigError, ValueError) as error:  # ValueError: the port is none
        return Finding("servers", name, "gap", f"{shown} does not answer ({error!s:.100})", remedy)
    return Finding("servers", name, "ok", f"{shown} answers (HTTP {status})")


def _datasets() -> Iterator[Finding]:
    for name in groups()["dataset"]:
        settings = load_node("dataset", name)
        try:
            yield Finding("data", name, "ok", str(parts.dataset(settings).file))
        except DataError as error:
            missing = str(error).partition(": ")[2].partition(";")[0]
            yield Finding("data", name, "gap", missing, f"kgqa data download dataset={name}, or set KGQA_DATA=FOLDER")
        except ConfigError as error:  # one of the user's own documents, which has to be named
            yield Finding("data", name, "note", str(error).partition(": ")[2])


def _folders() -> Iterator[Finding]:
    places = {"outputs": outputs(), "call-cache": call_cache(), "models-cache": home()}
    hints = {"outputs": "give out=DIR", "call-cache": "set KGQA_CACHE", "models-cache": "set KGQA_HOME"}
    for name, folder in places.items():
        existing = folder
        while not existing.exists():
            existing = existing.parent
        writable = existing.is_dir() and os.access(existing, os.W_OK)
        text = f"{folder.resolve()}: {size_text(folder)}, {free_space(folder) / GB:.1f} GB free"
        remedy = "" if writable else f"not writable: {hints[name]}"
        yield Finding("folders", name, "ok" if writable else "gap", text, remedy)


def _beginnings() -> Iterator[Finding]:
    """Yield what the first commands of a new user need."""
    yield Finding("to begin", "recorded-demo", "ok", "kgqa demo --recorded needs nothing more")
    try:
        preset = best_local_model(())
    except ConfigError:
        preset = None
    if preset:
        yield Finding("to begin", "model", "ok", f"{preset.name} ({(preset.size() or 0.0) / GB:.1f} GB): kgqa demo")
    else:
        yield _no_model()
    lacking = [extra for extra, (package, _) in _READERS.items() if not is_available(package)]
    if lacking:
        text = "kgqa ask reads no documents" if _LEAST in lacking else "kgqa ask reads all documents but PDFs"
        yield Finding("to begin", "own-documents", "gap", text, "pip install 'kgqa[pdf]'")
    else:
        kinds = ", ".join(kind for _, kind in _READERS.values())
        yield Finding("to begin", "own-documents", "ok", f"{kinds}: kgqa ask QUESTION FOLDER")


_LEAST = "documents"
_READERS = {_LEAST: ("semantic-text-splitter", "text, Markdown, HTML, DOCX"), "pdf": ("pdfplumber", "PDF")}  # by extra


def _no_model() -> Finding:
    """Return the finding if there is no local model: a server can replace it."""
    if server := next((name for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY") if os.environ.get(name)), ""):
        return Finding("to begin", "model", "ok", f"none here; of the server of ${server}: engine=openai model=PRESET")
    remedy = f"{first_model()}, or name a server: export OPENAI_BASE_URL=URL"
    return Finding("to begin", "model", "gap", "neither weights with an engine for them nor a server", remedy)
