"""Parse replies as models write them: the one reader of answers, labels and triples. Any string is accepted."""

from __future__ import annotations

import re
from typing import Annotated

from kgqa.methods.steps.boxed import read_boxed
from kgqa.prompting.json_replies import read_object
from kgqa.prompting.triples import BRACKETED, WrittenTriples, read_triples
from kgqa.types import Completion
from kgqa.util.validators import Validator

SCORE = re.compile(
    r"[\s*_\"'“(\[]*(?:score\W+)?(10(?:\.0*)?|\d(?:\.\d*)?)(?!\d|\.\d)", re.IGNORECASE
)
# a bullet or a number before a line
MARKS = re.compile(r"(?:(?:[-–—•]+|\*(?!\*)|\(?\d{1,2}[.)](?=\s))\s*)+")
WRAPS = (
    ("<", ">"),
    ("(", ")"),
    ("[", "]"),
    ("**", "**"),
    ("*", "*"),
    ("`", "`"),
    ('"', '"'),
    ("“", "”"),
    ("'", "'"),
)
# Markdown before a label, at the start of a line
BEFORE = r"^[^\S\n]*(?:[*_#>•-]+[^\S\n]*)*"
# the text of a label without text on its line is the next line
AFTER = r"[*_]*[^\S\n]*:[*_\s]*"
ANSWER = r"(?:(?:so|thus|therefore|hence),?\s+)?(?:(?:the|my)\s+)?(?:(?:final|short)\s+)?answer(?:\s+is)?"
ANSWER_START = re.compile(rf"{BEFORE}{ANSWER}(?:{AFTER}|(?<=is)\b[*_\s]*)", re.IGNORECASE)
ANSWER_MARKER = re.compile(r"\banswer is\b[\s:]*", re.IGNORECASE)
FINAL_LABEL = re.compile(
    rf"{BEFORE}(?:(?:the|my)\s+)?final\s+answer(?:{AFTER}|[*_]*[^\S\n]*\n\s*)(\S.*)$",
    re.MULTILINE | re.IGNORECASE,
)
# "… in Norway. Answer: Oslo"
INLINE_ANSWER = re.compile(
    r"[.!?;]['\"”)*_]*[^\S\n]+[*_]*(?:final )?answer[*_]*:[*_]*[^\S\n]*(\S.*)$",
    re.MULTILINE | re.IGNORECASE,
)
TAGGED_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
ANSWER_KEY = re.compile(r"(?:final|short)?[ _]?answer", re.IGNORECASE)
# ends of turns that a server did not remove
TURN_ENDS = re.compile(
    r"(?:\s*(?:</s>|<eos>|<end_of_turn>|<\|(?:im_end|end|eot_id|eom_id|endoftext|end_of_text)\|>))+\s*\Z"
)
PARENTHESISED = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")
# the separators of a triple in parentheses
WITHIN = (";", r"\s,\s", ",")
# two digits, and a few tokens that small models write before them
MAX_SCORE_TOKENS = 4
Score = Annotated[int, Validator("must be from 0 to 10", lambda score: 0 <= score <= 10)]


def text_after_label(label: str, text: str) -> str:
    """Return the text after the first "Label:" at the start of a line, or "".

    Case and Markdown do not matter. `label` is a regular expression.
    """
    match = re.search(rf"{BEFORE}{label}{AFTER}(\S.*)$", text, flags=re.MULTILINE | re.IGNORECASE)
    return match.group(1).strip().rstrip("*_").rstrip() if match else ""


def extract_answer(chain: str) -> str | None:
    """Return the text after the last "answer is" of the first line that has one, or None.

    The text goes to the end of the line, because answers contain full stops ("Ft. Worth"), without one final full stop.
    This is the format of IRCoT's few-shot examples, and of its released program.
    """
    for line in chain.split("\n"):
        if marks := list(ANSWER_MARKER.finditer(line)):
            return line[marks[-1].end() :].strip().removesuffix(".").strip()
    return None


def find_answer(text: str) -> str:
    """Return the answer that a reply marks, or "".

    Marks are boxes, tags, JSON and "Final answer:", otherwise "**Answer:** X" or "So the answer is: X".
    """
    text = TURN_ENDS.sub("", text)
    marked = find_final_answer(text) or text_after_label(ANSWER, text) or extract_answer(text)
    if not marked and (inline := INLINE_ANSWER.search(text)):
        marked = inline[1].strip()
    return strip_answer_label(marked or "")


