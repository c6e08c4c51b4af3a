"""The command of the demo."""

from kgqa.cli.parsing import Command
from kgqa.util.registry import Extra

NOTES = """Runs method=no_context, method=all_documents and experiment=demo (TRACE, small enough for a laptop) on the
first questions of dataset=demo. The texts describe a fictional country, so that no model knows the answers. Keys of
method, kg and rankers apply only to TRACE. All others apply to all three methods."""

EXTRA = Extra(
    commands={
        "run": (
            Command(
                "demo",
                "compare TRACE with two baselines on a few questions, and show its chains",
                """kgqa demo
                kgqa demo model=smollm2_135m
                kgqa demo --recorded""",
                "kgqa.extras.demo.command:demo",
                """
                [key=value …]  as for kgqa run, e.g. limit=5 or model=smollm2_135m
                --recorded     replay the calls that ship with kgqa, without a model""",
                notes=NOTES,
                needs_words=False,
            ),
        )
    }
)
