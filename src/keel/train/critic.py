"""The value function: a head on hidden states, of the policy itself or of a trunk of its own.

The value of a token is read where it is sampled from: at the hidden state of the token before it.

Shape suffixes: `_N` sampled tokens, `_J` trajectories.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from keel.models.weights import DecoderWeights, weights_of
from keel.objective.critic import Critic
from keel.train.scoring import score_values
from keel.types import FloatArray, Group, Turn


class ValueModel:
    """Values of states, and their optimizer. The head starts at 0, so the first values are 0 for every state.

    Args:
        policy: the model whose trunk is shared, or copied to start from.
        critic: its settings.
        dtype: of the computation.
    """

    def __init__(self, policy: torch.nn.Module, critic: Critic, dtype: torch.dtype) -> None:
        weight = next(policy.parameters())
        hidden_size = int(policy.config.hidden_size)  # type: ignore[union-attr]
        self.critic = critic
        self.trunk = copy.deepcopy(policy) if critic.trunk == "separate" else None
        self.head = torch.nn.Linear(hidden_size, 1, device=weight.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self._policy = policy
        self._dtype = dtype
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=critic.learning_rate, weight_decay=0.0, fused=True)

    def parameters(self) -> list[torch.nn.Parameter]:
        """What its own optimizer trains: the head, and the trunk when it has one."""
        trunk = [] if self.trunk is None else list(self.trunk.parameters())
        return list(chain(self.head.parameters(), trunk))

    def named_parameters(self) -> dict[str, torch.nn.Parameter]:
        """For checkpoints."""
        named = {f"head.{name}": p for name, p in self.head.named_parameters()}
        if self.trunk is not None:
            named |= {f"trunk.{name}": p for name, p in self.trunk.named_parameters()}
        return named

    def weights(self) -> DecoderWeights:
        return weights_of(self._policy if self.trunk is None else self.trunk, self._dtype)

    def values(self, turns: Sequence[Turn]) -> Tensor:
        """[N] values of the states that the turns' tokens were sampled from, with graph."""
        return score_values(self.weights(), self.head, [t.prompt_ids for t in turns], [t.action_ids for t in turns])

    @torch.no_grad()
    def bootstrap(self, groups: Sequence[Group]) -> FloatArray:
        """[J] value of the state in which each trajectory stopped; 0 where its prompt was not kept (it had ended)."""
        trajectories = [t for g in groups for t in g.trajectories if t.turns]
        found = [(j, t.final_prompt_ids) for j, t in enumerate(trajectories) if t.final_prompt_ids is not None]
        value_J = np.zeros(len(trajectories))
        if found:
            one = np.zeros(1, dtype=np.int32)
            values = score_values(self.weights(), self.head, [p for _, p in found], [one for _ in found])
            value_J[[j for j, _ in found]] = values.double().cpu().numpy()
        return value_J
