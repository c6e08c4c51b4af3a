"""`kgqa view`: runs in the browser."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError
from kgqa.inert import inert

NAME = "view"
SUMMARY = "runs and sweeps in the browser; questions put to your documents there"


def arguments(parser: Parser) -> None:
    parser.takes_places("FOLDER", "where the runs lie; outputs/ unless given", least=0)
    parser.add_argument("--port", metavar="N", type=int, help="on 127.0.0.1; 8744 unless given, 0 for any that is free")
    parser.add_argument(
        "--documents", metavar="FOLDER", action="append", default=[],
        help="documents that questions may be put to; may be given again",
    )  # fmt: skip
    parser.takes_keys("of questions put to documents, as for kgqa ask, e.g. engine=openai model=gpt_4o_mini")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    parser.notes = (
        "The address holds a token, so that nobody else on this machine reads your runs. Ctrl-C ends it.\n"
        "From another machine: ssh -L 8744:127.0.0.1:8744 HOST, then open the printed address there."
    )
    parser.examples = (
        "kgqa view",
        "kgqa view --documents notes",
        "kgqa view /data/experiments/outputs --port 0 --no-browser",
    )


def run(given: Namespace) -> int:
    from pathlib import Path

    from kgqa.storage import made, outputs
    from kgqa.viewer.choices import Choices
    from kgqa.viewer.serving import PORT, Request, serve

    port = PORT if given.port is None else given.port
    if not 0 <= port < 65536:
        raise ConfigError(f"--port {port}: ports go from 0 to 65535")

    def opened(address: str) -> None:
        print(inert(f"{address}\nreading {folder}; Ctrl-C ends it"), flush=True)
        if not given.no_browser:
            import webbrowser

            webbrowser.open(address)  # does nothing where there is no browser

    folder = Path(given.places[0]) if given.places else outputs()
    if given.documents and not given.places:
        made(folder)  # whoever asks first has no runs yet
    documents = tuple(Path(each).expanduser() for each in given.documents)
    choices = Choices(folder, documents, tuple(given.overrides))
    try:
        serve(Request(choices, port, opened))
    except KeyboardInterrupt:
        print()  # nothing was at work: this is how it ends
    return 0
