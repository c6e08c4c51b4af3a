"""Encoders: models of sentence-transformers, and plain transformers with their pooling spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from kgqa.errors import ConfigError
from kgqa.retrieval.biencoder import Encoder, Kind, clean
from kgqa.retrieval.hf_model import Network, load_network, load_sentence_transformer
from kgqa.retrieval.vector_store import Vectors
from kgqa.types import JsonObject
from kgqa.util import hub
from kgqa.util.loaders import load_once
from kgqa.util.optional_deps import require_packages
from kgqa.util.settings import HASHED_WEIGHTS, ORDER_OF_SUMS, Setting
from kgqa.util.validators import Count, at_least

SENTENCE_PACKAGES = (
    "sentence-transformers",
    "sentence-transformers",
    "transformers",
    "torch",
)  # extra, packages
PLAIN_PACKAGES = ("transformers", "transformers", "torch")


@dataclass(frozen=True)
class SentenceTransformer(Encoder):
    """A model with sentence-transformers' own configuration: its modules say how it pools and normalizes.

    `model` is all-MiniLM-L6-v2 (from its package, no hub needed), a folder, or a name on the hub. A hub model is used
    as it is on disk; only one that is absent is downloaded. Vectors are made unit vectors unless the model's own
    similarity is the plain inner product.
    """

    model: Annotated[
        str,
        Setting(
            "A folder, or a name on the hub. all-MiniLM-L6-v2 comes from its package if that is installed."
        ),
        HASHED_WEIGHTS,
    ]
    query_prefix: Annotated[
        str | None, Setting("Text before each query. null: the model's own prompt for queries.")
    ] = ""
    passage_prefix: Annotated[
        str | None, Setting("Text before each passage. null: the model's own prompt for documents.")
    ] = ""
    max_length: Annotated[
        Count | None,
        Setting("Maximum tokens, prefix included. Longer texts are cut. null: the model's own."),
    ] = None
    batch_size: Annotated[Count, Setting("Texts encoded at once."), ORDER_OF_SUMS] = 32
    device: Annotated[str, Setting("auto | cpu | cuda."), ORDER_OF_SUMS] = "auto"
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        Setting("Number type: float32 | float16 | bfloat16."),
    ] = "float32"
    dimensions: Annotated[
        Count | None,
        Setting("Numbers per vector, to plan GPUs without the weights. null: unknown."),
        HASHED_WEIGHTS,
    ] = None

    @classmethod
    def of(cls, model: str) -> SentenceTransformer:
        """Return a model with its own settings, on any device."""
        return cls(model, None, None, None, batch_size=32, device="auto", dtype="float32")

    def loads(self) -> JsonObject:
        """Return the hash of the weights or, for a hub model, its revision. Raise ConfigError without the packages."""
        require_packages(*SENTENCE_PACKAGES)
        half = {} if self.dtype == "float32" else {"normalized_in": "float32"}
        return {"weights": hub.identify_weights(self.model), **half}

    def encode(self, kind: Kind, texts: Sequence[str]) -> Vectors:
        model = _load_sentence_transformer(self)
        encode = model.encode_query if kind == "query" else model.encode_document
        encoded: Vectors = encode(
            [clean(text) for text in texts],
            prompt=self.query_prefix if kind == "query" else self.passage_prefix,
            batch_size=self.batch_size,
            normalize_embeddings=(is_unit := model.similarity_fn_name != "dot"),
            show_progress_bar=False,
        )
        encoded = encoded.astype("float32", copy=False)
        if is_unit and self.dtype != "float32":
            # half precision leaves lengths of 0.997 to 1.003, which reorders near passages
            encoded = encoded / np.linalg.norm(encoded, axis=1, keepdims=True)
        return encoded


@load_once
def _load_sentence_transformer(settings: SentenceTransformer) -> Any:
    folder = hub.fetch_encoder(settings.model)
    if not (folder / "modules.json").is_file():
        raise ConfigError(
            f"model={settings.model}: no modules.json, so its pooling is unknown. Choose the preset "
            "of a plain encoder, such as contriever, and set its model and pooling"
        )
    key = f"model={settings.model}"
    model = load_sentence_transformer(
        "SentenceTransformer", folder, key, settings.device, settings.dtype
    )
    if settings.max_length is not None:
        model.max_seq_length = settings.max_length
    return model


@dataclass(frozen=True)
class PlainEncoder(Encoder):
    """The last hidden states of a transformer, pooled: the first token's, their mean, or the last token's.

    For Contriever, DPR, the E5 families and DRAGON+. `last` ends each text with the end-of-sequence token, as the
    models that pool so were trained. A DPR checkpoint gives its own vector, the first token's. Folders and hub models
    are found as `SentenceTransformer` finds them.
    """

    model: Annotated[
        str,
        Setting("Encoder of the passages: a name on the hub, or a folder."),
        HASHED_WEIGHTS,
    ]
    query_model: Annotated[
        str | None,
        Setting("Encoder of the queries. null: the same."),
        HASHED_WEIGHTS,
    ] = None
    pooling: Annotated[
        Literal["cls", "mean", "last"],
        Setting(
            "Vector of a text: cls, the first token's | mean | last, the end-of-sequence token's."
        ),
    ] = field(kw_only=True)
    normalise: Annotated[
        bool, Setting("Scale vectors to length 1, so that scores are cosines.")
    ] = False
    query_prefix: Annotated[str, Setting("Text before each query.")] = ""
    passage_prefix: Annotated[str, Setting("Text before each passage.")] = ""
    max_length: Annotated[
        int,
        Setting("Maximum tokens, prefix and special tokens included. Longer texts are cut."),
        at_least(8),
    ] = 512
    batch_size: Annotated[Count, Setting("Texts encoded at once."), ORDER_OF_SUMS] = 32
    device: Annotated[str, Setting("auto | cpu | cuda."), ORDER_OF_SUMS] = "auto"
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        Setting("Number type: float32 | float16 | bfloat16."),
    ] = "float32"
    dimensions: Annotated[
        Count | None,
        Setting("Numbers per vector, to plan GPUs without the weights. null: unknown."),
        HASHED_WEIGHTS,
    ] = None

    def loads(self) -> JsonObject:
        """Return the hashes of the weights of queries and of passages, or their revisions."""
        require_packages(*PLAIN_PACKAGES)
        return {
            "weights": [hub.identify_weights(self._model(kind)) for kind in ("query", "passage")]
        }

    def encode(self, kind: Kind, texts: Sequence[str]) -> Vectors:
        """Return a row for each text; texts of like length share a batch."""
        import torch

        network, prefix = (
            _load_plain(self._model(kind), self.device, self.dtype),
            self._prefix(kind),
        )
        ids = network.tokenize(
            [prefix + clean(text) for text in texts], self.max_length, end=self.pooling == "last"
        )
        rows: list[Vectors] = [np.empty(0, np.float32)] * len(ids)
        for positions, padded, mask in network.batches(ids, self.batch_size):
            with torch.inference_mode():
                pooled = self._pool(
                    network.model(input_ids=padded, attention_mask=mask), mask
                ).float()
                if self.normalise:
                    pooled = torch.nn.functional.normalize(pooled, dim=1)
            for position, row in zip(positions, pooled.cpu().numpy(), strict=True):
                rows[position] = row
        return np.stack(rows)

    def _pool(self, output: Any, mask: Any) -> Any:
        """Return vectors (B, d) of hidden states (B, T, d), padded on the right, and their mask (B, T)."""
        states = getattr(output, "last_hidden_state", None)
        if states is None:
            if self.pooling != "cls":
                raise ConfigError(
                    f"pooling={self.pooling}: a DPR model supports only the first token's vector. Set pooling=cls"
                )
            return output.pooler_output
        if self.pooling == "cls":
            return states[:, 0]
        if self.pooling == "last":
            return states[range(len(states)), mask.sum(dim=1) - 1]
        weights = mask.unsqueeze(-1).to(states.dtype)  # (B, T, 1)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)

    def _model(self, kind: Kind) -> str:
        return (self.query_model if kind == "query" else None) or self.model

    def _prefix(self, kind: Kind) -> str:
        return self.query_prefix if kind == "query" else self.passage_prefix


@load_once
def _load_plain(model: str, device: str, dtype: str) -> Network:
    folder = hub.fetch_encoder(model)
    import transformers

    def load(folder: Path, **options: Any) -> Any:
        config = transformers.AutoConfig.from_pretrained(folder)
        # AutoModel would read a passage encoder as a question encoder: random weights
        if config.model_type == "dpr":
            return getattr(transformers, config.architectures[0]).from_pretrained(folder, **options)
        return transformers.AutoModel.from_pretrained(folder, **options)

    return load_network(folder, load, device=device, dtype=dtype)
