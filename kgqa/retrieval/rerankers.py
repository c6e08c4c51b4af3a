"""Rerankers read query and text together: cross-encoders, monoT5 and RankLLaMA. Only their scores can be saved."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from kgqa.calls import Rank
from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.biencoder import clean
from kgqa.retrieval.hf_model import Network, load_network, load_sentence_transformer
from kgqa.retrieval.vector_store import Vectors
from kgqa.types import JsonObject
from kgqa.util import hub
from kgqa.util.jsonio import parse_json
from kgqa.util.loaders import load_once
from kgqa.util.optional_deps import require_packages
from kgqa.util.settings import HASHED_WEIGHTS, ORDER_OF_SUMS, Setting
from kgqa.util.validators import Count, at_least

Pair = tuple[str, str]  # query, text
# of a logit; models that batch differ in the 6th digit with the shape of the batch
DECIMALS = 4
# what monoT5 was trained to say, as tokens of its vocabulary
ANSWERS = ("▁false", "▁true")
ADAPTER = "adapter_config.json"


class Reranker(ABC):
    """Scores calls with `score_pairs`, which returns a score for each pair of query and text."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]  # an extra and its packages
    model: str

    def loads(self) -> JsonObject:
        """Return the hash of the weights or, for a hub model, its revision. Raise ConfigError without the packages."""
        require_packages(*self.packages)
        return {"weights": hub.identify_weights(self.model)}

    @abstractmethod
    def score_pairs(self, pairs: Sequence[Pair]) -> Vectors:
        """Return one score per pair."""

    def score(self, calls: Sequence[Rank]) -> list[tuple[float, ...]]:
        """Return a score for each text of each call, rounded to four decimals.

        Equal pairs are scored once, shorter ones first, so that what is scored together depends on the texts only.

        Raises:
            ConfigError: a score is not finite.
        """
        wanted = {(call.query, text) for call in calls for text in call.texts}
        pairs = sorted(wanted, key=lambda pair: (len(pair[0]) + len(pair[1]), pair))
        if not pairs:
            return [() for _ in calls]
        scores = self.score_pairs([(clean(query), clean(text)) for query, text in pairs])
        if not np.isfinite(scores).all():
            raise ConfigError(
                "the reranker returns scores that are not finite. Set reranker.dtype=float32"
            )
        by_pair = {
            pair: round(float(value), DECIMALS) + 0.0
            for pair, value in zip(pairs, scores, strict=True)
        }
        return [tuple(by_pair[call.query, text] for text in call.texts) for call in calls]


@dataclass(frozen=True)
class CrossEncoder(Reranker):
    """The one logit of a model of sentence-transformers, without the sigmoid, which would make high scores equal.

    `model` is a folder or a name on the hub, used as it is on disk and downloaded only if it is absent.
    """

    name: ClassVar[str] = "cross-encoder"
    packages: ClassVar[tuple[str, ...]] = (
        "sentence-transformers",
        "sentence-transformers",
        "transformers",
        "torch",
    )

    model: Annotated[str, Setting("Name on the hub, or a folder."), HASHED_WEIGHTS]
    max_length: Annotated[
        Count, Setting("Maximum tokens of query and text together. The text is cut.")
    ] = 512
    batch_size: Annotated[Count, Setting("Pairs scored at once."), ORDER_OF_SUMS] = 32
    device: Annotated[str, Setting("auto | cpu | cuda."), ORDER_OF_SUMS] = "auto"
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        Setting("Number type: float32 | float16 | bfloat16."),
    ] = "float32"

    def score_pairs(self, pairs: Sequence[Pair]) -> Vectors:
        import torch

        logits: Vectors = _load_cross_encoder(self).predict(
            list(pairs),
            batch_size=self.batch_size,
            activation_fn=torch.nn.Identity(),
            show_progress_bar=False,
        )
        return logits


