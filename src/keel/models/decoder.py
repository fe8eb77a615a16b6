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
    cos, sin = rotary(shape, position_M, x.dtype)
    for i, layer in enumerate(weights.layers):
        last = i + 1 == shape.num_layers
        arguments = (shape, layer, i, x, cos, sin, last_plan if last else plan, store, needed_U if last else None)
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
    cos: Tensor,
    sin: Tensor,
    plan: DevicePlan,
    store: KeyValueStore,
    needed_U: Tensor | None,
) -> Tensor:
    heads, kv_heads, size = shape.num_heads, shape.num_key_value_heads, shape.head_size
    h = norm(x, layer.input_norm, shape.norm_eps)
    q, k, v = _queries_keys_values(shape, layer, h, needed_U)
    k = rotate(k.view(-1, kv_heads, size), cos, sin, layer.key_norm, shape.norm_eps)
    store.put(index, k, v.view(-1, kv_heads, size))
    if needed_U is not None:
        x, cos, sin = (t.index_select(0, needed_U) for t in (x, cos, sin))
    q = rotate(q.view(-1, heads, size), cos, sin, layer.query_norm, shape.norm_eps)
    x = x + F.linear(attend(q, store, index, plan), *layer.output)
    gate, up = _project(norm(x, layer.post_norm, shape.norm_eps), layer.gate_up)
    return x + F.linear(F.silu(gate) * up, *layer.down)


def _queries_keys_values(
    shape: DecoderShape, layer: LayerWeights, h: Tensor, needed_U: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of all nodes, queries of the needed ones."""
    asking = h if needed_U is None else h.index_select(0, needed_U)
    if len(layer.qkv) == 3:
        query, key, value = layer.qkv
        return F.linear(asking, *query), F.linear(h, *key), F.linear(h, *value)
    wide, narrow = shape.num_heads * shape.head_size, shape.num_key_value_heads * shape.head_size
    if needed_U is None:
        q, k, v = F.linear(h, *layer.qkv[0]).split([wide, narrow, narrow], dim=-1)
        return q, k, v
    weight, bias = layer.qkv[0]
    k, v = F.linear(h, weight[wide:], None if bias is None else bias[wide:]).chunk(2, dim=-1)
    return F.linear(asking, weight[:wide], None if bias is None else bias[:wide]), k, v


def _project(x: Tensor, gate_up: tuple[Linear, ...]) -> tuple[Tensor, Tensor]:
    """Both halves of the gated unit, from one fused projection or from two."""
    if len(gate_up) == 1:
        gate, up = F.linear(x, *gate_up[0]).chunk(2, dim=-1)
        return gate, up
    gate, up = (F.linear(x, *part) for part in gate_up)
    return gate, up
