"""Questions and predictions lie packed in memory and come out as they went in."""

from __future__ import annotations

import sys
import tracemalloc

from kgqa.artefacts.predictions import Prediction
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.kept_questions import KeptPredictions, KeptQuestions
from kgqa.storage import text_digest
from kgqa.types import Passage, Question


def test_questions_come_out_as_they_went_in() -> None:
    given = list(Experiment.of(["dataset=demo"]).source.questions())
    kept = KeptQuestions(iter(given))
    assert list(kept) == given
    assert (len(kept), kept[3], list(kept[2:5])) == (len(given), given[3], given[2:5])
    assert kept.only([4, 1]).ids == [given[4].id, given[1].id]


def test_packed_questions_take_less_than_half() -> None:
    words = ["the", "tower", "by", "the", "river", "was", "built", "for", "a", "bishop", "of", "another", "town"]
    texts = [[" ".join([words[(n * p + w) % len(words)] for w in range(80)]) for p in range(20)] for n in range(50)]
    given = [
        Question(f"q{n}", "?", ("a",), tuple(Passage.of("t", text) for text in each)) for n, each in enumerate(texts)
    ]
    import zstandard  # noqa: F401 - loaded before it is measured

    tracemalloc.start()
    kept = KeptQuestions(given)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 50
    assert 2 * held < sum(len(text) for each in texts for text in each)


def test_predictions_come_out_as_they_went_in_and_take_a_third() -> None:
    titles = tuple(f"The title of passage {number}" for number in range(20))
    given = [
        Prediction(f"q{n}", "Ann", None, tuple(text_digest(f"{n} {title}", 16) for title in titles), None, None, titles)
        for n in range(50)
    ]
    kept = KeptPredictions()
    for prediction in given:
        kept.keep(prediction)
    assert list(kept.values()) == given
    assert list(kept) == [prediction.question_id for prediction in given]
    held = sum(sys.getsizeof(text) for prediction in given for text in prediction.evidence or ())
    assert 3 * sum(map(sys.getsizeof, kept._kept.values())) < held + 50 * sum(map(sys.getsizeof, titles))


def test_a_collection_that_all_questions_share_stays_one_object() -> None:
    shared = (Passage.of("t", "text"),)
    kept = KeptQuestions(Question(f"q{number}", "?", ("a",), shared) for number in range(3))
    assert kept[1].passages is kept[2].passages is shared
