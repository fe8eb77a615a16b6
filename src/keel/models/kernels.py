"""Elementwise parts of the decoder with their gradients written out: fewer kernels than autograd would run.

Half precision goes through plain tensor operations with float32 statistics instead.

Shape suffixes: `_M` nodes, `_D` head size.
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


def rotary(shape: DecoderShape, position_M: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines `[M, 1, D]` of the positions, and sines whose first half is negative, as the swapped halves need it."""
    exponent = torch.arange(0, shape.head_size, 2, dtype=torch.float32, device=position_M.device) / shape.head_size
    angle = position_M.float()[:, None] * (1.0 / shape.rope_theta**exponent)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((cos, cos), -1).to(dtype)[:, None], torch.cat((-sin, sin), -1).to(dtype)[:, None]


def rotate(x: Tensor, cos: Tensor, signed_sin: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Rotary positions of heads `[M, heads, D]`, after RMSNorm where the architecture has one.

    `y = n cos + swap(n) sin` with `swap(n) = (n2, n1)` and the sign in the sines; `n = norm(x)`, or `x` without a weight.
    """
    if x.dtype == torch.float32:
        return _Rotate.apply(x, cos, signed_sin, weight, eps)  # type: ignore[return-value]
    normal = x if weight is None else norm(x, weight, eps)
    return normal * cos + torch.cat(normal.chunk(2, dim=-1)[::-1], dim=-1) * signed_sin


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _scale(x, eps)
        normal = x * scale
        ctx.save_for_backward(normal, scale, weight)
        return normal * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return *_norm_gradients(gradients[0], *ctx.saved_tensors), None


class _Rotate(torch.autograd.Function):
    """The gradient turns back: `dn = g cos - swap(g) sin`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, signed_sin: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        if weight is None:
            ctx.save_for_backward(cos, signed_sin)
            return _turned(x, cos, signed_sin, 1.0)
        scale = _scale(x, eps)
        normal = x * scale
        ctx.save_for_backward(cos, signed_sin, normal, scale, weight)
        return _turned(normal, cos * weight, signed_sin * _swapped(weight), 1.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, Tensor | None, None]:
        cos, signed_sin, *normalised = ctx.saved_tensors
        back = _turned(gradients[0], cos, signed_sin, -1.0)
        if not normalised:
            return back, None, None, None, None
        d_x, d_weight = _norm_gradients(back, *normalised)
        return d_x, None, None, d_weight, None


def _scale(x: Tensor, eps: float) -> Tensor:
    return x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()


def _norm_gradients(g: Tensor, normal: Tensor, scale: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`dx = s (w g - x s^2 mean(w g x))`, `dw = sum(g x s)`."""
    scaled = (g * normal).reshape(-1, weight.shape[0])
    d_weight = scaled.sum(0)
    inner = torch.mv(scaled, weight).view(scale.shape).div_(-weight.shape[0])
    return (g * weight).addcmul_(normal, inner).mul_(scale), d_weight


def _turned(x: Tensor, cos: Tensor, signed_sin: Tensor, direction: float) -> Tensor:
    """`x cos + direction swap(x) sin`, half by half, so that the swapped halves are never stored."""
    half = x.shape[-1] // 2
    turned = x * cos
    turned[..., :half].addcmul_(x[..., half:], signed_sin[..., :half], value=direction)
    turned[..., half:].addcmul_(x[..., :half], signed_sin[..., half:], value=direction)
    return turned


def _swapped(x: Tensor) -> Tensor:
    return torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)