@load_once
def _load_cross_encoder(settings: CrossEncoder) -> Any:
    folder, key = hub.fetch_encoder(settings.model), f"reranker.model={settings.model}"
    model = load_sentence_transformer(
        "CrossEncoder", folder, key, settings.device, settings.dtype, max_length=settings.max_length
    )
    if model.num_labels != 1:
        raise ConfigError(
            f"{key}: a classifier with {model.num_labels} classes. Name a cross-encoder with one label"
        )
    return model


@dataclass(frozen=True)
class MonoT5(Reranker):
    """Log-probability of "true" against "false" as the first word after "Query: … Document: … Relevant:".

    monoT5 (Nogueira et al., Findings of EMNLP 2020). A text that is too long is cut before "Relevant:". Folders and
    hub models are found as `CrossEncoder` finds them.
    """

    name: ClassVar[str] = "monot5"
    packages: ClassVar[tuple[str, ...]] = (
        "rerankers",
        "transformers",
        "torch",
        "sentencepiece",
        "protobuf",
    )

    model: Annotated[
        str,
        Setting("Name on the hub, or a folder.", other="TRACE Table 4"),
        HASHED_WEIGHTS,
    ]
    max_length: Annotated[
        int, Setting("Maximum tokens. The text is cut.", other="monoT5 §4"), at_least(16)
    ] = 512
    batch_size: Annotated[Count, Setting("Pairs scored at once."), ORDER_OF_SUMS] = 32
    device: Annotated[str, Setting("auto | cpu | cuda."), ORDER_OF_SUMS] = "auto"
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        Setting("Number type: float32 | bfloat16. T5 overflows in float16."),
    ] = "float32"

    def score_pairs(self, pairs: Sequence[Pair]) -> Vectors:
        import torch

        network, answers = _load_monot5(self.model, self.device, self.dtype)
        tokenizer = network.tokenizer
        texts = [f"Query: {query} Document: {text}" for query, text in pairs]
        # sentencepiece starts a word here, so the tokens are those of the complete text
        end = [
            *tokenizer("Relevant:", add_special_tokens=False)["input_ids"],
            tokenizer.eos_token_id,
        ]
        most = self.max_length - len(end)
        starts = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=most)[
            "input_ids"
        ]
        scores = np.empty(len(pairs), np.float32)
        for batch, ids, mask in network.batches(
            [[*start, *end] for start in starts], self.batch_size
        ):
            first = torch.full(
                (len(batch), 1), network.model.config.decoder_start_token_id, device=network.device
            )
            with torch.inference_mode():
                logits = network.model(
                    input_ids=ids, attention_mask=mask, decoder_input_ids=first
                ).logits
            log_probabilities = logits[:, 0, answers].float().log_softmax(dim=1)  # (B, 2)
            scores[batch] = log_probabilities[:, 1].cpu().numpy()
        return scores


@load_once
def _load_monot5(model: str, device: str, dtype: str) -> tuple[Network, list[int]]:
    """Return the network and the tokens of `ANSWERS`."""
    folder = hub.fetch_encoder(model)
    import transformers

    network = load_network(
        folder, transformers.T5ForConditionalGeneration.from_pretrained, device=device, dtype=dtype
    )
    vocabulary = network.tokenizer.get_vocab()
    if absent := [answer for answer in ANSWERS if answer not in vocabulary]:
        raise ConfigError(
            f"reranker.model={model}: its vocabulary lacks {absent[0]}, so it is not monoT5"
        )
    return network, [vocabulary[answer] for answer in ANSWERS]


