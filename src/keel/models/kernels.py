"""Elementwise parts of the decoder with their gradients written out: fewer kernels than autograd would run.

Half precision goes through plain tensor operations with float32 statistics instead.

Dimensions: `M` nodes, `H` query heads, `G` key-value heads, `D` head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from keel.models.weights import DecoderShape


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension: `y = w x s`, `s = (mean(x^2) + eps)^(-1/2)`."""
    if x.dtype == torch.float32:
        return _Norm.apply(x, weight, eps)  # type: ignore[return-value]
    wide = x.float()
    return (wide * _scale(wide, eps)).to(x.dtype) * weight


def rotary(shape: DecoderShape, position_M: Tensor) -> Tensor:
    """Rotations `[M, H + G, D / 2]` of the positions, complex64, once for every query and key head: `exp(i position / theta^(2 j / D))`.

    On CPU they are spelled out for the heads: the product with them is then one pass over contiguous memory.
    """
    exponent = torch.arange(0, shape.head_size, 2, dtype=torch.float32, device=position_M.device) / shape.head_size
    angle = position_M.float()[:, None] * (1.0 / shape.rope_theta**exponent)
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]
    turns = turn.expand(-1, shape.num_heads + shape.num_key_value_heads, -1)
    return turns.contiguous() if turns.device.type == "cpu" else turns


def rotate(x: Tensor, rotation: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Rotary positions of heads, after RMSNorm where the architecture has one.

    Args:
        x: `[M, heads * D]`; the two numbers of a rotated pair are neighbours (`weights.weights_of` orders them so).
        rotation: `[M, heads, D / 2]`, complex.
        weight: `[heads, D]` of the norm, or None.
        eps: of the norm.

    Returns:
        `[M, heads, D]`.
    """
    if x.dtype == torch.float32:
        return _Rotate.apply(x, rotation, weight, eps)  # type: ignore[return-value]
    heads = x.reshape(*rotation.shape[:2], -1).float()
    if weight is not None:
        heads = (heads * _scale(heads, eps)).to(x.dtype).float() * weight.float()
    return _turned(heads, rotation).to(x.dtype)


class _Norm(torch.autograd.Function):
    """`dx = s (w g - x s^2 mean(w g x))`, `dw = sum(g x s)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _scale(x, eps)
        normal = x * scale
        ctx.save_for_backward(normal, scale, weight)
        return normal * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, scale, weight = ctx.saved_tensors
        (g,) = gradients
        scaled = (g * normal).reshape(-1, weight.shape[0])
        inner = torch.mv(scaled, weight).view(scale.shape).div_(-weight.shape[0])
        return (g * weight).addcmul_(normal, inner).mul_(scale), scaled.sum(0), None


class _Rotate(torch.autograd.Function):
    """The gradient turns back by the conjugate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rotation: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        heads = x.view(*rotation.shape[:2], -1)
        if weight is None:
            ctx.save_for_backward(rotation)
            return _turned(heads, rotation)
        scale = _scale(heads, eps)
        normal = heads * scale
        ctx.save_for_backward(rotation, normal, scale, weight)
        return _turned(normal * weight, rotation)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor | None, None]:
        rotation, *normalised = ctx.saved_tensors
        back = _turned(gradients[0].contiguous(), rotation.conj())
        if not normalised:
            return back.flatten(1), None, None, None
        normal, scale, weight = normalised
        scaled = back * normal
        inner = torch.linalg.vecdot(scaled, weight).unsqueeze(-1).div_(-weight.shape[1])
        d_x = (back * weight).addcmul_(normal, inner).mul_(scale)
        return d_x.flatten(1), None, scaled.sum(0), None


def _turned(heads: Tensor, rotation: Tensor) -> Tensor:
    pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation).flatten(-2)


def _scale(x: Tensor, eps: float) -> Tensor:
    return x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
