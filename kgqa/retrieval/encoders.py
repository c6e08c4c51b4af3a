"""Encoders of the library sentence-transformers: MiniLM and any folder or hub model it can load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.retrieval.biencoder import clean, remembering
from kgqa.retrieval.embedding_cache import Kind
from kgqa.retrieval.hf_model import load_model, torch_device
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.optional_deps import require_packages
from kgqa.util.validators import Count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXTRA = "sentence-transformers"


@dataclass(frozen=True)
class SentenceTransformer:
    """A model with sentence-transformers' own configuration: its modules say how it pools and normalises.

    `model` is all-MiniLM-L6-v2 (taken from its package, no hub needed), a folder, or a name on the hub. A hub model
    is used as it lies on disk; only one that is absent is downloaded. Vectors are made unit vectors unless the
    model's own similarity is the plain inner product.
    """

    model: str
    query_prefix: str | None  # None: the model's own prompt for queries, if it has one
    passage_prefix: str | None
    max_length: Count | None  # tokens, prefix included; None: the model's own
    batch_size: Count
    device: str
    dtype: Literal["float32", "bfloat16", "float16"]

    @classmethod
    def of(cls, model: str) -> SentenceTransformer:
        """Return a model that says everything itself, on whatever device there is."""
        return cls(model, None, None, None, batch_size=32, device="auto", dtype="float32")

    def identity(self) -> Mapping[str, Json]:
        """Return the settings, and the hash of the weights or, for a hub model, its revision. Loads nothing."""
        versions = require_packages(EXTRA, "sentence-transformers", "transformers", "torch")
        return {
            "ranker": "sentence-transformers",
            **asdict(self),
            "weights": hub.identify_weights(self.model),
            "versions": dict(versions),
        }

    def fingerprint(self, kind: Kind) -> Mapping[str, Json]:
        require_packages(EXTRA, "sentence-transformers", "transformers", "torch")  # before the hub is asked for it
        return {
            "encoder": f"sentence-transformers {kind}",
            "prefix": self.query_prefix if kind == "query" else self.passage_prefix,
            "max_length": self.max_length,
            "dtype": self.dtype,
            "weights": hub.identify_weights(self.model),
        }

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return remembering(self).score(calls)

    def encode(self, kind: Kind, texts: Sequence[str]) -> NDArray[np.float32]:
        model = _load(self)
        prefix = self.query_prefix if kind == "query" else self.passage_prefix
        encode = model.encode_query if kind == "query" else model.encode_document
        encoded: NDArray[np.float32] = encode(
            [clean(text) for text in texts],
            prompt=prefix,
            batch_size=self.batch_size,
            normalize_embeddings=model.similarity_fn_name != "dot",
            show_progress_bar=False,
        )
        return encoded.astype("float32", copy=False)


@cache
def _load(settings: SentenceTransformer) -> Any:
    require_packages(EXTRA, "sentence-transformers")
    folder = hub.fetch_encoder(settings.model)
    if not (folder / "modules.json").is_file():
        raise ConfigError(
            f"model={settings.model}: no modules.json, so nothing says how its tokens are pooled; choose the preset "
            "of a plain encoder, such as contriever, and set its model and pooling"
        )
    import sentence_transformers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()  # the run has a progress display of its own
    device = torch_device(settings.device)
    with load_model(device, f"model={settings.model}"):
        model = sentence_transformers.SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            model_kwargs={"dtype": getattr(torch, settings.dtype)},
        )
    if settings.max_length is not None:
        model.max_seq_length = settings.max_length
    return model
