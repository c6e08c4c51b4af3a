"""Encoder-decoder models on a tiny random T5 in float32, so that everything can be computed by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate
from kgqa.engines.transformers import Transformers
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError
from kgqa.types import Choice, Completion, Message, Prompt
from tests.engines.asking import CONTEXT, TOWNS, ask, choose, largest_difference, texts

pytestmark = pytest.mark.weights
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def completion(text: str, max_tokens: int = 12, **decoding: Any) -> Generate:
    return Generate(
        Prompt("test/completion", (Message("user", text),), form="completion"),
        max_tokens,
        **decoding,
    )


def save(folder: Path, tokenizer: Any) -> Model:
    """A transformers folder with random weights and no chat template, as Flan-T5's has none."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(4)
    # more logits than tokens, as real ones have
    size = -(-tokenizer.get_vocab_size() // 8) * 8
    config = T5Config(
        vocab_size=size, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, pad_token_id=0, decoder_start_token_id=0, eos_token_id=1,
    )  # fmt: skip
    network = T5ForConditionalGeneration(config)
    # far from uniform, so that replies differ between prompts
    network.lm_head.weight.data.mul_(8)
    network.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "</s>", "pad_token": "<pad>"})
    )
    return Model("tiny_t5", str(folder), None, (), None, CONTEXT, "off", None, None)


def sentencepiece() -> Any:
    """Like T5's: pieces of words behind a mark for blanks, line ends lost."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace("\n", " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    lines = [
        f"The {town} question: which letter comes next, {' '.join(LETTERS)}? Answer: {town}"
        for town in TOWNS
    ]
    trainer = trainers.UnigramTrainer(
        vocab_size=220,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    for library in ("torch", "transformers", "llguidance"):
        pytest.importorskip(
            library, reason=f"engine=transformers needs {library}", exc_type=ImportError
        )
    folder = save(tmp_path_factory.mktemp("t5"), sentencepiece())
    engine = Transformers(folder, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain(tiny: Any) -> Any:
    """The same weights, to be asked without the engine."""
    from transformers import T5ForConditionalGeneration

    return T5ForConditionalGeneration.from_pretrained(tiny.model.path).eval()


def encoded(tiny: Any, text: str) -> list[int]:
    return list(tiny._tokens.tokenizer.encode(text, add_special_tokens=False).ids)


def test_encoder_reads_prompt_and_decoder_the_prefill(tiny: Any) -> None:
    assert tiny.render(completion("Q: why? A:")) == "Q: why? A:</s><pad>"
    chat = Prompt("test/chat", (Message("system", "Be brief."), Message("user", "Why?")), "Answer:")
    assert tiny.render(Generate(chat, 1)) == "Be brief.\n\nWhy?\n</s><pad>Answer:"


def test_greedy_replies_equal_those_of_generate(tiny: Any, plain: Any) -> None:
    import torch

    calls = [completion(f"Which letter follows {town}?", 10) for town in TOWNS]
    for call, reply in zip(calls, ask(tiny, calls), strict=True):
        assert isinstance(reply, Completion)
        ids = torch.tensor([[*encoded(tiny, call.prompt.messages[0].content), 1]])
        tokens = plain.generate(ids, max_new_tokens=10, do_sample=False)[0, 1:].tolist()
        assert reply.text == tiny._tokens.decode([token for token in tokens if token > 1])
        assert reply.usage.prompt_tokens == ids.shape[1] + 1
        assert reply.flags == ()


def test_eight_at_once_equal_eight_one_by_one(tiny: Any) -> None:
    calls: list[Any] = [
        completion(f"{town} {'next ' * place}", 3 + place) for place, town in enumerate(TOWNS)
    ]
    calls[2] = Generate(Prompt("test/chat", (Message("user", "Which?"),), "Answer: which"), 7)
    calls[5] = replace(calls[5], temperature=0.9, top_p=0.9, seed=3)
    assert texts(ask(tiny, calls)) == texts([ask(tiny, [call])[0] for call in calls])
    picks = [choose(f"Which letter? {'next ' * place}", 5 + place) for place in range(8)]
    for together, alone in zip(
        ask(tiny, picks), [ask(tiny, [pick])[0] for pick in picks], strict=True
    ):
        assert largest_difference(together, alone) < 1e-4


def by_hand(tiny: Any, plain: Any, call: Choose) -> tuple[list[float], float]:
    """Option probabilities from one forward pass per form of each option."""
    import torch

    read = torch.tensor([[*encoded(tiny, f"{call.prompt.messages[0].content}\n"), 1]])
    start = [0, *encoded(tiny, call.prompt.prefill)]
    total = []
    for option in call.options:
        chance = 0.0
        for form in {tuple(encoded(tiny, option)), tuple(encoded(tiny, f" {option}"))}:
            with torch.inference_mode():
                logits = plain(
                    input_ids=read, decoder_input_ids=torch.tensor([[*start, *form]])
                ).logits[0]
            steps = logits[len(start) - 1 : -1].log_softmax(-1)
            chance += math.exp(sum(float(steps[place, token]) for place, token in enumerate(form)))
        total.append(chance)
    return [math.log(chance / sum(total)) for chance in total], sum(total)


@pytest.mark.parametrize(("count", "prefill"), [(5, ""), (5, "Answer:"), (31, ""), (52, "Answer:")])
def test_option_probabilities_equal_forward_passes(
    tiny: Any, plain: Any, count: int, prefill: str
) -> None:
    call = choose("Which letter comes next?", count, prefill)
    [reply] = ask(tiny, [call])
    assert isinstance(reply, Choice)
    logprobs, mass = by_hand(tiny, plain, call)
    assert list(reply.logprobs) == pytest.approx(logprobs, abs=1e-4)
    assert reply.mass == pytest.approx(mass, rel=1e-3)
    assert reply.flags == ("no_template",)


def test_a_model_with_absolute_positions_is_refused(tiny: Any, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((Path(tiny.model.path) / name).read_bytes())
    settings = {"is_encoder_decoder": True, "eos_token_id": 1, "decoder_start_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    other = replace(tiny, model=replace(tiny.model, path=str(tmp_path)))
    with pytest.raises(ConfigError, match="Only T5 and its relatives"):
        other.render(completion("Which?"))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_encoder_decoder_answers_with_a_peft_adapter(tmp_path: Path) -> None:
    pytest.importorskip(
        "peft", reason="adapters under engine transformers need peft", exc_type=ImportError
    )
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import T5ForConditionalGeneration

    saved = save(tmp_path / "t5", sentencepiece())
    plain = T5ForConditionalGeneration.from_pretrained(saved.path)
    settings = LoraConfig(
        task_type="SEQ_2_SEQ_LM", r=4, lora_alpha=16, target_modules=["q", "v", "o"]
    )
    torch.manual_seed(7)
    trained = get_peft_model(plain, settings)
    for name, matrix in trained.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(matrix, std=0.5)
    trained.save_pretrained(tmp_path / "lora")
    engine = Transformers(saved, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    calls = [completion(f"Which letter follows {letter}?", 10) for letter in "AQZ"]
    adapted = engine.with_adapter(Adapter("t5", str(tmp_path / "lora")))
    with_it, without = texts(ask(adapted, calls)), texts(ask(engine, calls))
    engine.close()
    base = T5ForConditionalGeneration.from_pretrained(saved.path)
    whole = PeftModel.from_pretrained(base, str(tmp_path / "lora")).merge_and_unload().eval()
    whole.save_pretrained(tmp_path / "t5")
    merged = Transformers(saved, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    assert with_it == texts(ask(merged, calls)) != without
    merged.close()
