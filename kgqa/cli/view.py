"""`kgqa view`: show runs in the browser."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError
from kgqa.util.terminal_text import escape_control

NAME = "view"
SUMMARY = "runs and sweeps in the browser; questions put to your documents there"


def arguments(parser: Parser) -> None:
    parser.takes_places("FOLDER", "folder of the runs (default: outputs/)", least=0)
    parser.add_argument("--port", metavar="N", type=int, help="port on 127.0.0.1 (default: 8744); 0 for any free port")
    parser.add_argument(
        "--documents", metavar="FOLDER", action="append", default=[],
        help="documents for the ask tab; can be repeated",
    )  # fmt: skip
    parser.takes_keys("for the ask tab, as for kgqa ask, e.g. engine=openai model=gpt_4o_mini")
    parser.add_argument("--no-browser", action="store_true", help="print the address without opening a browser")
    parser.notes = (
        "The address contains a token, so that other users of this machine cannot read your runs. Ctrl-C ends it.\n"
        "From another machine: ssh -L 8744:127.0.0.1:8744 HOST, then open the printed address there."
    )
    parser.examples = (
        "kgqa view",
        "kgqa view --documents notes",
        "kgqa view /data/experiments/outputs --port 0 --no-browser",
    )


def run(given: Namespace) -> int:
    from pathlib import Path

    from kgqa.util.fs import ensure_dir, outputs
    from kgqa.viewer.ask_tab import Choices
    from kgqa.viewer.serving import PORT, serve

    port = PORT if given.port is None else given.port
    if not 0 <= port < 65536:
        raise ConfigError(f"--port {port}: ports go from 0 to 65535")

    def announce(address: str) -> None:
        print(escape_control(f"{address}\nreading {folder}; Ctrl-C ends it"), flush=True)
        if not given.no_browser:
            import webbrowser

            webbrowser.open(address)  # does nothing if there is no browser

    folder = Path(given.places[0]) if given.places else outputs()
    if given.documents and not given.places:
        ensure_dir(folder)  # a new user has no runs yet
    documents = tuple(Path(each).expanduser() for each in given.documents)
    try:
        serve(Choices(folder, documents, tuple(given.overrides)), port, announce)
    except KeyboardInterrupt:
        print()
    return 0
