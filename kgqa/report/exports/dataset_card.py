"""A folder for the Hugging Face Hub: the rows of a run, and the card that says what they are."""

from __future__ import annotations

from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.report.exports.rows import CALLS, PREDICTIONS, write_rows
from kgqa.report.markdown import table
from kgqa.report.summary import summary_rows
from kgqa.types import Json
from kgqa.util.fs import OUT_ELSEWHERE, replace_file

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))  # the Hub's names; of more, the next
COLUMNS = {
    "id, question, gold": "as the dataset has them",
    "answer, error": "what was answered; where a question failed, why",
    "em, f1, support_recall": "shares from 0 to 1",
    "verdict": "the judge's, where the run was judged",
    "evidence, evidence_titles": "the passages that the answer rests on, best first",
    "calls, prompt_tokens, output_tokens": "what it cost, as if nothing had been cached",
}


def write_card(run: FinishedRun, folder: Path) -> None:
    """`README.md` beside the rows of predictions and calls."""
    write_rows(run, folder)
    replace_file(folder / "README.md", card_text(run), OUT_ELSEWHERE)


def card_text(run: FinishedRun) -> str:
    """Return front matter and text. It names no licence: that of the questions is not known to a run."""
    import yaml

    front = yaml.safe_dump(_front_matter(run), sort_keys=False, allow_unicode=True)
    code, dataset = run.manifest.kgqa, run.manifest.dataset
    commit = f", commit {code.commit}" if code.commit else ""
    return "\n".join(
        [
            f"---\n{front}---\n",
            f"# {run.title}\n",
            f"Answers to {dataset.questions:,} questions of {dataset.name}, and every call that led to them.",
            f"Made with kgqa {code.version}{commit}; the questions' file has the SHA-256 {dataset.sha256}.\n",
            "## Results\n",
            table(("", ""), summary_rows(run.metrics)),
            "## Columns of predictions\n",
            table(("column", "what it holds"), list(COLUMNS.items())),
            "A row of calls is one request and its reply: prompts hold the passages that were read.\n",
            "## Licence\n",
            f"Questions, gold answers and passages are those of {dataset.name}: its licence holds for them.",
            "Add it to the front matter as `license:` before you publish this.",
            "",
        ]
    )


def _front_matter(run: FinishedRun) -> dict[str, Json]:
    count = run.metrics.questions
    return {
        "pretty_name": run.title,
        "task_categories": ["question-answering"],
        "tags": ["kgqa", "multi-hop", "rag", f"method:{run.choices['method']}", f"dataset:{run.choices['dataset']}"],
        "size_categories": [next((name for limit, name in SIZES if count < limit), "100K<n<1M")],
        "configs": [
            {"config_name": "predictions", "data_files": PREDICTIONS, "default": True},
            {"config_name": "calls", "data_files": CALLS},
        ],
    }
