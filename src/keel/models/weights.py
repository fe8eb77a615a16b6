"""The weights of a Qwen/Llama decoder as this package computes with them; the parameters live in a Hugging Face model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from keel.errors import SettingError

SUPPORTED = ("qwen3", "qwen2", "llama")


@dataclass(frozen=True, slots=True)
class DecoderShape:
    num_heads: int
    num_key_value_heads: int
    head_size: int
    norm_eps: float
    rope_theta: float
    num_layers: int
    hidden_size: int
    vocab_size: int


Linear = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    input_norm: Tensor
    qkv: tuple[Linear, ...]
    """Three projections, or one fused. Within each query and key head the two numbers of a rotated pair are neighbours."""
    head_norm: Tensor | None
    """[H + G, D] of query and key heads, in the same order; None where the architecture has no such norm."""
    output: Linear
    post_norm: Tensor
    gate_up: tuple[Linear, ...]
    """Two projections, or one fused."""
    down: Linear


@dataclass(frozen=True, slots=True, eq=False)
class DecoderWeights:
    shape: DecoderShape
    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor
    """[V, E]; the embedding itself when tied."""


def shape_of(config: object) -> DecoderShape:
    """The dimensions in a Hugging Face config. Raises SettingError for an architecture that is not supported."""
    model_type = str(getattr(config, "model_type", "unknown"))
    if model_type not in SUPPORTED:
        raise SettingError(
            f"model architecture {model_type!r} is not supported; expected one of {', '.join(SUPPORTED)}. "
            "Choose a checkpoint of these families."
        )
    values = config.to_dict()  # type: ignore[attr-defined]
    rope = values.get("rope_parameters") or {"rope_type": "default", "rope_theta": values.get("rope_theta", 10000.0)}
    if rope.get("rope_type", "default") != "default":
        raise SettingError(f"rotary scaling {rope['rope_type']!r} is not supported; expected 'default'.")
    if values.get("use_sliding_window"):
        raise SettingError(
            "sliding-window attention is not supported; use a checkpoint with use_sliding_window = false."
        )
    if values.get("hidden_act", "silu") != "silu":
        raise SettingError(f"activation {values['hidden_act']!r} is not supported; expected 'silu'.")
    heads = int(values["num_attention_heads"])
    return DecoderShape(
        num_heads=heads,
        num_key_value_heads=int(values.get("num_key_value_heads") or heads),
        head_size=int(values.get("head_dim") or values["hidden_size"] // heads),
        norm_eps=float(values["rms_norm_eps"]),
        rope_theta=float(rope["rope_theta"]),
        num_layers=int(values["num_hidden_layers"]),
        hidden_size=int(values["hidden_size"]),
        vocab_size=int(values["vocab_size"]),
    )


def weights_of(model: torch.nn.Module, dtype: torch.dtype, *, fused: bool = False) -> DecoderWeights:
    """The parameters of a Hugging Face causal model, as this file names them.

    Args:
        dtype: to compute in; weights of another type are cast, with gradient.
        fused: concatenate projections that share an input (fewer, larger products; for sampling, without gradient). The
            result is a copy, so training the model does not change it.
    """
    shape = shape_of(model.config)
    tensors = {name: p.to(dtype) for name, p in model.named_parameters(remove_duplicate=False)}
    if fused:
        tensors = {name: p.detach().clone() for name, p in tensors.items()}

    def linear(name: str) -> Linear:
        return tensors[f"{name}.weight"], tensors.get(f"{name}.bias")

    layers: list[LayerWeights] = []
    for i in range(shape.num_layers):
        prefix = f"model.layers.{i}"
        attention = f"{prefix}.self_attn"
        query, key, value = (linear(f"{attention}.{x}_proj") for x in "qkv")
        qkv = (_paired(shape, query), _paired(shape, key), value)
        gate_up = tuple(linear(f"{prefix}.mlp.{x}_proj") for x in ("gate", "up"))
        layers.append(
            LayerWeights(
                input_norm=tensors[f"{prefix}.input_layernorm.weight"],
                qkv=(_fuse(qkv),) if fused else qkv,
                head_norm=_head_norm(shape, tensors, attention),
                output=linear(f"{attention}.o_proj"),
                post_norm=tensors[f"{prefix}.post_attention_layernorm.weight"],
                gate_up=(_fuse(gate_up),) if fused else gate_up,
                down=linear(f"{prefix}.mlp.down_proj"),
            )
        )
    embedding = tensors["model.embed_tokens.weight"]
    head = tensors.get("lm_head.weight", embedding)
    return DecoderWeights(shape, embedding, tuple(layers), tensors["model.norm.weight"], head)


def _fuse(parts: Sequence[Linear]) -> Linear:
    weight = torch.cat([w for w, _ in parts]).detach()
    biases = [b for _, b in parts if b is not None]
    return weight, torch.cat(biases).detach() if biases else None


def _paired(shape: DecoderShape, part: Linear) -> Linear:
    """A query or key projection whose outputs are reordered within heads: a checkpoint rotates `j` with `j + D / 2`.

    Attention does not see the order, since queries and keys share it.
    """
    weight, bias = part
    heads = weight.shape[0] // shape.head_size
    rows = torch.arange(heads * shape.head_size, device=weight.device).view(heads, 2, -1).transpose(1, 2).reshape(-1)
    return weight.index_select(0, rows), None if bias is None else bias.index_select(0, rows)


def _head_norm(shape: DecoderShape, tensors: dict[str, Tensor], attention: str) -> Tensor | None:
    query, key = (tensors.get(f"{attention}.{x}_norm.weight") for x in "qk")
    if query is None or key is None:
        return None
    query, key = (t.view(2, -1).T.reshape(1, -1) for t in (query, key))
    return torch.cat((query.expand(shape.num_heads, -1), key.expand(shape.num_key_value_heads, -1)))
