"""Measure names, docstrings, tests and prose against the style guide, and compare with a baseline that may only fall.

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
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BASELINE = Path(__file__).with_name("style_baseline.json")
PAGES = ("README.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md")
LONG = 30  # words of a sentence
LONGEST_TEST_NAME = 50  # characters
# tokens with texts. Python 3.12 splits f-strings
TEXTS = ("STRING", "FSTRING_MIDDLE")

WORDS = json.loads(Path(__file__).with_name("style_words.json").read_text(encoding="utf-8"))
LISTS = {name: set(" ".join(lines).split()) for name, lines in WORDS.items()}
# in texts for readers. Names of keys and functions stay as they are
BRITISH = re.compile(
    rf"(?<![\w.])({'|'.join(WORDS['British spellings'])})(?![\w.=:(\[])", re.IGNORECASE
)
PLAIN_WORDS = re.compile(rf"\b({'|'.join(sorted(WORDS['listed words']))})\b", re.IGNORECASE)


# measures: each counts per 100 (or 1,000) of a total
SHARES = {
    "participle names": ("functions", 100),
    "participles as variables": ("variables", 1000),
    "participles as variables in tests": ("variables in tests", 1000),
    "tests with asserts in loops": ("tests", 100),
    "long names of tests": ("tests", 100),
    "fragment docstrings": ("docstrings", 100),
    "docstrings without a verb": ("function docstrings", 100),
    "semicolons": ("words", 1000),
    "long sentences": ("sentences", 100),
    "listed words": ("words", 1000),
    # one counts
    "British spellings": ("words", 1_000_000),
    "semicolons in messages": ("messages", 100),
    "long sentences in messages": ("messages", 100),
    "listed words in messages": ("messages", 100),
}


class Found(NamedTuple):
    """One thing that counts, with its place: of a measure, or of a total."""

    measure: str
    place: str
    text: str
    times: int = 1


def is_participle(name: str) -> bool:
    """Return whether the first word of a function's name is a past participle."""
    first = name.strip("_").split("_")[0].lower()
    return first in LISTS["irregular participles"] or (
        first.endswith("ed") and len(first) > 3 and first not in LISTS["ed but no participle"]
    )


def inspect_names(tree: ast.Module, where: Path) -> Iterator[Found]:
    """Count functions and docstrings of one Python file, and yield those that break a rule."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        name = getattr(node, "name", where.stem)
        place = f"{where}:{getattr(node, 'lineno', 1)}"
        if is_function:
            yield Found("functions", place, name)
            if is_participle(name):
                yield Found("participle names", place, name)
        text = ast.get_docstring(node)
        if not text:
            continue
        yield Found("docstrings", place, name)
        first = re.split(r"[\s:,]", text.lstrip("`*\"'"), maxsplit=1)[0].strip("`.").lower()
        opening = f"{name}: {text.splitlines()[0]}"
        if first in LISTS["fragment starts"]:
            yield Found("fragment docstrings", place, opening)
        if is_function:
            yield Found("function docstrings", place, name)
            if first not in LISTS["verbs"]:
                yield Found("docstrings without a verb", place, opening)


def inspect_variables(tree: ast.Module, where: Path, kind: str = "") -> Iterator[Found]:
    """Count bound names (targets and parameters) of one file, and yield irregular participles among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        else:
            continue
        place = f"{where}:{node.lineno}"
        yield Found(f"variables{kind}", place, name)
        # a thought of a model is a noun
        if name.strip("_") in LISTS["irregular participles"] - {"thought"}:
            yield Found(f"participles as variables{kind}", place, name)


