"""`kgqa doctor`, `kgqa cache` and `kgqa new`: this machine, the call cache, and the first files of own code."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

from kgqa.artifacts.run import find_run
from kgqa.cache.maintenance import check, export_calls, import_calls, prune, stats
from kgqa.cache.store import FILE
from kgqa.cli.terminal import Terminal
from kgqa.config.prompt_runs import list_prompt_runs
from kgqa.config.scaffolding import copy_prompt, shipped_templates, write_scaffold
from kgqa.errors import ConfigError
from kgqa.experiment.replay import replay
from kgqa.scoring.questions import BUILT_IN, RESERVED
from kgqa.system.doctor import Diagnosis, examine
from kgqa.system.models import list_local_models
from kgqa.util.optional_deps import is_available
from kgqa.util.places import call_cache

MARKS = {"ok": "✓", "gap": "✗", "note": "·"}
FIRST_RUNS = {
    "method": "kgqa run method={name} dataset=demo engine=scripted limit=3",
    "dataset": "kgqa run dataset={name} method=all_documents engine=scripted",
    "retriever": "kgqa run retriever={name} method=retrieve_only dataset=demo",
    "metric": "kgqa run method=golden dataset=demo engine=scripted limit=3",
    "judge": "kgqa run method=golden judge={name} dataset=demo engine=scripted limit=3",
    "model": "kgqa run model={name} method=no_context dataset=demo limit=3",
}


def doctor(args: Namespace, terminal: Terminal) -> int:
    """Show what is installed, reachable and on disk. Named findings give exit code 2 if one is missing."""
    findings, is_folded = examine(args.positionals), not args.positionals
    width = max((len(each.name) for each in findings), default=0)
    for area, group in groupby(findings, key=lambda finding: finding.area):
        of_area = list(group)
        folded = [each for each in of_area if is_folded and each.optional and each.state == "gap"]
        rows = [each for each in of_area if each not in folded]
        if folded:
            names = ", ".join(each.name for each in folded)
            rows.append(
                Diagnosis(
                    area, "not found", "note", names, "optional. How to get one: kgqa doctor NAME"
                )
            )
        terminal.heading(area)
        for each in rows:
            text = f"  {MARKS[each.state]} {each.name.ljust(width)}  {each.text}"
            terminal.line(text, alarm=each.state == "gap")
            if each.remedy:
                # a line of its own that is never wrapped, so that its command can be copied
                terminal.line(f"    → {each.remedy}")
    terminal.line("")
    gaps = sum(each.state == "gap" and not (is_folded and each.optional) for each in findings)
    kind = "required checks" if is_folded else "checks"
    terminal.line(
        f"{gaps} of {len(findings)} checks failed. → shows how to fix them"
        if gaps
        else f"all {kind} passed"
    )
    return 2 if args.positionals and gaps else 0


def check_cache(args: Namespace, terminal: Terminal) -> int:
    """Read all calls. With --repair, drop damaged ones. Return 1 if one is damaged."""
    calls, damaged = check(call_cache(), repair=args.repair)
    terminal.line(
        f"{call_cache() / FILE}: {calls:,} calls, {damaged:,} damaged{'' if damaged else ': whole'}"
    )
    if args.repair and damaged:
        terminal.line("damaged calls are deleted, runs will repeat them")
    return 0 if args.repair or not damaged else 1


def show_cache(args: Namespace, terminal: Terminal) -> None:
    """Show calls by engine and model, with their sum."""
    shares = stats(call_cache())
    if args.json:
        terminal.json(shares)
        return
    rows = []
    for share in shares:
        dates = _date(share["oldest"]), _date(share["newest"])
        # the hash of a file with weights. --json has all of it
        model = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b", r"\1…", share["model"])
        rows.append((share["engine"] or "unknown", model, share["calls"], share["bytes"], *dates))
    terminal.table(("engine", "model", "calls", "bytes", "oldest", "newest"), rows)
    calls, size = (sum(share[name] for share in shares) for name in ("calls", "bytes"))
    terminal.line(f"{call_cache()}: {calls:,} calls, {size:,} bytes")


def _date(seconds: int | None) -> str:
    return "–" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d")


def export_cache(args: Namespace, terminal: Terminal) -> None:
    """Write calls to one file: all, or those that replay runs."""
    file = Path(args.positionals[0])
    if file.is_dir():
        raise ConfigError(f"{file}: a folder. Name a file in it, e.g. {file / 'calls.jsonl.zst'}")
    exported = export_calls(
        call_cache(), file, _keys_of(args.run, terminal) if args.run else None, args.engine
    )
    for count, why in (
        (exported["damaged"], "damaged: see kgqa cache check"),
        (exported["secret"], "their replies contain a key from your environment"),
    ):
        if count:
            terminal.line(f"skipped: {count:,} calls ({why})")
    terminal.line(f"{file}: {exported['calls']:,} calls, {file.stat().st_size:,} bytes")


def _keys_of(runs: Sequence[str], terminal: Terminal) -> set[str]:
    """Return the keys of the calls that replay these runs."""
    keys = set[str]()
    for folder in map(find_run, runs):
        replayed = replay(folder, terminal)
        failed = f". {replayed.missing:,} failed and are not saved" if replayed.missing else ""
        terminal.line(
            f"{folder}: {len(replayed.keys):,} calls that reproduce its predictions{failed}"
        )
        keys |= replayed.keys
    return keys


def import_cache(args: Namespace, terminal: Terminal) -> None:
    """Add the calls of a file to this cache."""
    imported = import_calls(call_cache(), Path(args.positionals[0]))
    note = " (existing calls are not replaced)" if imported["different"] else ""
    counts = ", ".join(f"{imported[kind]:,} {kind}" for kind in ("new", "equal", "different"))
    terminal.line(f"{counts}{note}")


def prune_cache(args: Namespace, terminal: Terminal) -> None:
    """List or delete calls by age and engine."""
    if args.older_than is None and args.engine is None:
        raise args.command.missing("--older-than or --engine")
    calls, size = prune(
        call_cache(), older_than=args.older_than, engine=args.engine, delete=args.yes
    )
    if args.yes:
        terminal.line(f"{calls:,} calls deleted")
    else:
        hint = ". Add --yes to delete them" if calls else ""
        terminal.line(f"{calls:,} calls of {size:,} bytes would be deleted{hint}")


def new(args: Namespace, terminal: Terminal) -> None:
    """Write the first files of your own component."""
    group, (name, *source) = args.command.name.split()[1], args.positionals
    if group == "metric" and name in (*BUILT_IN, *RESERVED):
        raise ConfigError(f"{name}: kgqa has a metric of this name. Choose another name.")
    files = write_scaffold(group, name, *source)
    terminal.lines(files)
    terminal.line(f"\nNext:\n  {FIRST_RUNS[group].format(name=name)}")
    if group == "judge":
        model = next((preset.name for preset in list_local_models()), "NAME (see kgqa models)")
        terminal.line(
            f"    engine=scripted gives no verdicts. For verdicts, add: roles.judge={model}"
        )
    if group == "metric":
        terminal.line("    It also scores finished runs: kgqa evaluate RUN, kgqa compare RUN RUN")
    install = "" if is_available("pytest") else "pip install pytest && "
    terminal.lines(
        f"  {install}python -m pytest {file}" for file in files if file.name.startswith("test_")
    )


def new_prompt(args: Namespace, terminal: Terminal) -> None:
    """Copy a template to change, or list all templates, or those of `method=NAME`, with the runs that use them."""
    name = next(iter(args.positionals), "")
    runs = {template: list_prompt_runs(template) for template in shipped_templates()}
    rows = [
        (template, ", ".join(words))
        for template, words in runs.items()
        if name in ("", *" ".join(words).split(" "))
    ]
    if rows:
        terminal.table(("template", "used by kgqa run with"), rows)
        terminal.line("Copy one to change it: kgqa new prompt TEMPLATE")
        return
    terminal.line(copy_prompt(name))
    first, *others = list_prompt_runs(name)
    demo = "" if "dataset=" in first else " dataset=demo"
    run = f"kgqa run {first}{demo} limit=3"
    terminal.line(f"\nChange the file. Next:\n  {run} dry_run=true --prompts\n  {run}")
    if others:
        terminal.line(f"also used by: {', '.join(others)}")
