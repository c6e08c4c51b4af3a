"""A transformers model with its tokenizer on a device: encoders and rerankers run batches through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError
from kgqa.protocols import Rankings

# Heads of the pretraining that a checkpoint may lack and nothing here reads
UNUSED = ("pooler.", "lm_head.", "cls.")


@dataclass(frozen=True)
class Network:
    """`model` is in evaluation mode on `device`."""

    model: Any
    tokenizer: Any
    device: str

    def tokenize(self, texts: Sequence[str], most: int, *, end: bool) -> list[list[int]]:
        """Return the ids of each text with the tokenizer's own special tokens, cut to `most`.

        end: the last is the end-of-sequence token, whether or not the tokenizer adds it.
        """
        ids: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=most)[
            "input_ids"
        ]
        eos = self.tokenizer.eos_token_id
        if not end or eos is None:
            return ids
        return [row if row and row[-1] == eos else [*row[: most - 1], eos] for row in ids]

    def batches(self, rows: Rankings, size: int) -> Iterator[tuple[list[int], Any, Any]]:
        """Yield batches of rows of like length, shortest first: their positions, ids and attention mask, both (B, T).

        Rows are padded on the right; the padding is never attended.
        """
        import torch
        from torch.nn.utils.rnn import pad_sequence

        order = sorted(range(len(rows)), key=lambda position: len(rows[position]))
        for start in range(0, len(order), size):
            positions = order[start : start + size]
            texts = [torch.tensor(rows[position], dtype=torch.long) for position in positions]
            ids = pad_sequence(
                texts, batch_first=True, padding_value=self.tokenizer.pad_token_id or 0
            )
            mask = pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
            yield positions, ids.to(self.device), mask.to(self.device)


def torch_device(name: str) -> str:
    """Return torch's name of the device; auto is the first GPU if there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: torch found no GPU. Set device=auto or device=cpu")
    return name


@contextmanager
def explain_load_errors(device: str, model: str) -> Iterator[None]:
    """Turn the libraries' errors into one line; `model` is its key and value."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{model}: cannot be loaded on {device}: {reason}") from error


def load_network(folder: Path, load: Callable[..., Any], *, device: str, dtype: str) -> Network:
    """Return the network of a folder; `load(folder, **options)` is a `from_pretrained`.

    Raises:
        ConfigError: the folder cannot be read, it lacks weights, or the device is missing.
    """
    import torch
    import transformers

    # the run has a progress display
    transformers.utils.logging.disable_progress_bar()
    # its report of absent weights is one line below
    transformers.utils.logging.set_verbosity_error()
    device = torch_device(device)
    with explain_load_errors(device, f"model={folder}"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, report = load(folder, dtype=getattr(torch, dtype), output_loading_info=True)
        model = model.eval().to(device)
    if absent := sorted(
        key for key in report["missing_keys"] if not any(part in key for part in UNUSED)
    ):
        raise ConfigError(
            f"model={folder}: its weights lack {absent[0]} and {len(absent) - 1} others, so it is a model of another "
            "kind. Name another folder"
        )
    return Network(model, tokenizer, device)


def load_sentence_transformer(
    name: str, folder: Path, key: str, device: str, dtype: str, **options: Any
) -> Any:
    """Return an object of the class `name` of sentence-transformers."""
    import sentence_transformers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    device, options["model_kwargs"] = torch_device(device), {"dtype": getattr(torch, dtype)}
    with explain_load_errors(device, key):
        return getattr(sentence_transformers, name)(
            str(folder), device=device, local_files_only=True, **options
        )
