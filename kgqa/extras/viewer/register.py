"""The command of the viewer."""

from kgqa.cli.parsing import Command
from kgqa.util.registry import Extra

NOTES = """The address contains a token, so that other users of this machine cannot read your runs.
From another machine: ssh -L 8744:127.0.0.1:8744 HOST, then open the printed address there."""

EXTRA = Extra(
    commands={
        "inspect": (
            Command(
                "view",
                "view runs and sweeps in the browser",
                """kgqa view
                kgqa view /data/experiments/outputs --port 0 --no-browser""",
                "kgqa.extras.viewer.command:view",
                """
                [FOLDER]      folder of the runs (default: outputs/)
                --port PORT   port on 127.0.0.1, or 0 for any free port (default: 8744)
                --no-browser  print the address without opening a browser""",
                notes=NOTES,
            ),
        )
    }
)
