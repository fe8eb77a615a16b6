"""The engine's prefix tree (numpy bookkeeping) and the tensors behind its slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keel.models.attention import DeviceBlock, take_paths
from keel.models.weights import DecoderWeights

_ROOT = 0
_FIRST_CAPACITY = 8192

Slots = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Nodes to compute: the last `num_new` of a path; hidden states are wanted for the last `num_hidden`."""

    path: Slots
    num_new: int
    num_hidden: int


class PrefixTree:
    """Slots for prefixes: slot 0 is the empty prefix; `child(slot, token)` extends one."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._child: dict[int, int] = {}
        self._prompts: dict[bytes, Slots] = {}
        self.num_slots = 1
        self.token = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self.has_keys = np.zeros(_FIRST_CAPACITY, dtype=bool)
        self.has_hidden = np.zeros(_FIRST_CAPACITY, dtype=bool)
        self.queued = np.zeros(_FIRST_CAPACITY, dtype=bool)

    def child(self, slot: int, token: int) -> int | None:
        return self._child.get(slot * self._vocab_size + token)

    def add(self, slot: int, token: int) -> int:
        """A new slot for `token` after `slot`."""
        new = self.num_slots
        if new == len(self.token):
            self._grow()
        self._child[slot * self._vocab_size + token] = new
        self.token[new] = token
        self.num_slots = new + 1
        return new

    def extend(self, slot: int, token: int) -> int:
        """The slot of `token` after `slot`, new or not."""
        found = self._child.get(slot * self._vocab_size + token)
        return self.add(slot, token) if found is None else found

    def _grow(self) -> None:
        self.token = np.concatenate([self.token, np.zeros_like(self.token)])
        for name in ("has_keys", "has_hidden", "queued"):
            flags = getattr(self, name)
            setattr(self, name, np.concatenate([flags, np.zeros_like(flags)]))

    def prompt_path(self, prompt_ids: NDArray[np.int32]) -> Slots:
        """Slots of a prompt, added where missing."""
        key = prompt_ids.tobytes()
        path = self._prompts.get(key)
        if path is None:
            slot, slots = _ROOT, []
            for token in prompt_ids.tolist():
                slot = self.extend(slot, token)
                slots.append(slot)
            path = self._prompts[key] = np.array(slots, dtype=np.int64)
        return path

    def compact(self, paths: list[Slots]) -> tuple[Slots, Slots]:
        """Drop every slot that is on none of the paths.

        Returns:
            The kept old slots in order, and the new slot of every old one.
        """
        kept = np.unique(np.concatenate([np.zeros(1, dtype=np.int64), *paths]))
        renamed = np.zeros(self.num_slots, dtype=np.int64)
        renamed[kept] = np.arange(len(kept))
        alive = np.zeros(self.num_slots, dtype=bool)
        alive[kept] = True
        size = self._vocab_size
        self._child = {
            int(renamed[key // size]) * size + key % size: int(renamed[slot])
            for key, slot in self._child.items()
            if alive[slot]
        }
        self._prompts = {}
        for name in ("token", "has_keys", "has_hidden", "queued"):
            column = getattr(self, name)
            fresh = np.zeros_like(column)
            fresh[: len(kept)] = column[kept]
            setattr(self, name, fresh)
        self.num_slots = len(kept)
        return kept, renamed


class SlotStore:
    """Keys, values (`[slots, kv heads, D]` a layer) and final hidden states of the slots; memory is taken when slots are filled."""

    def __init__(self, weights: DecoderWeights) -> None:
        shape = weights.shape
        like = weights.embedding
        self._device = like.device
        self._slots = torch.zeros(0, dtype=torch.int64, device=like.device)
        empty = like.new_zeros((0, shape.num_key_value_heads, shape.head_size))
        self._keys = [empty] * shape.num_layers
        self._values = [empty] * shape.num_layers
        self._rows = _Rows()
        self._hidden = like.new_zeros((0, shape.hidden_size))

    def begin(self, slots: Slots, num_slots: int) -> None:
        """Name the slots that the next forward pass fills."""
        while num_slots > self._hidden.shape[0]:
            more = max(_FIRST_CAPACITY, self._hidden.shape[0])
            self._keys = [_longer(k, more) for k in self._keys]
            self._values = [_longer(v, more) for v in self._values]
            self._hidden = _longer(self._hidden, more)
        self._slots = torch.from_numpy(slots).to(self._device)

    def put(self, layer: int, key_MGD: Tensor, value_MGD: Tensor) -> None:
        self._keys[layer].index_copy_(0, self._slots, key_MGD)
        self._values[layer].index_copy_(0, self._slots, value_MGD)

    def gather(self, layer: int, block: DeviceBlock) -> tuple[Tensor, Tensor]:
        if layer == 0 and block.alone:
            self._rows.follow(block.key_SP)
        if block.alone and self._rows.hold(block.key_SP):
            return self._rows.take(layer, self._keys[layer], self._values[layer])
        return take_paths(self._keys[layer], block.key_SP), take_paths(self._values[layer], block.key_SP)

    def keep_hidden(self, slots: Slots, hidden: Tensor) -> None:
        self._hidden.index_copy_(0, torch.from_numpy(slots).to(self._device), hidden)

    def hidden_of(self, slots: Slots) -> Tensor:
        """`[len(slots), E]`."""
        return self._hidden.index_select(0, torch.from_numpy(slots).to(self._device))

    def compact(self, kept: Slots) -> None:
        self._rows = _Rows()
        index = torch.from_numpy(kept).to(self._device)
        for tensors in (self._keys, self._values, [self._hidden]):
            for tensor in tensors:
                tensor[: len(kept)] = tensor.index_select(0, index)


def _longer(tensor: Tensor, more: int) -> Tensor:
    """The tensor with `more` rows of zeros appended."""
    return torch.cat([tensor, tensor.new_zeros((more, *tensor.shape[1:]))])


class _Rows:
    """Keys and values of requests that decode side by side, pass after pass: only the new columns are copied each time.

    Buffers are made on the second pass of the same rows, with room to grow.
    """

    _room = 32
    _most_numbers = 1 << 28
    """Of a buffer; larger ones are gathered for each layer and dropped."""

    def __init__(self) -> None:
        self._key_SP = torch.zeros((0, 0), dtype=torch.int64)
        self._growing = False
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self._filled: dict[int, int] = {}
        """Leading columns of a layer's buffers that are those of the paths."""

    def follow(self, key_SP: Tensor) -> None:
        """The rows of this pass: those of the pass before with more keys, or new ones."""
        before, self._key_SP = self._key_SP, key_SP
        rows, length = before.shape
        same = 0
        if key_SP.shape[0] == rows and key_SP.shape[1] >= length and before.device == key_SP.device:
            changed = (key_SP[:, :length] != before).any(0).nonzero()
            same = int(changed[0]) if len(changed) else length
        self._growing = 2 * same > length
        self._filled = {layer: min(same, filled) for layer, filled in self._filled.items() if self._growing}
        self._buffers = self._buffers if self._growing else {}

    def hold(self, key_SP: Tensor) -> bool:
        """Whether these are the rows of this pass, seen before."""
        return self._growing and (key_SP is self._key_SP or torch.equal(key_SP, self._key_SP))

    def take(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """`[S, kv heads, P, D]` of the paths."""
        length = self._key_SP.shape[1]
        kept = self._buffers.get(layer)
        if kept is None or kept[0].shape[2] < length:
            kept = (self._buffer(keys), self._buffer(values))
            if kept[0].numel() <= self._most_numbers:
                self._buffers[layer] = kept
        elif (filled := self._filled[layer]) < length:
            new = self._key_SP[:, filled:]
            kept[0][:, :, filled:length] = take_paths(keys, new)
            kept[1][:, :, filled:length] = take_paths(values, new)
        self._filled[layer] = length
        return kept[0][:, :, :length], kept[1][:, :, :length]

    def _buffer(self, tensor: Tensor) -> Tensor:
        found = take_paths(tensor, self._key_SP)
        rows, heads, length, size = found.shape
        buffer = found.new_empty((rows, heads, length + self._room, size))
        buffer[:, :, :length] = found
        return buffer