@dataclass(frozen=True)
class RankLlama(Reranker):
    """The score at the last token of "query: …" and "document: …", each after the beginning-of-text token.

    RankLLaMA (Ma et al., SIGIR 2024). `model` is a LoRA adapter of the model it names or of `base`; or a complete
    sequence classifier with one label. A text that is too long is cut.
    """

    name: ClassVar[str] = "rankllama"
    packages: ClassVar[tuple[str, ...]] = ("rerankers", "transformers", "torch", "peft")

    model: Annotated[
        str,
        Setting(
            "LoRA adapter of `base`, or a sequence classifier with one label: a name on the hub, or a folder.",
            other="TRACE Table 4",
        ),
        HASHED_WEIGHTS,
    ]
    base: Annotated[
        str | None,
        Setting("Model that the adapter belongs to. null: the one that the adapter names."),
        HASHED_WEIGHTS,
    ] = None
    max_length: Annotated[int, Setting("Maximum tokens. The text is cut."), at_least(16)] = 512
    batch_size: Annotated[Count, Setting("Pairs scored at once."), ORDER_OF_SUMS] = 16
    device: Annotated[
        str, Setting("auto | cpu | cuda. It needs 14 GB of GPU memory."), ORDER_OF_SUMS
    ] = "auto"
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        Setting("Number type: float32 | float16 | bfloat16."),
    ] = "bfloat16"

    def loads(self) -> JsonObject:
        base = _find_base(hub.fetch_encoder(self.model), self.base)
        return {**super().loads(), "base_weights": hub.identify_weights(base) if base else None}

    def score_pairs(self, pairs: Sequence[Pair]) -> Vectors:
        import torch

        network = _load_rankllama(self)
        prompts = [self._prompt(network.tokenizer, query, text) for query, text in pairs]
        scores = np.empty(len(pairs), np.float32)
        for batch, ids, mask in network.batches(prompts, self.batch_size):
            with torch.inference_mode():
                states = network.model.base_model(
                    input_ids=ids, attention_mask=mask
                ).last_hidden_state  # (B, T, d)
                # Not the classifier's own logits: it looks for padding by token, and "<unk>" may be both
                last = states[range(len(batch)), mask.sum(dim=1) - 1]
                scores[batch] = network.model.score(last)[:, 0].float().cpu().numpy()
        return scores

    def _prompt(self, tokenizer: Any, query: str, text: str) -> list[int]:
        """Cut the document to `max_length` tokens, and the query only if it would fill half of them."""
        start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        query_ids: list[int] = tokenizer(f"query: {query}", add_special_tokens=False)["input_ids"]
        text_ids: list[int] = tokenizer(f"document: {text}", add_special_tokens=False)["input_ids"]
        return [*start, *query_ids[: self.max_length // 2], *start, *text_ids][: self.max_length]


@load_once
def _load_rankllama(settings: RankLlama) -> Network:
    folder = hub.fetch_encoder(settings.model)
    base = _find_base(folder, settings.base)

    def load(whole: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
        import transformers

        classifier = transformers.AutoModelForSequenceClassification
        model, report = classifier.from_pretrained(whole, num_labels=1, **options)
        if not base:
            return model, report
        missing = [name for name in report["missing_keys"] if not name.startswith("score.")]
        return _merge_adapter(model, folder), {"missing_keys": missing}

    whole = hub.fetch_encoder(base) if base else folder
    return load_network(whole, load, device=settings.device, dtype=settings.dtype)


def _merge_adapter(model: Any, adapter: Path) -> Any:
    """Return the model with the adapter's weights added to its own, and the adapter's head."""
    import peft

    if not any(".score." in name for name in peft.load_peft_weights(str(adapter), device="cpu")):
        raise ConfigError(
            f"reranker.model={adapter}: the adapter has no score head, so it is not a reranker"
        )
    with warnings.catch_warnings():
        # peft asks transformers for what it renamed
        warnings.simplefilter("ignore", FutureWarning)
        return peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()


def _find_base(folder: Path, base: str | None) -> str | None:
    """Return the model that an adapter belongs to; None if the folder is no adapter."""
    file = folder / ADAPTER
    if not file.is_file() or base:
        return base if file.is_file() else None
    settings = parse_json(file.read_bytes(), str(file))
    if not isinstance(settings, dict) or not isinstance(
        settings.get("base_model_name_or_path"), str
    ):
        raise DataError(f"{file}: base_model_name_or_path names no model. Get the adapter again")
    return str(settings["base_model_name_or_path"])