def inspect_tests(tree: ast.Module, where: Path) -> Iterator[Found]:
    """Count the tests of one file, and yield those with an assert in a loop or with a long name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith(
            "test"
        ):
            continue
        place = f"{where}:{node.lineno}"
        yield Found("tests", place, node.name)
        if len(node.name) > LONGEST_TEST_NAME:
            yield Found("long names of tests", place, node.name)
        loops = (inner for inner in ast.walk(node) if isinstance(inner, ast.For | ast.While))
        if any(isinstance(inner, ast.Assert) for loop in loops for inner in ast.walk(loop)):
            yield Found("tests with asserts in loops", place, node.name)


def list_errors() -> set[str]:
    """Return the names of the exceptions of kgqa/errors.py, which have messages for users."""
    tree = ast.parse((ROOT / "kgqa/errors.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def inspect_messages(tree: ast.Module, where: Path, errors: set[str]) -> Iterator[Found]:
    """Count the messages of one file, and yield semicolons, long sentences and listed words in them."""
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Call)
            or getattr(node.func, "id", "") not in errors
            or not node.args
        ):
            continue
        parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else " x " for part in parts
        )
        place = f"{where}:{node.lineno}"
        yield Found("messages", place, text)
        yield from inspect_text(place, text, re.split(r"(?<=[.!?;])\s+", text), " in messages")


def inspect_page(file: Path) -> Iterator[Found]:
    """Count words and sentences of a Markdown page without code, and yield semicolons, long sentences, listed words."""
    text = re.sub(
        r"^(```|~~~).*?^\1", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    text = re.sub(r"`[^`\n]*`|<[^>\n]*>|\]\([^)]*\)", " x ", text)
    place = str(file.relative_to(ROOT))
    yield from inspect_spelling(place, text)
    for line in re.sub(r"\n(?=[a-z(\"'])", " ", text).splitlines():
        if not line.startswith(("|", "#")):
            sentences = [s for s in re.split(r"(?<=[.!?])\s+", line.strip(" -*")) if s.split()]
            yield Found("words", place, line, len(line.split()))
            yield Found("sentences", place, line, len(sentences))
            yield from inspect_text(place, line.strip(), sentences)


def inspect_spelling(place: str, text: str) -> Iterator[Found]:
    """Yield the British spellings of a text, without code in backticks and braces."""
    for match in BRITISH.finditer(re.sub(r"`[^`]*`|\{[^{}]*\}", "x", text)):
        yield Found("British spellings", place, match.group())


def inspect_comments(file: Path) -> Iterator[Found]:
    """Yield the British spellings in comments and texts of one Python file. A text has several words."""
    with file.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            kind = tokenize.tok_name[token.type]
            is_text = kind == "COMMENT" or (kind in TEXTS and " " in token.string.strip())
            if is_text:
                yield from inspect_spelling(
                    f"{file.relative_to(ROOT)}:{token.start[0]}", token.string
                )


def inspect_text(place: str, text: str, sentences: list[str], kind: str = "") -> Iterator[Found]:
    """Yield semicolons, listed words and long sentences of a text."""
    if semicolons := text.count(";"):
        yield Found(f"semicolons{kind}", place, text, semicolons)
    yield from (
        Found(f"listed words{kind}", place, match.group()) for match in PLAIN_WORDS.finditer(text)
    )
    yield from (
        Found(f"long sentences{kind}", place, s) for s in sentences if len(s.split()) > LONG
    )


def inspect_all(paths: list[Path]) -> Iterator[Found]:
    """Inspect code files and the pages that users read."""
    errors = list_errors()
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            tree, where = ast.parse(file.read_text(encoding="utf-8")), file.relative_to(ROOT)
            yield from inspect_names(tree, where)
            yield from inspect_variables(tree, where)
            yield from inspect_messages(tree, where, errors)
            yield from inspect_comments(file)
    for file in sorted((ROOT / "tests").rglob("*.py")):
        tree, where = ast.parse(file.read_text(encoding="utf-8")), file.relative_to(ROOT)
        yield from inspect_variables(tree, where, " in tests")
        yield from inspect_tests(tree, where)
    for page in [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").glob("*.md"))]:
        yield from inspect_page(page)


def main() -> int:
    """Run the check and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "paths", nargs="*", type=Path, help="files or folders of code (default: kgqa)"
    )
    parser.add_argument("--list", action="store_true", help="list what counts")
    parser.add_argument("--update", action="store_true", help="write the baseline")
    options = parser.parse_args()
    findings = list(inspect_all([path.resolve() for path in options.paths] or [ROOT / "kgqa"]))
    counts = Counter[str]()
    for found in findings:
        counts[found.measure] += found.times
    shares = {
        name: round(counts[name] / max(counts[total] / per, 0.01), 1)
        for name, (total, per) in SHARES.items()
    }
    for found in findings if options.list else ():
        if found.measure in SHARES and (
            found.place.startswith(("kgqa", "tests")) or not options.paths
        ):
            print(f"{found.place}: {found.measure}: {found.text}")
    print(json.dumps(shares, indent=1))
    if options.update:
        BASELINE.write_text(json.dumps(shares, indent=1) + "\n", encoding="utf-8")
    if options.paths or options.update:
        return 0
    allowed = json.loads(BASELINE.read_text(encoding="utf-8"))
    worse = [
        f"{name}: {shares[name]} (baseline {allowed[name]})"
        for name in allowed
        if shares[name] > allowed[name]
    ]
    if worse:
        print(
            "Worse than scripts/style_baseline.json:",
            *worse,
            "List them with --list.",
            sep="\n  ",
            file=sys.stderr,
        )
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
