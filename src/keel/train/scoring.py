"""Log-probabilities and entropies of sampled tokens under the trainer's weights, with or without gradient.

Rows share prefixes through a forest, so distinct tokens are computed once. Logits exist for a bounded number of nodes at a
time: memory is flat in the vocabulary.

Shape suffixes: `_N` sampled tokens, `_U` distinct nodes, `_V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from keel.models.attention import DevicePlan, NoCache
from keel.models.decoder import forward
from keel.models.forest import Forest, build_forest
from keel.models.weights import DecoderWeights

_LOGITS_AT_ONCE = 1 << 24
"""Most logits (nodes x vocabulary) alive at a time; more are made, used and recomputed chunk by chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    logprob_N: Tensor
    """Natural log-probabilities of the sampled tokens, float32."""
    entropy_N: Tensor | None
    """Entropy in nats of the distribution each was sampled from; None when not asked for."""
    computed_tokens: int
    """Nodes of the forest: what the pass cost."""


def score_rows(
    weights: DecoderWeights,
    prompts: Sequence[NDArray[np.int32]],
    actions: Sequence[NDArray[np.int32]],
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    save_memory: bool = False,
) -> TokenScores:
    """Score every action token given everything before it.

    Args:
        weights: of the policy.
        prompts, actions: token ids, one pair a turn.
        temperature: of the sampling; divides the logits.
        entropy: whether to compute entropies too.
        save_memory: recompute layers in the backward pass.
    """
    forest = build_forest(prompts, actions)
    hidden_UE = _hidden(weights, forest, save_memory)
    logprob_N, entropy_N = _head(weights.head, hidden_UE, forest, temperature, entropy)
    return TokenScores(logprob_N, entropy_N, len(forest.token_M))


def score_values(
    weights: DecoderWeights,
    head: torch.nn.Linear,
    prompts: Sequence[NDArray[np.int32]],
    actions: Sequence[NDArray[np.int32]],
    *,
    save_memory: bool = False,
) -> Tensor:
    """[N] float32 outputs of a value head at the states that the action tokens were sampled from.

    Args:
        weights: of the trunk.
        head: hidden size to 1.
        prompts, actions: token ids, one pair a turn.
        save_memory: recompute layers in the backward pass.
    """
    forest = build_forest(prompts, actions)
    value_U = head(_hidden(weights, forest, save_memory).float())[:, 0]
    return value_U.index_select(0, torch.from_numpy(forest.source_N).to(value_U.device))


def _hidden(weights: DecoderWeights, forest: Forest, save_memory: bool) -> Tensor:
    """Final hidden states of the nodes that something is asked of."""
    device = weights.embedding.device
    return forward(
        weights,
        torch.from_numpy(forest.token_M).to(device),
        torch.from_numpy(forest.position_M).to(device),
        DevicePlan.of(forest.attention, device),
        NoCache(),
        torch.from_numpy(forest.needed_U).to(device),
        DevicePlan.of(forest.last_attention, device),
        checkpoint=save_memory,
    )


def _head(
    head_VE: Tensor, hidden_UE: Tensor, forest: Forest, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Chunks of nodes, each with the tokens that were sampled there."""
    device = hidden_UE.device
    num_nodes = len(hidden_UE)
    chunk = max(1, _LOGITS_AT_ONCE // head_VE.shape[0])
    if num_nodes <= chunk:
        source_N, target_N = (torch.from_numpy(x).to(device) for x in (forest.source_N, forest.target_N))
        logprob_N, entropy_U = _node_scores(hidden_UE, head_VE, source_N, target_N, temperature, entropy)
        return logprob_N, entropy_U.index_select(0, source_N) if entropy else None
    order = np.argsort(forest.source_N, kind="stable")
    sorted_source = forest.source_N[order]
    logprobs: list[Tensor] = []
    entropies: list[Tensor] = []
    for start in range(0, num_nodes, chunk):
        low, high = np.searchsorted(sorted_source, [start, min(start + chunk, num_nodes)])
        source = torch.from_numpy(sorted_source[low:high] - start).to(device)
        target = torch.from_numpy(forest.target_N[order[low:high]]).to(device)
        part = (hidden_UE[start : start + chunk], head_VE, source, target, temperature, entropy)
        if torch.is_grad_enabled():
            logprob, entropy_U = recompute(_node_scores, *part, use_reentrant=False)
        else:
            logprob, entropy_U = _node_scores(*part)
        logprobs.append(logprob)
        entropies.append(entropy_U.index_select(0, source) if entropy else entropy_U)
    inverse = torch.from_numpy(np.argsort(order, kind="stable")).to(device)
    logprob_N = torch.cat(logprobs).index_select(0, inverse)
    return logprob_N, torch.cat(entropies).index_select(0, inverse) if entropy else None


def _node_scores(
    hidden_UE: Tensor, head_VE: Tensor, source_N: Tensor, target_N: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target, and the entropy of each node (empty when not asked for)."""
    logits_UV = torch.matmul(hidden_UE, head_VE.T).float()
    if temperature != 1.0:
        logits_UV = logits_UV / temperature
    logprob_UV = torch.log_softmax(logits_UV, dim=-1)
    logprob_N = logprob_UV[source_N, target_N]
    if not entropy:
        return logprob_N, logprob_N.new_zeros(0)
    return logprob_N, -(logprob_UV.exp() * logprob_UV).sum(-1)
