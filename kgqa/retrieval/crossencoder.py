"""Cross-encoders of the library sentence-transformers: BGE's rerankers, the MS MARCO ones, any folder of that kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from kgqa import hub
from kgqa.calls import Rank
from kgqa.constraints import Count
from kgqa.errors import ConfigError
from kgqa.extras import installed
from kgqa.retrieval.network import loaded_on, torch_device
from kgqa.retrieval.pairs import Pair, score_pairs
from kgqa.types import Json

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
        versions = installed(EXTRA, "sentence-transformers", "transformers", "torch")
        weights = hub.weights(self.model)
        return {"reranker": "cross-encoder", **asdict(self), "weights": weights, "versions": dict(versions)}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return score_pairs(calls, self._logits)

    def _logits(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        import torch

        logits: NDArray[np.float32] = _loaded(self).predict(
            list(pairs), batch_size=self.batch_size, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        return logits


@cache
def _loaded(settings: CrossEncoder) -> Any:
    installed(EXTRA, "sentence-transformers")
    folder = hub.folder(settings.model)
    import sentence_transformers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()  # the run has a progress display of its own
    device = torch_device(settings.device)
    with loaded_on(device, f"reranker.model={settings.model}"):
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
