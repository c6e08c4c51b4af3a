"""Read which questions of a dataset are valid: from a run with method=verify, or from a list of flagged questions."""

from __future__ import annotations

from pathlib import Path

from kgqa.artifacts.predictions import run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.errors import DataError
from kgqa.scoring.questions import UNVERIFIED, VALID, find_verdict
from kgqa.util.fs import read_small_text


def load_flagged(path: str | None) -> frozenset[str] | None:
    """Read a list of flagged questions, one per line, as SAFE's authors publish them. None: no list.

    The texts have single spaces.

    Raises DataError: the file cannot be read, is not text, or has no line.
    """
    if path is None:
        return None
    try:
        lines = read_small_text(Path(path)).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"method.list={path}: {reason}. Name a UTF-8 file with one question per line"
        ) from error
    texts = frozenset(" ".join(line.split()) for line in lines) - {""}
    if not texts:
        raise DataError(
            f"method.list={path}: the file is empty. Name a file with one question per line"
        )
    return texts


def read_labels(folder: Path, sha256: str) -> dict[str, str]:
    """Return "valid" or "noise" by question, without unverified ones, from a finished run with method=verify.

    sha256: of the dataset that the questions must be from.

    Raises DataError: the folder has no such run, is damaged, or belongs to another dataset.
    """
    verified = FinishedRun.read(folder).manifest.dataset
    verdicts = {
        prediction.question_id: find_verdict(prediction) for prediction in run_predictions(folder)
    }
    if not any(verdicts.values()):
        raise DataError(
            f"{folder}: not a finished run with method=verify. Name the folder that it printed"
        )
    if verified.sha256 != sha256:
        raise DataError(
            f"{folder}: it verified another file of dataset={verified.name}. Verify this one"
        )
    return {id_: verdict for id_, verdict in verdicts.items() if verdict not in (None, UNVERIFIED)}


def valid_ids(folder: Path, sha256: str) -> frozenset[str]:
    """Return the valid questions for `dataset.verified`. Raises DataError as `read_labels`, or if none is valid."""
    key = f"dataset.verified={folder}"
    try:
        labels = read_labels(folder, sha256)
    except DataError as error:
        raise DataError(f"{key}: {error}") from error
    valid = frozenset(id_ for id_, label in labels.items() if label == VALID)
    if not valid:
        raise DataError(f"{key}: no question in it is valid. Choose another folder, or null")
    return valid
