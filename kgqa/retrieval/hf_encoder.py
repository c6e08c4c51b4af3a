"""Plain transformers encoders with their pooling spelled out: Contriever, DPR, the E5 families, DRAGON+."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.retrieval.biencoder import clean, remembering
from kgqa.retrieval.embedding_cache import Kind
from kgqa.retrieval.hf_model import Network, chunks, loading
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.optional_deps import require_packages
from kgqa.util.validators import Count, at_least

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Pooling = Literal["cls", "mean", "last"]


@dataclass(frozen=True)
class PlainEncoder:
    """The last hidden states of a transformer, pooled: the first token's, their mean, or the last token's.

    `last` ends each text with the end-of-sequence token, as the models that pool so were trained. A DPR checkpoint
    gives its own vector, the first token's. Folders and hub models are found as `SentenceTransformer` finds them.
    """

    model: str  # of passages, and of queries if `query_model` is None
    query_model: str | None
    pooling: Pooling
    normalise: bool  # to length 1: the inner product is then the cosine
    query_prefix: str
    passage_prefix: str
    max_length: Annotated[int, at_least(8)]  # tokens, prefix and special tokens included
    batch_size: Count
    device: str
    dtype: Literal["float32", "bfloat16", "float16"]

    def identity(self) -> Mapping[str, Json]:
        versions = require_packages("transformers", "transformers", "torch")
        weights = [hub.identify_weights(self._model(kind)) for kind in ("query", "passage")]
        return {"ranker": "plain encoder", **asdict(self), "weights": weights, "versions": dict(versions)}

    def fingerprint(self, kind: Kind) -> Mapping[str, Json]:
        require_packages("transformers", "transformers", "torch")  # before the hub is asked for what could not be used
        return {
            "encoder": f"plain {kind}",
            "pooling": self.pooling,
            "normalise": self.normalise,
            "prefix": self._prefix(kind),
            "max_length": self.max_length,
            "dtype": self.dtype,
            "weights": hub.identify_weights(self._model(kind)),
        }

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return remembering(self).score(calls)

    def encode(self, kind: Kind, texts: Sequence[str]) -> NDArray[np.float32]:
        loaded, prefix = _load(self._model(kind), self.device, self.dtype), self._prefix(kind)
        ids = loaded.tokens([prefix + clean(text) for text in texts], self.max_length, end=self.pooling == "last")
        return _vectors(loaded, ids, self)

    def _model(self, kind: Kind) -> str:
        return (self.query_model if kind == "query" else None) or self.model

    def _prefix(self, kind: Kind) -> str:
        return self.query_prefix if kind == "query" else self.passage_prefix


def _vectors(loaded: Network, ids: Sequence[Sequence[int]], settings: PlainEncoder) -> NDArray[np.float32]:
    """Return a row for each text; texts of like length share a batch."""
    import numpy as np
    import torch

    rows: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(ids)
    for batch in chunks(ids, settings.batch_size):
        with torch.inference_mode():
            padded, mask = loaded.padded([ids[place] for place in batch])
            pooled = _pool(loaded.model(input_ids=padded, attention_mask=mask), mask, settings.pooling)
            pooled = pooled.float()
            if settings.normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
        for place, row in zip(batch, pooled.cpu().numpy(), strict=True):
            rows[place] = row
    return np.stack(rows)


def _pool(output: Any, mask: Any, pooling: Pooling) -> Any:
    """From hidden states (B, T, d), padded on the right, and their mask (B, T) to vectors (B, d)."""
    if (states := getattr(output, "last_hidden_state", None)) is None:
        if pooling != "cls":
            raise ConfigError(f"pooling={pooling}: a DPR model gives its first token's vector alone; set pooling=cls")
        return output.pooler_output
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        ends = mask.sum(dim=1) - 1
        return states[range(len(states)), ends]
    weights = mask.unsqueeze(-1).to(states.dtype)  # (B, T, 1)
    return (states * weights).sum(dim=1) / weights.sum(dim=1)


@cache
def _load(model: str, device: str, dtype: str) -> Network:
    require_packages("transformers", "transformers", "torch")
    folder = hub.fetch_encoder(model)
    import transformers

    def load(folder: Path, **options: Any) -> Any:
        config = transformers.AutoConfig.from_pretrained(folder)
        if config.model_type == "dpr":  # AutoModel would read a passage encoder as a question encoder: random weights
            return getattr(transformers, config.architectures[0]).from_pretrained(folder, **options)
        return transformers.AutoModel.from_pretrained(folder, **options)

    return loading(folder, load, device=device, dtype=dtype)
