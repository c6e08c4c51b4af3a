"""Rerankers against hand computations. The weights are random or untrained: this shows the code, not its quality."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.retrieval.rerankers import CrossEncoder, MonoT5, RankLlama
from tests.retrieval.tiny_models import BERT, LLAMA, saved, seeded, tokenizer

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

QUERY = "who directed the film ?"
TEXTS = (
    "maria lund directed the lighthouse film .",
    "the river is long",
    "a castle in berlin " * 3,
    "x",
)
T5 = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "initializer_factor": 3.0,
}


def configure(kind: Any, **fixed: Any) -> Callable[[Path], Any]:
    settings = {"max_length": 32, "batch_size": 3, "device": "cpu", "dtype": "float32", **fixed}
    return lambda model: kind(model=str(model), **settings)


crossencoder, monot5, rankllama = (
    configure(CrossEncoder),
    configure(MonoT5),
    configure(RankLlama, base=None),
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    config = transformers.BertConfig(vocab_size=seeded(), num_labels=1, **BERT)
    return saved(
        transformers.BertForSequenceClassification(config), tmp_path_factory.mktemp("cross"), "bert"
    )


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    config = transformers.T5Config(vocab_size=seeded(), decoder_start_token_id=0, **T5)
    return saved(
        transformers.T5ForConditionalGeneration(config), tmp_path_factory.mktemp("t5"), "t5"
    )


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("peft", reason="peft is not installed")
    config = transformers.LlamaConfig(vocab_size=seeded(), num_labels=1, pad_token_id=None, **LLAMA)
    return saved(
        transformers.LlamaForSequenceClassification(config),
        tmp_path_factory.mktemp("llama"),
        "llama",
    )


@pytest.mark.parametrize(
    ("build", "base"), [(crossencoder, "bert"), (monot5, "t5"), (rankllama, "llama")]
)
def test_scores_are_in_the_order_of_the_texts(build: Any, base: str, request: Any) -> None:
    reranker = build(request.getfixturevalue(base))
    (forward,) = reranker.score([Rank(QUERY, (*TEXTS, TEXTS[0]))])
    (backward,) = reranker.score([Rank(QUERY, (*TEXTS, TEXTS[0])[::-1])])
    assert forward == backward[::-1]
    assert forward[0] == forward[-1]
    assert len(set(forward)) == len(TEXTS)


def test_a_crossencoder_gives_the_logit_of_the_pair(bert: Path) -> None:
    model = transformers.BertForSequenceClassification.from_pretrained(bert).eval()
    with torch.no_grad():
        by_hand = [
            float(model(**tokenizer("bert")(QUERY, text, return_tensors="pt")).logits)
            for text in TEXTS
        ]
    assert crossencoder(bert).score([Rank(QUERY, TEXTS)])[0] == pytest.approx(by_hand, abs=1e-4)


def test_a_classifier_of_several_classes_is_refused(bert: Path, tmp_path: Path) -> None:
    config = transformers.BertConfig(vocab_size=seeded(), num_labels=3, **BERT)
    folder = saved(transformers.BertForSequenceClassification(config), tmp_path, "bert")
    with pytest.raises(ConfigError, match=r"reranker\.model=.*a classifier with 3 classes"):
        crossencoder(folder).score([Rank(QUERY, TEXTS)])


# monoT5


def t5_ids(text: str) -> list[int]:
    ids: list[int] = tokenizer("t5")(text)["input_ids"]
    return ids


def said_true(folder: Path, ids: Sequence[int]) -> float:
    """The log-probability of "true" against "false" as the first word of the answer."""
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    vocabulary = tokenizer("t5").get_vocab()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[0]])).logits[
            0, 0
        ]
    both = torch.stack([logits[vocabulary["▁false"]], logits[vocabulary["▁true"]]])
    return float(both.log_softmax(dim=0)[1])


def test_monot5_score_is_the_log_probability_of_true(t5: Path) -> None:
    by_hand = [
        said_true(t5, t5_ids(f"Query: {QUERY} Document: {text} Relevant:")) for text in TEXTS
    ]
    assert monot5(t5).score([Rank(QUERY, TEXTS)])[0] == pytest.approx(by_hand, abs=1e-4)
    end = t5_ids("Relevant:")
    ids = [*t5_ids(f"Query: {QUERY} Document: {'castle ' * 90}")[: 32 - len(end)], *end]
    ((score,),) = monot5(t5).score([Rank(QUERY, ("castle " * 90,))])
    assert score == pytest.approx(said_true(t5, ids), abs=1e-4)


def test_a_t5_without_the_words_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    config = transformers.T5Config(vocab_size=seeded(), decoder_start_token_id=0, **T5)
    folder = saved(transformers.T5ForConditionalGeneration(config), tmp_path, "bert")
    with pytest.raises(ConfigError, match=r"its vocabulary lacks ▁false, so it is not monoT5"):
        monot5(folder).score([Rank(QUERY, TEXTS)])


def llama_ids(text: str) -> list[int]:
    words = tokenizer("llama")
    query, document = (
        words(part)["input_ids"] for part in (f"query: {QUERY}", f"document: {text}")
    )
    return [*query, *document]  # each begins with <s>


def logit(model: Any, ids: Sequence[int]) -> float:
    with torch.no_grad():
        return float(model.eval()(input_ids=torch.tensor([ids])).logits)


def test_rankllama_score_is_the_last_tokens_logit(llama: Path) -> None:
    model = transformers.LlamaForSequenceClassification.from_pretrained(llama)
    by_hand = [logit(model, llama_ids(text)) for text in TEXTS]
    assert rankllama(llama).score([Rank(QUERY, TEXTS)])[0] == pytest.approx(by_hand, abs=1e-4)
    ((cut,),) = rankllama(llama).score([Rank(QUERY, ("river " * 90,))])
    assert cut == pytest.approx(logit(model, llama_ids("river " * 90)[:32]), abs=1e-4)
    (short, other) = rankllama(llama).score(
        [Rank("castle " * 90, ("river",)), Rank("castle " * 90, ("berlin",))]
    )
    assert short != other


@pytest.fixture
def adapter(llama: Path, tmp_path: Path) -> Path:
    """Random LoRA weights and a random head over the same LLaMA without one."""
    import peft

    base = tmp_path / "base"
    config = transformers.AutoConfig.from_pretrained(llama)
    saved(transformers.LlamaModel(config), base, "llama")
    seeded()
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    lora = peft.LoraConfig(
        task_type="SEQ_CLS", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]
    )
    with warnings.catch_warnings():
        # peft asks transformers for what it renamed
        warnings.simplefilter("ignore", FutureWarning)
        adapted = peft.get_peft_model(whole, lora)
    for name, weights in adapted.named_parameters():
        if "lora_" in name:
            # one half of a fresh adapter is zero
            torch.nn.init.normal_(weights, std=0.3)
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_is_added_to_its_base_with_its_head(adapter: Path) -> None:
    import peft

    weights = peft.load_peft_weights(str(adapter), device="cpu")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        adapter.parent / "base", num_labels=1
    )
    before = [logit(model, llama_ids(text)) for text in TEXTS]
    for number, layer in enumerate(model.model.layers):
        for part in ("q_proj", "v_proj"):
            name = f"base_model.model.model.layers.{number}.self_attn.{part}"
            down, up = weights[f"{name}.lora_A.weight"], weights[f"{name}.lora_B.weight"]
            getattr(layer.self_attn, part).weight.data += 8 / 4 * up @ down  # alpha / r
    model.score.weight.data = weights["base_model.model.score.weight"]
    by_hand = [logit(model, llama_ids(text)) for text in TEXTS]
    scores = rankllama(adapter).score([Rank(QUERY, TEXTS)])[0]
    assert scores == pytest.approx(by_hand, abs=1e-4)
    assert scores != pytest.approx(before, abs=1e-2)


def test_an_adapter_without_a_head_is_refused(adapter: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = adapter / "adapter_model.safetensors"
    save_file(
        {name: value for name, value in load_file(file).items() if ".score." not in name}, file
    )
    with pytest.raises(ConfigError, match="the adapter has no score head"):
        rankllama(adapter).score([Rank(QUERY, TEXTS)])
