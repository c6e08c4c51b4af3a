"""Keys and values of a batch, with room to grow."""

from __future__ import annotations

from functools import cache
from typing import Any

ROOM = 64  # tokens; a whole batch is copied once in so many steps

Tensor = Any  # torch is imported late and not checked


def empty_cache() -> Any:
    """Return a transformers cache in which every layer keeps all tokens; a sliding window is the attention mask's
    business.
    """
    from transformers.cache_utils import Cache

    return Cache(layer_class_to_replicate=_growing_layer())


@cache
def _growing_layer() -> type:
    """Return a class made on first use, because its base lies in transformers."""
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[misc]
        """transformers' own layer copies all keys and values for every token, which with long prompts takes a fifth
        of the time. Here they are the front of a larger buffer.
        """

        keys: Tensor
        values: Tensor
        _buffers: tuple[Tensor, Tensor] | None = None

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            start = self.get_seq_length()
            end = start + key_states.shape[-2]
            if self._buffers is None or self._buffers[0].shape[-2] < end:
                self._buffers = _roomy(self.keys, key_states, end), _roomy(self.values, value_states, end)
            for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
                buffer[:, :, start:end] = new
            self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
            return self.keys, self.values

        def batch_select_indices(self, indices: Tensor) -> None:
            super().batch_select_indices(indices)
            self._buffers = None  # the selection is a copy without room

    return GrowingLayer


def _roomy(old: Tensor, new: Tensor, end: int) -> Tensor:
    """Return a buffer for `end` tokens and more that starts with the old ones."""
    buffer = new.new_empty((*new.shape[:2], end + ROOM, new.shape[-1]))
    if old.numel():
        buffer[:, :, : old.shape[-2]] = old
    return buffer
