"""A transformers model with its tokeniser, on its device: what plain encoders and rerankers run batches through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError

# Heads of the pretraining that a checkpoint may lack and nothing here reads
UNUSED = ("pooler.", "lm_head.", "cls.")


@dataclass(frozen=True)
class Network:
    """`model` is in evaluation mode on `device`."""

    model: Any
    tokenizer: Any
    device: str

    def tokens(self, texts: Sequence[str], most: int, *, end: bool) -> list[list[int]]:
        """Return the ids of each text with the tokeniser's own special tokens, cut to `most`; `end`: the last is the
        end-of-sequence token, whether or not the tokeniser adds it."""
        ids: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=most)["input_ids"]
        eos = self.tokenizer.eos_token_id
        if not end or eos is None:
            return ids
        return [row if row and row[-1] == eos else [*row[: most - 1], eos] for row in ids]

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Return ids and attention mask, both (B, T), padded on the right; what stands under the padding is never
        attended.
        """
        import torch

        longest = max(len(row) for row in rows)
        fill = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows], device=self.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self.device)
        return ids, mask


def torch_device(name: str) -> str:
    """Return what torch calls the device; auto is the first GPU where there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: torch finds no GPU here; set device=auto or device=cpu")
    return name


@contextmanager
def load_model(device: str, model: str) -> Iterator[None]:
    """Yield what the block's library cannot load becomes one line; `model` is its key and value."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{model}: cannot be loaded on {device}: {reason}") from error


def loading(folder: Path, load: Callable[..., Any], *, device: str, dtype: str) -> Network:
    """Return `load(folder, **options)` is a `from_pretrained`.

    Raises:
        ConfigError: the folder cannot be read, its weights are not all there, or the device is not.
    """
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()  # the run has a progress display of its own
    transformers.utils.logging.set_verbosity_error()  # its report of absent weights is one line below
    placed = torch_device(device)
    with load_model(placed, f"model={folder}"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, report = load(folder, dtype=getattr(torch, dtype), output_loading_info=True)
        model = model.eval().to(placed)
    if absent := sorted(key for key in report["missing_keys"] if not any(part in key for part in UNUSED)):
        raise ConfigError(
            f"model={folder}: its weights lack {absent[0]} and {len(absent) - 1} others, so it is a model of another "
            "kind; name another folder"
        )
    return Network(model, tokenizer, placed)


def chunks(rows: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Yield places of the rows in batches of like length, shortest first."""
    order = sorted(range(len(rows)), key=lambda place: (len(rows[place]), place))
    for start in range(0, len(order), size):
        yield order[start : start + size]
