"""Attention over the paths of a prefix forest: blocks on a device, where keys and values come from, and the arithmetic.

Shape suffixes: `_M` nodes, `_S` rows of a block, `_Q` queries of a row, `_P` keys of a row (its whole path), `_H` heads,
`_G` key-value heads, `_D` head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from keel.models.forest import AttentionPlan


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBlock:
    query_SQ: Tensor
    key_SP: Tensor
    mask_SQP: Tensor | None
    causal: bool
    alone: bool
    """The only block of its plan."""


@dataclass(frozen=True, slots=True, eq=False)
class DevicePlan:
    """An `AttentionPlan` on a device."""

    blocks: tuple[DeviceBlock, ...]
    inverse_M: Tensor
    in_order: bool
    """One block whose queries are the nodes as they come: nothing to reorder."""

    @staticmethod
    def of(plan: AttentionPlan, device: torch.device) -> DevicePlan:
        blocks = tuple(
            DeviceBlock(
                torch.from_numpy(b.query_SQ).to(device),
                torch.from_numpy(b.key_SP).to(device),
                None if b.mask_SQP is None else torch.from_numpy(b.mask_SQP).to(device),
                causal=b.mask_SQP is None and b.query_SQ.shape[1] > 1,
                alone=len(plan.blocks) == 1,
            )
            for b in plan.blocks
        )
        num_queries = len(plan.inverse_M)
        in_order = (
            len(blocks) == 1
            and plan.blocks[0].query_SQ.size == num_queries
            and bool(np.array_equal(plan.inverse_M, np.arange(num_queries)))
        )
        return DevicePlan(blocks, torch.from_numpy(plan.inverse_M).to(device), in_order)


class KeyValueStore(Protocol):
    """Keeps keys and values of a layer, and hands out those that the rows of a block look at."""

    def put(self, layer: int, key_MGD: Tensor, value_MGD: Tensor) -> None:
        """Keys and values of this pass's nodes."""
        ...

    def gather(self, layer: int, block: DeviceBlock) -> tuple[Tensor, Tensor]:
        """Those of the paths of a block, `[S, G, P, D]`."""
        ...


class NoCache:
    """Training: the nodes of this batch are all there is."""

    def __init__(self) -> None:
        self._layer: dict[int, tuple[Tensor, Tensor]] = {}

    def put(self, layer: int, key_MGD: Tensor, value_MGD: Tensor) -> None:
        self._layer[layer] = key_MGD, value_MGD

    def gather(self, layer: int, block: DeviceBlock) -> tuple[Tensor, Tensor]:
        key, value = self._layer[layer]
        return take_paths(key, block.key_SP), take_paths(value, block.key_SP)


def take_paths(row_MGD: Tensor, key_SP: Tensor) -> Tensor:
    """Rows of slots at the paths of a block: `[S, G, P, D]`. Whole rows are copied, head by head it is ten times slower."""
    _, heads, size = row_MGD.shape
    taken = row_MGD.flatten(1).index_select(0, key_SP.reshape(-1))
    return taken.view(*key_SP.shape, heads, size).transpose(1, 2)


def attend(query_MHD: Tensor, store: KeyValueStore, layer: int, plan: DevicePlan) -> Tensor:
    """Attention of every query to its own path.

    Args:
        query_MHD: of the nodes that ask.
        store, layer: where the keys and values are.
        plan: which looks at what.

    Returns:
        `[M, H * D]`.
    """
    outputs = [_attend_block(query_MHD, *store.gather(layer, block), block, plan.in_order) for block in plan.blocks]
    if plan.in_order:
        return outputs[0]
    stacked = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return stacked.index_select(0, plan.inverse_M)


def _attend_block(
    query_MHD: Tensor, key_SGPD: Tensor, value_SGPD: Tensor, block: DeviceBlock, in_order: bool
) -> Tensor:
    """`[S * Q, H * D]`, padded rows included."""
    _, heads, size = query_MHD.shape
    rows, queries = block.query_SQ.shape
    share = heads // key_SGPD.shape[1]
    q = query_MHD if in_order else query_MHD.flatten(1).index_select(0, block.query_SQ.reshape(-1))
    mask = None if block.mask_SQP is None else block.mask_SQP[:, None]
    if queries == 1:
        return _one_query(q.view(rows, -1, share, size), key_SGPD, value_SGPD, mask).reshape(rows, heads * size)
    # On CPU the kernel itself shares keys and values among heads; elsewhere masks would rule that out.
    shared_by_kernel = share > 1 and q.device.type == "cpu"
    if share > 1 and not shared_by_kernel:
        key_SGPD, value_SGPD = (t.repeat_interleave(share, dim=1) for t in (key_SGPD, value_SGPD))
    out = F.scaled_dot_product_attention(
        q.view(rows, queries, heads, size).transpose(1, 2),
        key_SGPD,
        value_SGPD,
        attn_mask=mask,
        is_causal=block.causal,
        enable_gqa=shared_by_kernel,
    )
    return out.transpose(1, 2).reshape(rows * queries, heads * size)


def _one_query(q: Tensor, key_SGPD: Tensor, value_SGPD: Tensor, mask: Tensor | None) -> Tensor:
    """`[S, G, share, D]`: heads that share keys and values are further queries of one head.

    Buffers that hold a head's keys side by side are read by plain products at the speed of memory; the fused kernel takes
    keys of any layout.
    """
    size = q.shape[-1]
    if mask is not None or key_SGPD.stride(2) != size:
        return F.scaled_dot_product_attention(q, key_SGPD, value_SGPD, attn_mask=mask)
    scores = torch.matmul(q * size**-0.5, key_SGPD.transpose(-1, -2))
    return torch.matmul(torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), value_SGPD)
