"""Quantised weights: smaller, nearly the same, and never taken for the unquantised ones."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.calls import ModelCall
from kgqa.engines.transformers import Transformers, loading
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError
from kgqa.identity.component import identity_of
from kgqa.types import Choice
from tests.engines.asking import ask, choose, largest_difference, texts, write
from tests.engines.small import Small

pytestmark = pytest.mark.weights
WHOLE_BYTES = 269_030_272  # of SmolLM2-135M in bfloat16


def quantised(model: Model, quantization: Any) -> Transformers:
    return Transformers(
        model, "bfloat16", quantization, batch_size=4, device="cpu", max_model_len=1024
    )


@pytest.mark.parametrize(("quantization", "share"), [("int8", 0.65), ("int4", 0.45)])
def test_quantized_weights_are_small_and_answer_alike(
    model: Model, transformers: Any, quantization: str, share: float
) -> None:
    pytest.importorskip(
        "bitsandbytes", reason="engine.quantization needs bitsandbytes", exc_type=ImportError
    )
    engine = quantised(model, quantization)
    calls: list[ModelCall] = [
        write("What is 1+1? Answer with a number."),
        choose("Which letter?", 5),
    ]
    text, choice = ask(engine, calls)
    assert "2" in texts([text])[0]
    [exact] = ask(transformers, calls[1:])
    assert isinstance(choice, Choice)
    assert 0 < largest_difference(choice, exact) < 2
    assert engine._decoder.network.get_memory_footprint() < share * WHOLE_BYTES
    assert identity_of(engine) != identity_of(quantised(model, None))
    engine.close()


def test_quantization_without_its_library_is_an_error(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="engine=transformers needs torch", exc_type=ImportError)
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"engine\.quantization=int4 needs bitsandbytes. .*pip install"
    ):
        quantised(model, "int4").answer([write("Hi")])


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantised_weights_answer_through_an_adapter(small: Small, quantization: Any) -> None:
    pytest.importorskip(
        "peft", reason="adapters under engine transformers need peft", exc_type=ImportError
    )
    pytest.importorskip("bitsandbytes", reason="engine.quantization needs bitsandbytes")
    engine = Transformers(
        small.folder, "bfloat16", quantization, batch_size=8, device="cpu", max_model_len=None
    )
    call = choose("Which letter?", 21, "Answer:")
    [base], [one], [again] = (
        ask(each, [call]) for each in (engine, engine.with_adapter(small.one), engine)
    )
    engine.close()
    assert largest_difference(base, one) > 0.1
    assert largest_difference(base, again) == 0
