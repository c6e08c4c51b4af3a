"""Adapters under PEFT on what else engine=transformers loads: encoder-decoder models and quantised weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.adapter import Adapter
from kgqa.engines.transformers import Transformers
from tests.engines.asking import ask, largest_difference, texts
from tests.engines.small import Small
from tests.engines.test_adapters import CALLS
from tests.engines.test_encoder_decoder import completion, save, sentencepiece

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")]


@pytest.fixture(autouse=True)
def _peft() -> Any:
    return pytest.importorskip("peft", reason="adapters under engine transformers need peft", exc_type=ImportError)


def test_an_encoder_decoder_model_answers_through_an_adapter_of_peft(tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import T5ForConditionalGeneration

    tiny = save(tmp_path / "t5", sentencepiece())
    plain = T5ForConditionalGeneration.from_pretrained(tiny.path)
    settings = LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, lora_alpha=16, target_modules=["q", "v", "o"])
    torch.manual_seed(7)
    trained = get_peft_model(plain, settings)
    for name, matrix in trained.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(matrix, std=0.5)
    trained.save_pretrained(tmp_path / "lora")
    engine = Transformers(tiny, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    calls = [completion(f"Which letter follows {letter}?", 10) for letter in "AQZ"]
    adapted = engine.with_adapter(Adapter("t5", str(tmp_path / "lora")))
    with_it, without = texts(ask(adapted, calls)), texts(ask(engine, calls))
    engine.close()
    base = T5ForConditionalGeneration.from_pretrained(tiny.path)
    whole = PeftModel.from_pretrained(base, str(tmp_path / "lora")).merge_and_unload().eval()
    whole.save_pretrained(tmp_path / "t5")
    merged = Transformers(tiny, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    assert with_it == texts(ask(merged, calls)) != without
    merged.close()


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantised_weights_answer_through_an_adapter(small: Small, quantization: Any) -> None:
    pytest.importorskip("bitsandbytes", reason="engine.quantization needs bitsandbytes")
    engine = Transformers(small.folder, "bfloat16", quantization, batch_size=8, device="cpu", max_model_len=None)
    [base], [one], [again] = (ask(each, CALLS[:1]) for each in (engine, engine.with_adapter(small.one), engine))
    engine.close()
    assert largest_difference(base, one) > 0.1
    assert largest_difference(base, again) == 0
