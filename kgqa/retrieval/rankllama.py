"""RankLLaMA (Ma et al., SIGIR 2024): a LLaMA with a score at the end of query and passage."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kgqa.calls import Rank
from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.hf_model import Network, chunks, loading
from kgqa.retrieval.pairs import Pair, score_pairs
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.jsonio import parse_json
from kgqa.util.optional_deps import require_packages
from kgqa.util.validators import Count, at_least

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ADAPTER = "adapter_config.json"
PACKAGES = ("transformers", "torch", "peft")


@dataclass(frozen=True)
class RankLlama:
    """The score at the last token of "query: …" and "document: …", each begun with the beginning-of-text token.

    `model` is a LoRA adapter, put onto the model it names or onto `base`; or a whole sequence classifier with one
    label. A text that is too long is cut.
    """

    model: str
    base: str | None  # None: the model that the adapter's configuration names
    max_length: Annotated[int, at_least(16)]
    batch_size: Count
    device: str
    dtype: Literal["float32", "bfloat16", "float16"]

    def identity(self) -> Mapping[str, Json]:
        versions = require_packages("rerankers", *PACKAGES)
        base = _base(hub.fetch_encoder(self.model), self.base)
        return {
            "reranker": "rankllama",
            **asdict(self),
            "weights": hub.identify_weights(self.model),
            "base_weights": hub.identify_weights(base) if base else None,
            "versions": dict(versions),
        }

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return score_pairs(calls, self._scores)

    def _scores(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        import numpy as np
        import torch

        network = _load(self)
        prompts = [_prompt(network, pair, self.max_length) for pair in pairs]
        scores = np.empty(len(pairs), np.float32)
        for batch in chunks(prompts, self.batch_size):
            ids, mask = network.padded([prompts[place] for place in batch])
            with torch.inference_mode():
                states = network.model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, T, d)
                # Not the classifier's own logits: it looks for padding by token, and "<unk>" may be both
                last = states[range(len(batch)), mask.sum(dim=1) - 1]
                scores[batch] = network.model.score(last)[:, 0].float().cpu().numpy()
        return scores


def _prompt(network: Network, pair: Pair, most: int) -> list[int]:
    """At most `most` tokens: the document is cut, the query only where it would fill half of them."""
    tokenizer, (query, text) = network.tokenizer, pair
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    query_ids: list[int] = tokenizer(f"query: {query}", add_special_tokens=False)["input_ids"][: most // 2]
    text_ids: list[int] = tokenizer(f"document: {text}", add_special_tokens=False)["input_ids"]
    return [*begin, *query_ids, *begin, *text_ids][:most]


@cache
def _load(settings: RankLlama) -> Network:
    require_packages("rerankers", *PACKAGES)
    folder = hub.fetch_encoder(settings.model)
    base = _base(folder, settings.base)

    def load(whole: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
        import transformers

        classifier = transformers.AutoModelForSequenceClassification
        model, report = classifier.from_pretrained(whole, num_labels=1, **options)
        return (_load_adapter(model, folder), {"missing_keys": _but_the_head(report)}) if base else (model, report)

    return loading(hub.fetch_encoder(base) if base else folder, load, device=settings.device, dtype=settings.dtype)


def _load_adapter(model: Any, adapter: Path) -> Any:
    """Return the model with the adapter's weights added to its own, and the adapter's head."""
    import peft

    if not any(".score." in name for name in peft.load_peft_weights(str(adapter), device="cpu")):
        raise ConfigError(f"reranker.model={adapter}: the adapter has no score head, so it is no reranker")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for what it renamed
        return peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()


def _but_the_head(report: Mapping[str, Any]) -> list[str]:
    return [name for name in report["missing_keys"] if not name.startswith("score.")]


def _base(folder: Path, given: str | None) -> str | None:
    """Return what the adapter is put onto; None where the folder is no adapter."""
    if not (folder / ADAPTER).is_file():
        return None
    if given:
        return given
    settings = parse_json((folder / ADAPTER).read_bytes(), str(folder / ADAPTER))
    if not isinstance(settings, dict) or not isinstance(settings.get("base_model_name_or_path"), str):
        raise DataError(f"{folder / ADAPTER}: base_model_name_or_path names no model; get the adapter again")
    return str(settings["base_model_name_or_path"])
