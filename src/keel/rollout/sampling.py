"""Drawing tokens: inverse-CDF sampling with counter-based uniforms, so a draw depends on (seed, position) alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keel.rollout.engine import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_WORD = (1 << 64) - 1


def uniform(seeds: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), a pure function of (seed, position).

    `u = splitmix64(splitmix64(seed) + golden * (position + 1)) >> 11, times 2^-53`.
    """
    with np.errstate(over="ignore"):
        mixed = _splitmix(_splitmix(seeds) + _GOLDEN * (positions + np.uint64(1)))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _splitmix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def uniform_at(seed: int, position: int) -> float:
    """`uniform` for one pair of Python integers."""
    return (_splitmix_int(_splitmix_int(seed) + 0x9E3779B97F4A7C15 * (position + 1)) >> 11) * 2.0**-53


def _splitmix_int(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """What each node samples from."""

    logprob_UV: Tensor
    """Natural log-probabilities, float32."""
    cumulative_UV: Tensor
    """Running sums of the probabilities, float64; NaN where the logits were not finite."""


def distribution(logits_UV: Tensor, sampling: Sampling) -> Distribution:
    """The distribution that a sampling setting draws from; greedy puts all mass on the largest logit."""
    healthy_U = torch.isfinite(logits_UV).all(-1, keepdim=True)
    if sampling.temperature == 0:
        logprob_UV = torch.log_softmax(logits_UV, dim=-1)
        probability_UV = torch.zeros_like(logits_UV, dtype=torch.float64)
        probability_UV.scatter_(-1, logits_UV.argmax(-1, keepdim=True), 1.0)
    else:
        logprob_UV = torch.log_softmax(_truncate(logits_UV / sampling.temperature, sampling), dim=-1)
        probability_UV = logprob_UV.double().exp()
    return Distribution(logprob_UV, probability_UV.cumsum(-1).masked_fill(~healthy_U, float("nan")))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Tokens (-1 where the logits were not finite) and natural log-probabilities under the sampled distribution."""

    tokens: list[int]
    logprobs: list[float]


def draw(chances: Distribution, row_R: NDArray[np.int64], uniform_R: NDArray[np.float64]) -> Drawn:
    """One token for each request: the first whose cumulative probability exceeds `u` times the total.

    Args:
        chances: of the distinct nodes.
        row_R: the node of each request.
        uniform_R: one number in [0, 1) each.
    """
    device = chances.logprob_UV.device
    rows = torch.from_numpy(row_R).to(device)
    cumulative_RV = chances.cumulative_UV.index_select(0, rows)
    goal_R = torch.from_numpy(uniform_R).to(device) * cumulative_RV[:, -1]
    token_R = torch.searchsorted(cumulative_RV, goal_R[:, None], right=True)[:, 0]
    token_R = token_R.clamp(max=cumulative_RV.shape[-1] - 1)
    logprob_R = chances.logprob_UV[rows, token_R]
    token_R = torch.where(torch.isfinite(goal_R), token_R, -1)
    return Drawn(token_R.tolist(), logprob_R.tolist())


class RowCache:
    """Distributions of visited nodes in numpy: with a small vocabulary, drawing a token costs no tensor operation.

    A policy that has learned something draws the likeliest token most of the time, so its interval is kept aside: a draw that
    falls into it costs two comparisons. Rows are forgotten all at once when they outgrow the bound; they are computed again
    from the nodes' hidden states.
    """

    largest_vocab = 4096
    _most_numbers = 1 << 25

    def __init__(self) -> None:
        self._rows: dict[int, tuple[NDArray[np.float64], NDArray[np.float32]]] = {}
        self._likeliest: dict[int, tuple[float, float, float, int, float]] = {}
        """Start and end of the interval, the total, the token, its log-probability."""
        self._sampling: Sampling | None = None
        self._numbers = 0

    def begin(self, sampling: Sampling) -> None:
        """Rows are of one sampling setting; another one empties the cache."""
        if sampling != self._sampling or self._numbers > self._most_numbers:
            self._rows, self._likeliest, self._sampling, self._numbers = {}, {}, sampling, 0

    def add(self, slots: list[int], chances: Distribution) -> None:
        cumulative_UV, logprob_UV = chances.cumulative_UV, chances.logprob_UV
        logprob_U, token_U = logprob_UV.max(-1)
        end_U = cumulative_UV.gather(-1, token_U[:, None])[:, 0]
        before_U = cumulative_UV.gather(-1, (token_U - 1).clamp(min=0)[:, None])[:, 0]
        start_U = torch.where(token_U > 0, before_U, torch.zeros_like(before_U))
        columns = (start_U, end_U, cumulative_UV[:, -1], token_U, logprob_U)
        self._likeliest.update(zip(slots, zip(*(c.tolist() for c in columns), strict=True), strict=True))
        self._numbers += cumulative_UV.numel() + logprob_UV.numel()
        both = zip(cumulative_UV.cpu().numpy(), logprob_UV.cpu().numpy(), strict=True)
        self._rows.update(zip(slots, both, strict=True))

    def __contains__(self, slot: int) -> bool:
        return slot in self._rows

    def draw(self, slot: int, u: float) -> tuple[int, float] | None:
        """As `draw`, from a cached row; None when there is no row."""
        likeliest = self._likeliest.get(slot)
        if likeliest is None:
            return None
        start, end, total, token, logprob = likeliest
        goal = u * total
        if start <= goal < end:
            return token, logprob
        if total != total:
            return -1, 0.0
        cumulative_V, logprob_V = self._rows[slot]
        token = min(int(cumulative_V.searchsorted(goal, side="right")), len(cumulative_V) - 1)
        return token, float(logprob_V[token])


def _truncate(logits_UV: Tensor, sampling: Sampling) -> Tensor:
    if sampling.top_k:
        kept = logits_UV.topk(min(sampling.top_k, logits_UV.shape[-1]), dim=-1).values[:, -1:]
        logits_UV = logits_UV.masked_fill(logits_UV < kept, float("-inf"))
    if sampling.top_p < 1:
        ordered, order = logits_UV.sort(dim=-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        drop = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= sampling.top_p)
        logits_UV = logits_UV.masked_fill(drop, float("-inf"))
    return logits_UV
