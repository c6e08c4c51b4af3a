"""`kgqa cache`: the call cache looked after, and its calls for others."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.cli.parsing import RUN, Parser
from kgqa.errors import ConfigError
from kgqa.util.terminal_text import escape_control, escape_json

NAME = "cache"
SUMMARY = "the call cache: check, stats, export and import of calls, prune"
_EXPORTED = "FILE.jsonl.zst"


def arguments(parser: Parser) -> None:
    check = parser.command(
        "check", "read all calls and vectors, compare their checksums; exit code 1 where one is damaged"
    )
    check.add_argument("--repair", action="store_true", help="drop what is damaged, after a copy was made beside it")
    check.examples = ("kgqa cache check", "kgqa cache check --repair")
    parser.examples = ("kgqa cache check", "kgqa cache export calls.jsonl.zst --run last")
    stats = parser.command("stats", "calls and bytes by engine, model and kind, oldest and newest")
    stats.add_argument("--json", action="store_true", help="as JSON")
    stats.examples = ("kgqa cache stats",)
    export = parser.command("export", "calls as one file, with which others replay runs without a model")
    export.takes_places(_EXPORTED, "where to")
    export.add_argument(
        "--run", metavar="RUN", dest="runs", action="append", help=f"only the calls of {RUN}; may be given again"
    )
    export.add_argument(
        "--engine",
        metavar="NAME",
        dest="engines",
        action="append",
        help="only what this engine, ranker or retriever answered; may be given again",
    )
    export.examples = ("kgqa cache export calls.jsonl.zst --run last", "kgqa cache export all.jsonl.zst")
    merge = parser.command("import", "the calls of such a file into this cache; what is here stays")
    merge.takes_places(_EXPORTED, "what kgqa cache export wrote")
    merge.examples = ("kgqa cache import calls.jsonl.zst",)
    prune = parser.command("prune", "list what would be deleted; with --yes, delete it")
    prune.add_argument("--older-than", metavar="DAYS", type=int, help="calls made longer ago")
    prune.add_argument("--engine", metavar="NAME", help="calls of this engine, ranker or retriever only")
    prune.add_argument("--yes", action="store_true", help="delete them")
    prune.examples = ("kgqa cache prune --older-than 90", "kgqa cache prune --engine scripted --yes")


def run(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.runtime.display import log_lines

    terminal = Terminal(width=120)
    actions = {"check": check, "stats": stats, "export": export, "import": merge, "prune": prune}
    with log_lines(terminal):
        return actions[given.action](given)


def check(given: Namespace) -> int:
    from kgqa.cache.maintenance import check, repair
    from kgqa.retrieval.embedding_cache import check_vectors, drop_damaged
    from kgqa.util.fs import call_cache

    found, vectors = check(call_cache()), check_vectors(call_cache())
    for line in [*found.lines(), *([str(vectors)] if vectors else [])]:
        print(escape_control(line))
    if given.repair and not found.is_whole:
        kept, calls = repair(found)
        print(
            escape_control(
                f"{found.path}: {calls:,} calls are kept, the damaged ones will be asked again; "
                f"the file as it was: {kept}"
            )
        )
        found = check(call_cache())
    if given.repair and vectors and not vectors.whole:
        drop_damaged(vectors)
        vectors = check_vectors(call_cache())
        print(escape_control(str(vectors or "its vectors are gone, their texts will be encoded again")))
    return 0 if found.is_whole and (not vectors or vectors.whole) else 1


def stats(given: Namespace) -> int:
    from kgqa.cache.maintenance import stats
    from kgqa.retrieval.embedding_cache import check_vectors
    from kgqa.util.fs import call_cache

    shares = stats(call_cache())
    if given.json:
        import json
        from dataclasses import asdict

        print(escape_json(json.dumps([asdict(share) for share in shares], indent=2, ensure_ascii=False)))
    else:
        from kgqa.cli.terminal.calls import show_calls
        from kgqa.cli.terminal.console import Terminal

        show_calls(shares, call_cache(), Terminal(width=120))
        if vectors := check_vectors(call_cache()):
            print(escape_control(str(vectors)))
    return 0


def export(given: Namespace) -> int:
    from kgqa.cache.transfer import export_calls
    from kgqa.util.fs import call_cache

    file = Path(given.places[0])
    if file.is_dir():
        raise ConfigError(f"{file}: a folder; name a file in it, e.g. {file / 'calls.jsonl.zst'}")
    exported = export_calls(call_cache(), file, _keys_of(given.runs) if given.runs else None, given.engines)
    for count, why in (
        (exported.damaged, "damaged; see kgqa cache check"),
        (exported.secret, "their replies repeat a key that the environment holds"),
    ):
        if count:
            print(escape_control(f"left out: {count:,} calls ({why})"))
    print(escape_control(f"{file}: {exported.calls:,} calls, {file.stat().st_size:,} bytes"))
    return 0


def _keys_of(runs: list[str]) -> set[str]:
    """Return the keys of the calls that replay these runs."""
    from kgqa.artifacts.runs import find_run
    from kgqa.cli.terminal.console import Terminal
    from kgqa.experiment.run.replaying import replay

    keys = set[str]()
    for run in runs:
        folder = find_run(run)
        replayed = replay(folder, Terminal(width=120))
        failed = f"; {replayed.missing:,} failed and are not kept" if replayed.missing else ""
        print(escape_control(f"{folder}: {len(replayed.keys):,} calls, which give its predictions{failed}"))
        keys |= replayed.keys
    return keys


def merge(given: Namespace) -> int:
    from kgqa.cache.transfer import import_calls
    from kgqa.util.fs import call_cache

    imported = import_calls(call_cache(), Path(given.places[0]))
    kept = " (those of this cache stay)" if imported.different else ""
    print(escape_control(f"{imported.new:,} new, {imported.equal:,} equal, {imported.different:,} different{kept}"))
    return 0


def prune(given: Namespace) -> int:
    from kgqa.cache.maintenance import prune
    from kgqa.util.fs import call_cache

    if given.older_than is not None and given.older_than < 0:
        raise ConfigError(f"--older-than {given.older_than}: days, at least 0")
    if given.older_than is None and given.engine is None:
        raise given.parser.missing("--older-than or --engine")
    calls, size = prune(call_cache(), older_than=given.older_than, engine=given.engine, delete=given.yes)
    if given.yes:
        print(escape_control(f"{calls:,} calls deleted"))
    else:
        hint = "; add --yes to delete them" if calls else ""
        print(escape_control(f"{calls:,} calls of {size:,} bytes would be deleted{hint}"))
    return 0
