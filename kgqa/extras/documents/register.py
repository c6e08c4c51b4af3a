"""The command that answers questions about documents. `conf/dataset/folder.yaml` names the dataset."""

from kgqa.cli.parsing import Command
from kgqa.util.registry import Extra

NOTES = """Supported files: text, Markdown, HTML, DOCX and PDF. They need the extra pdf: pip install -e '.[pdf]' (in the
clone). Folders are read recursively. The default model is the largest one with weights on this machine. The default
method=trace builds chains of sentences with the values of experiment=ask. Set method.units=triples for chains of
extracted triples, and experiment=null for the values of the paper. Use method=kgp for questions about the structure of
PDFs, e.g. "What does table 2 say?"."""

EXTRA = Extra(
    commands={
        "run": (
            Command(
                "ask",
                "answer a question from your own documents",
                """kgqa ask "Where was the builder of the mill born?" notes/
                kgqa ask "What does table 2 say?" report.pdf method=kgp model=qwen2_5_coder_1_5b""",
                "kgqa.extras.documents.command:ask",
                """
                [QUESTION]     in quotes
                [FILE …]       your documents: files and folders
                [key=value …]  as for kgqa run, e.g. model=qwen2_5_coder_1_5b method=kgp
                --json         print the answer as a JSON object, progress on stderr
                --passages N   number of passages for a method that does not search (default: all, up to 20,000 \
                    characters)""",
                notes=NOTES,
            ),
        )
    }
)
