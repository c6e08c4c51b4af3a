"""monoT5 (Nogueira et al., Findings of EMNLP 2020): a T5 that says whether a passage is relevant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.retrieval.hf_model import Network, chunks, loading
from kgqa.retrieval.pairs import Pair, score_pairs
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.optional_deps import require_packages
from kgqa.util.validators import Count, at_least

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACKAGES = ("transformers", "torch", "sentencepiece", "protobuf")
ANSWERS = ("▁false", "▁true")  # what the model was trained to say, as tokens of its vocabulary


@dataclass(frozen=True)
class MonoT5:
    """Log-probability of "true" against "false" as the first word after "Query: … Document: … Relevant:".

    A text that is too long is cut before "Relevant:". Folders and hub models are found as `CrossEncoder` finds them.
    """

    model: str
    max_length: Annotated[int, at_least(16)]
    batch_size: Count
    device: str
    dtype: Literal["float32", "bfloat16"]  # T5 overflows in float16

    def identity(self) -> Mapping[str, Json]:
        versions = require_packages("rerankers", *PACKAGES)
        return {
            "reranker": "monot5",
            **asdict(self),
            "weights": hub.identify_weights(self.model),
            "versions": dict(versions),
        }

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return score_pairs(calls, self._log_probabilities)

    def _log_probabilities(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        import numpy as np
        import torch

        network, answers = _load(self.model, self.device, self.dtype)
        prompts = _prompts(network, pairs, self.max_length)
        scores = np.empty(len(pairs), np.float32)
        for batch in chunks(prompts, self.batch_size):
            ids, mask = network.padded([prompts[place] for place in batch])
            first = torch.full((len(batch), 1), network.model.config.decoder_start_token_id, device=network.device)
            with torch.inference_mode():
                logits = network.model(input_ids=ids, attention_mask=mask, decoder_input_ids=first).logits
            log_probabilities = logits[:, 0, list(answers)].float().log_softmax(dim=1)  # (B, 2)
            scores[batch] = log_probabilities[:, 1].cpu().numpy()
        return scores


def _prompts(network: Network, pairs: Sequence[Pair], most: int) -> list[list[int]]:
    tokenizer = network.tokenizer
    texts = [f"Query: {query} Document: {text}" for query, text in pairs]
    # a word of its own for sentencepiece, so the tokens are those of the whole text
    end = [*tokenizer("Relevant:", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    starts = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=most - len(end))["input_ids"]
    return [[*start, *end] for start in starts]


@cache
def _load(model: str, device: str, dtype: str) -> tuple[Network, tuple[int, int]]:
    require_packages("rerankers", *PACKAGES)
    folder = hub.fetch_encoder(model)
    import transformers

    network = loading(folder, transformers.T5ForConditionalGeneration.from_pretrained, device=device, dtype=dtype)
    vocabulary = network.tokenizer.get_vocab()
    if absent := [answer for answer in ANSWERS if answer not in vocabulary]:
        raise ConfigError(f"reranker.model={model}: its vocabulary lacks {absent[0]}, so it is no monoT5")
    false, true = (vocabulary[answer] for answer in ANSWERS)
    return network, (false, true)
