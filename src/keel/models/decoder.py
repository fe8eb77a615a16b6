"""One forward pass for training and sampling: a Qwen/Llama decoder over the nodes of a prefix forest.

The parameters live in a Hugging Face model (loading, saving, names); this file computes with them. Supported:
`qwen3`, `qwen2`, `llama` (RMSNorm, rotary positions, grouped queries, SwiGLU). Equality with the Hugging Face
forward pass is a test.

Shape suffixes: `_M` nodes, `_U` needed nodes, `_E` hidden size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from keel.models.attention import DevicePlan, KeyValueStore, attend
from keel.models.kernels import norm, rotary, rotate
from keel.models.weights import DecoderShape, DecoderWeights, LayerWeights, Linear


def forward(
    weights: DecoderWeights,
    token_M: Tensor,
    position_M: Tensor,
    plan: DevicePlan,
    store: KeyValueStore,
    needed_U: Tensor | None,
    last_plan: DevicePlan,
    checkpoint: bool = False,
) -> Tensor:
    """Final hidden states of the needed nodes.

    The last layer computes keys and values for all nodes but queries and the rest for the needed ones only.

    Args:
        token_M, position_M: the nodes of this pass.
        plan, last_plan: attention of all nodes, and of the needed ones.
        store: keeps keys and values.
        needed_U: indices of the needed nodes; None when all are.
        checkpoint: recompute layers in the backward pass (less memory, more time).

    Returns:
        `[U, E]` after the final norm; `logits = hidden @ head.T`.
    """
    shape = weights.shape
    x = F.embedding(token_M, weights.embedding)
    rotation = rotary(shape, position_M)
    for i, layer in enumerate(weights.layers):
        last = i + 1 == shape.num_layers
        arguments = (shape, layer, i, x, rotation, last_plan if last else plan, store, needed_U if last else None)
        if checkpoint and torch.is_grad_enabled():
            x = recompute(_layer, *arguments, use_reentrant=False)
        else:
            x = _layer(*arguments)
    return norm(x, weights.final_norm, shape.norm_eps)


def _layer(
    shape: DecoderShape,
    layer: LayerWeights,
    index: int,
    x: Tensor,
    rotation: Tensor,
    plan: DevicePlan,
    store: KeyValueStore,
    needed_U: Tensor | None,
) -> Tensor:
    q, k, v = _queries_keys_values(shape, layer, norm(x, layer.input_norm, shape.norm_eps), rotation, needed_U)
    store.put(index, k, v)
    if needed_U is not None:
        x = x.index_select(0, needed_U)
    x = x + F.linear(attend(q, store, index, plan), *layer.output)
    gate, up = _project(norm(x, layer.post_norm, shape.norm_eps), layer.gate_up)
    return x + F.linear(F.silu(gate) * up, *layer.down)


def _queries_keys_values(
    shape: DecoderShape, layer: LayerWeights, h: Tensor, rotation: Tensor, needed_U: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated keys, and values, of all nodes, and rotated queries of the needed ones: `[nodes, heads, D]`."""
    heads, kv_heads, size = shape.num_heads, shape.num_key_value_heads, shape.head_size
    wide, narrow = heads * size, kv_heads * size
    weight, eps = layer.head_norm, shape.norm_eps
    fused = len(layer.qkv) == 1
    if fused and needed_U is None:
        qk, v = F.linear(h, *layer.qkv[0]).split([wide + narrow, narrow], dim=-1)
        q, k = rotate(qk, rotation, weight, eps).split([heads, kv_heads], dim=1)
        return q, k, v.view(-1, kv_heads, size)
    query, key, value = _separate(layer.qkv[0], [wide, narrow, narrow]) if fused else layer.qkv
    q_weight, k_weight = (None, None) if weight is None else weight.split([heads, kv_heads])
    q_rotation, k_rotation = rotation.split([heads, kv_heads], dim=1)
    asking = h
    if needed_U is not None:
        asking, q_rotation = h.index_select(0, needed_U), q_rotation.index_select(0, needed_U)
    q = rotate(F.linear(asking, *query), q_rotation, q_weight, eps)
    k = rotate(F.linear(h, *key), k_rotation, k_weight, eps)
    return q, k, F.linear(h, *value).view(-1, kv_heads, size)


def _separate(fused: Linear, sizes: list[int]) -> list[Linear]:
    weight, bias = fused
    biases = [None] * len(sizes) if bias is None else bias.split(sizes)
    return list(zip(weight.split(sizes), biases, strict=True))


def _project(x: Tensor, gate_up: tuple[Linear, ...]) -> tuple[Tensor, Tensor]:
    """Both halves of the gated unit, from one fused projection or from two."""
    if len(gate_up) == 1:
        gate, up = F.linear(x, *gate_up[0]).chunk(2, dim=-1)
        return gate, up
    gate, up = (F.linear(x, *part) for part in gate_up)
    return gate, up
