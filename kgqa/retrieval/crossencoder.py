"""Cross-encoders of the library sentence-transformers: BGE's rerankers, the MS MARCO ones, any folder of that kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.retrieval.hf_model import load_model, torch_device
from kgqa.retrieval.pairs import Pair, score_pairs
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.optional_deps import require_packages
from kgqa.util.validators import Count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXTRA = "sentence-transformers"


@dataclass(frozen=True)
class CrossEncoder:
    """The model's one logit for query and text, without the sigmoid, which would make high scores equal.

    `model` is a folder or a name on the hub, used as it lies on disk and downloaded only where it is absent.
    """

    model: str
    max_length: Count  # tokens of query and text together; the text is cut
    batch_size: Count
    device: str
    dtype: Literal["float32", "bfloat16", "float16"]

    def identity(self) -> Mapping[str, Json]:
        versions = require_packages(EXTRA, "sentence-transformers", "transformers", "torch")
        weights = hub.identify_weights(self.model)
        return {"reranker": "cross-encoder", **asdict(self), "weights": weights, "versions": dict(versions)}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return score_pairs(calls, self._logits)

    def _logits(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        import torch

        logits: NDArray[np.float32] = _load(self).predict(
            list(pairs), batch_size=self.batch_size, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        return logits


@cache
def _load(settings: CrossEncoder) -> Any:
    require_packages(EXTRA, "sentence-transformers")
    folder = hub.fetch_encoder(settings.model)
    import sentence_transformers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()  # the run has a progress display of its own
    device = torch_device(settings.device)
    with load_model(device, f"reranker.model={settings.model}"):
        model = sentence_transformers.CrossEncoder(
            str(folder),
            device=device,
            max_length=settings.max_length,
            local_files_only=True,
            model_kwargs={"dtype": getattr(torch, settings.dtype)},
        )
    if model.num_labels != 1:
        raise ConfigError(
            f"reranker.model={settings.model}: it tells {model.num_labels} classes apart instead of scoring; "
            "name a cross-encoder with one label"
        )
    return model
