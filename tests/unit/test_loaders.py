"""Weights that are loaded once, and freed."""

from __future__ import annotations

import weakref

from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.session import Session
from kgqa.util.loaders import load_once


class Weights:
    """Weights that a test can count."""


@load_once
def load(name: str) -> Weights:
    return Weights()


def test_equal_weights_are_loaded_once() -> None:
    assert load("a") is load("a")
    assert load("a") is not load("b")


def test_models_of_a_stage_are_freed() -> None:
    weights = weakref.ref(load("a"))
    with Session(
        compose_experiment(["dataset=demo", "method=golden", "engine=scripted"])
    ) as session:
        assert weights() is not None
        session.end_models()
        assert weights() is None