def find_final_answer(text: str) -> str:
    r"""Return the text of the last <answer>…</answer>, \boxed{…}, JSON key "answer" or line "Final answer:", or ""."""
    if tagged := [content.strip() for content in TAGGED_ANSWER.findall(text) if content.strip()]:
        return read_boxed(tagged[-1]) or " ".join(tagged[-1].split())
    if boxed := read_boxed(text):
        return boxed
    if stated := _read_json_answer(text):
        return stated
    labeled = FINAL_LABEL.findall(text)
    return strip_answer_label(labeled[-1].strip().rstrip("*_").rstrip()) if labeled else ""


def _read_json_answer(text: str) -> str:
    bare = FENCE.sub(r"\1", text.strip()).strip()
    fields = read_object(bare) if bare.startswith("{") and bare.endswith("}") else None
    answers = [value for key, value in (fields or {}).items() if ANSWER_KEY.fullmatch(key)]
    return (
        str(answers[-1]).strip() if answers and isinstance(answers[-1], str | int | float) else ""
    )


def strip_answer_label(line: str) -> str:
    """Return a line without "Answer:" and "The answer is" before its text, and without an end of the turn."""
    line = TURN_ENDS.sub("", line)
    while start := ANSWER_START.match(line):
        line = line[start.end() :].rstrip("*_").strip()
    return line


def read_first_answer(reply: Completion) -> tuple[str, bool]:
    """Return the answer of a reply that should be only an answer, and whether it was truncated.

    It is the first line without "Answer:", unless a box, a tag, JSON or a line "Final answer:" marks another one.
    """
    line, cut = first_line(reply)
    if marked := find_final_answer(TURN_ENDS.sub("", reply.text)):
        return marked, False
    answer = strip_answer_label(line)
    return answer or text_after_label(ANSWER, reply.text), cut


def plain_answer(text: str) -> str:
    """Return an answer without its box and without an end of the turn."""
    return read_boxed(text) or TURN_ENDS.sub("", text).strip()


def bullet_items(text: str) -> list[str]:
    """Return the distinct non-empty lines that start with a bullet or a number, without it."""
    marked = ((MARKS.match(line), line) for line in map(str.strip, text.split("\n")))
    items = dict.fromkeys(line[mark.end() :] for mark, line in marked if mark)
    return [item for item in items if item]


def unwrap(text: str) -> str:
    """Remove spaces, quotes, brackets and emphasis around the text."""
    text = text.strip()
    for opening, closing in WRAPS:
        inner = text.removeprefix(opening).removesuffix(closing)
        if (
            len(text) - len(inner) == len(opening + closing)
            and opening not in inner
            and closing not in inner
        ):
            text = inner.strip()
    return text


def read_score(text: str) -> float | None:
    """Return the number from 0 to 10 at the start of a reply, or None."""
    match = SCORE.match(text)
    return float(match.group(1)) if match else None


def plain_words(text: str) -> str:
    """Return the words without case and punctuation, separated by blanks."""
    return " ".join(
        "".join(letter if letter.isalnum() else " " for letter in text.casefold()).split()
    )


def first_line(reply: Completion) -> tuple[str, bool]:
    """Return the first non-empty line, stripped, and whether it was truncated."""
    line, _, further = reply.text.strip().partition("\n")
    return line.strip(), reply.finish == "length" and not further


def read_conclusion(text: str) -> tuple[str, bool]:
    """Return the marked answer and True, or the last line and False. A marker without a text is an empty answer."""
    if answer := find_answer(text):
        return answer, True
    last = TURN_ENDS.sub("", text).strip().rpartition("\n")[2].strip()
    answer = strip_answer_label(last)
    return answer, answer != last


def read_triple_lines(text: str) -> WrittenTriples:
    """Parse `<a; b; c>`, `(a, b, c)` and lines `a; b; c`, also with "|" between the parts.

    TRACE's extraction accepts only angle brackets, as its released program does (`read_triples`).
    """
    triples, malformed = list[tuple[str, str, str]](), 0
    for row in text.split("\n"):
        line = row.replace("|", ";") if row.count("|") == 2 and ";" not in row else row
        bare = MARKS.sub("", line.strip(), count=1)
        if BRACKETED.search(line):
            read = read_triples(line)
            triples += read.triples
            malformed += read.malformed
        elif bare.startswith("(") or bare.count(";") >= 2:
            contents = PARENTHESISED.findall(bare) if bare.startswith("(") else [bare.rstrip(";")]
            attempts = [_split_triple(content) for content in contents]
            triples += [parts for parts in attempts if parts]
            malformed += attempts.count(None) or int(not attempts)
    return WrittenTriples(tuple(triples), malformed)


def _split_triple(content: str) -> tuple[str, str, str] | None:
    for separator in WITHIN:
        parts = [part.strip() for part in re.split(separator, content)]
        if len(parts) == 3 and all(parts):
            return parts[0], parts[1], parts[2]
    return None
