"""Measure names, docstrings and prose against the style guide, and compare with a baseline that may only fall.

python scripts/check_style.py                     compare with scripts/style_baseline.json (exit code 1 if worse)
python scripts/check_style.py --list kgqa/report  list what counts, file by file
python scripts/check_style.py --update            write the baseline
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BASELINE = Path(__file__).with_name("style_baseline.json")
PAGES = ("README.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md")
LONG = 30  # words of a sentence

WORDS = json.loads(Path(__file__).with_name("style_words.json").read_text(encoding="utf-8"))
LISTS = {name: set(" ".join(lines).split()) for name, lines in WORDS.items()}
PLAIN_WORDS = re.compile(rf"\b({'|'.join(sorted(WORDS['listed words']))})\b", re.IGNORECASE)


class Found(NamedTuple):
    """One thing that counts, with its place."""

    measure: str
    place: str
    text: str


def is_participle(name: str) -> bool:
    """Return whether the first word of a function's name is a past participle."""
    first = name.strip("_").split("_")[0].lower()
    return first in LISTS["irregular participles"] or (
        first.endswith("ed") and len(first) > 3 and first not in LISTS["ed but no participle"]
    )


def inspect_file(file: Path) -> tuple[dict[str, int], list[Found]]:
    """Count functions and docstrings of one Python file, and list those that break a rule."""
    totals = dict.fromkeys(("functions", "docstrings", "function docstrings"), 0)
    findings: list[Found] = []
    where = file.relative_to(ROOT)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        name = getattr(node, "name", where.stem)
        place = f"{where}:{getattr(node, 'lineno', 1)}"
        if is_function:
            totals["functions"] += 1
            if is_participle(name):
                findings.append(Found("participle names", place, name))
        text = ast.get_docstring(node)
        if not text:
            continue
        totals["docstrings"] += 1
        first = re.split(r"[\s:,]", text.lstrip("`*\"'"), maxsplit=1)[0].strip("`.").lower()
        opening = text.splitlines()[0]
        if first in LISTS["fragment starts"]:
            findings.append(Found("fragment docstrings", place, f"{name}: {opening}"))
        if is_function:
            totals["function docstrings"] += 1
            if first not in LISTS["verbs"]:
                findings.append(Found("docstrings without a verb", place, f"{name}: {opening}"))
    return totals, findings


def list_errors() -> set[str]:
    """Return the names of the exceptions of kgqa/errors.py, which have messages for users."""
    tree = ast.parse((ROOT / "kgqa/errors.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def inspect_messages(file: Path, errors: set[str]) -> tuple[int, list[Found]]:
    """Count the messages of one file, and list semicolons, long sentences and listed words in them."""
    findings: list[Found] = []
    count = 0
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in errors or not node.args:
            continue
        parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else " x " for part in parts)
        count += 1
        place = f"{file.relative_to(ROOT)}:{node.lineno}"
        findings += [Found("semicolons in messages", place, text)] * text.count(";")
        findings += [Found("listed words in messages", place, m.group()) for m in PLAIN_WORDS.finditer(text)]
        sentences = re.split(r"(?<=[.!?;])\s+", text)
        findings += [Found("long sentences in messages", place, s) for s in sentences if len(s.split()) > LONG]
    return count, findings


def inspect_page(file: Path) -> tuple[int, int, list[Found]]:
    """Count words and sentences of a Markdown page without code, and list semicolons, long sentences, listed words."""
    text = re.sub(r"^(```|~~~).*?^\1", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`|<[^>\n]*>|\]\([^)]*\)", " x ", text)
    blocks = [line for line in re.sub(r"\n(?=[a-z(\"'])", " ", text).splitlines() if not line.startswith(("|", "#"))]
    where = file.relative_to(ROOT)
    findings = [Found("semicolons", str(where), line.strip()) for line in blocks for _ in range(line.count(";"))]
    findings += [Found("listed words", str(where), m.group()) for line in blocks for m in PLAIN_WORDS.finditer(line)]
    sentences = [s for line in blocks for s in re.split(r"(?<=[.!?])\s+", line.strip(" -*")) if s.split()]
    findings += [Found("long sentences", str(where), s) for s in sentences if len(s.split()) > LONG]
    return sum(len(line.split()) for line in blocks), len(sentences), findings


def list_pages() -> Iterator[Path]:
    """Yield the pages that users read."""
    yield from (ROOT / page for page in PAGES)
    yield from sorted((ROOT / "docs").glob("*.md"))


def measure(paths: list[Path]) -> tuple[dict[str, float], list[Found]]:
    """Return the shares in percent (in pages: per 1,000 words for semicolons and listed words), and all findings."""
    code: dict[str, int] = {"functions": 0, "docstrings": 0, "function docstrings": 0}
    errors, messages = list_errors(), 0
    findings: list[Found] = []
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            totals, listed = inspect_file(file)
            findings += listed
            code = {key: code[key] + totals[key] for key in code}
            count, listed = inspect_messages(file, errors)
            messages, findings = messages + count, findings + listed
    words = sentences = 0
    for page in list_pages():
        page_words, page_sentences, listed = inspect_page(page)
        words, sentences, findings = words + page_words, sentences + page_sentences, findings + listed
    per = {
        "participle names": code["functions"] / 100,
        "fragment docstrings": code["docstrings"] / 100,
        "docstrings without a verb": code["function docstrings"] / 100,
        "semicolons": words / 1000,
        "long sentences": sentences / 100,
        "listed words": words / 1000,
        "semicolons in messages": messages / 100,
        "long sentences in messages": messages / 100,
        "listed words in messages": messages / 100,
    }
    counts = {name: sum(found.measure == name for found in findings) for name in per}
    return {name: round(counts[name] / max(per[name], 0.01), 1) for name in per}, findings


def main() -> int:
    """Run the check and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders of code (default: kgqa)")
    parser.add_argument("--list", action="store_true", help="list what counts")
    parser.add_argument("--update", action="store_true", help="write the baseline")
    options = parser.parse_args()
    shares, findings = measure([path.resolve() for path in options.paths] or [ROOT / "kgqa"])
    if options.list:
        code = [found for found in findings if found.place.startswith("kgqa") or not options.paths]
        print("\n".join(f"{found.place}: {found.measure}: {found.text}" for found in code))
    print(json.dumps(shares, indent=1))
    if options.update:
        BASELINE.write_text(json.dumps(shares, indent=1) + "\n", encoding="utf-8")
    if options.paths or options.update:
        return 0
    allowed = json.loads(BASELINE.read_text(encoding="utf-8"))
    worse = [f"{name}: {shares[name]} (baseline {allowed[name]})" for name in allowed if shares[name] > allowed[name]]
    if worse:
        print("Worse than scripts/style_baseline.json:", *worse, "List them with --list.", sep="\n  ", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
