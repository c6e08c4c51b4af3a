"""`make bench`: memory and disk of a run by its number of questions, beside the limits that they are to keep to.

Questions are of MuSiQue's size: 20 passages of about 80 words each, all different. The engine is scripted, so figures
are the program's own. `--questions 10000` takes about 15 minutes with TRACE, one with method no_context.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.used import used

ROOT = Path(__file__).resolve().parents[1]
PASSAGES, WORDS = 20, 80  # of a question, of a passage
MEMORY, PAGE, AGAIN = 300, 20.0, 2.0  # MiB of a process, MB of report.html, seconds of CPU of a finished run
OPENING = "abcdefghijklmnoprstuvwz"
LIMITS = {
    "peak memory of kgqa run, its report included": f"{MEMORY} MiB",
    "peak memory of kgqa report": f"{MEMORY} MiB",
    "CPU of kgqa report": "none",
    "CPU of the same command on the finished run": f"{AGAIN:.0f} s",
    "trace.jsonl.zst": "none",
    "report.html": f"{PAGE:.0f} MB",
}


def write_questions(file: Path, count: int) -> Path:
    """In MuSiQue's form; words as often as in a text, the n-th with a share of 1 / n. The same for the same count."""
    numbers = random.Random(7)
    words = ["".join(numbers.choices(OPENING, k=numbers.randint(2, 10))) for _ in range(20_000)]
    shares = [1 / (place + 1) for place in range(len(words))]
    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            drawn = numbers.choices(words, shares, k=PASSAGES * WORDS)
            paragraphs = [
                {
                    "idx": place,
                    "title": f"{drawn[place * WORDS]} {number} {place}".capitalize(),
                    "paragraph_text": " ".join(drawn[place * WORDS : (place + 1) * WORDS]),
                    "is_supporting": place < 2,
                }
                for place in range(PASSAGES)
            ]
            steps = [{"question": "Which?", "answer": drawn[place], "paragraph_support_idx": place} for place in (0, 1)]
            question = {
                "id": f"2hop__{number}",
                "paragraphs": paragraphs,
                "question": f"Which {drawn[0]} has the {drawn[1]} {number}?",
                "question_decomposition": steps,
                "answer": drawn[2],
                "answer_aliases": [],
                "answerable": True,
            }
            lines.write(json.dumps(question) + "\n")
    return file


def measured(questions: int, method: str) -> list[str]:
    """What `LIMITS` names, in its order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, run = write_questions(folder / "questions.jsonl", questions), folder / "run"
        quick = ("engine=scripted", "ranker=lexical", "demonstrations_ranker=lexical")
        command = ("run", f"method={method}", "dataset=musique", f"dataset.path={file}", *quick, f"out={run}")
        asked, again, report = (
            used([sys.executable, "-m", "kgqa", *words], folder, {"PYTHONPATH": str(ROOT)})
            for words in (command, command, ("report", str(run)))
        )
        trace, page = ((run / part).stat().st_size / 1e6 for part in ("trace.jsonl.zst", "report.html"))
    return [
        f"{asked.mebibytes:.0f} MiB", f"{report.mebibytes:.0f} MiB", f"{report.cpu:.1f} s", f"{again.cpu:.1f} s",
        f"{trace:.1f} MB", f"{page:.1f} MB",
    ]  # fmt: skip


def share(value: str, limit: str) -> str:
    """Of the limit, for the largest run: what `bench_record` compares."""
    return "" if limit == "none" else f", {float(value.split()[0]) / float(limit.split()[0]):.2f}×"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--method", default="trace")
    given = parser.parse_args()
    columns = [measured(questions, given.method) for questions in given.questions]
    sizes = " | ".join(f"{questions:,}" for questions in given.questions)
    print(f"| {given.method}, questions | {sizes} | limit |\n|{' --- |' * (len(columns) + 2)}")
    for what, limit, *values in zip(LIMITS, LIMITS.values(), *columns, strict=True):
        print(f"| {what} | {' | '.join(values)} | {limit}{share(values[-1], limit)} |")


if __name__ == "__main__":
    main()
