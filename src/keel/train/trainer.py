"""The trainer: scores tokens and takes optimizer steps. One process; the objective decides, this file only computes.

Shape suffixes: `_N` sampled tokens, `_K` turns.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from keel.errors import TrainingError
from keel.metrics import Max, Mean, Metric, Total, merge
from keel.models.weights import DecoderWeights, weights_of
from keel.objective.critic import Critic
from keel.objective.loss import policy_loss
from keel.objective.method import Credit, Method, step_weights
from keel.objective.scores import Needs, Scores
from keel.objective.value_loss import value_loss
from keel.rollout.episode import derive_seed
from keel.tokens import TokenTable, micro_batches
from keel.train.critic import ValueModel
from keel.train.scoring import TokenScores, score_rows
from keel.types import FloatArray, Group, IntArray, Turn, TurnIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """How to take optimizer steps."""

    learning_rate: float
    warmup_updates: int
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    max_grad_norm: float
    minibatches: int
    epochs: int
    micro_batch_tokens: int
    recompute_old: bool
    temperature: float
    save_memory: bool
    dtype: torch.dtype
    """Of the computation; the weights themselves are float32."""
    seed: int


class Trainer:
    """Holds the policy being trained, its optimizer and, when a penalty asks, the frozen reference."""

    def __init__(
        self, model: torch.nn.Module, update: Update, *, needs_reference: bool, critic: Critic | None = None
    ) -> None:
        self.model = model
        self.critic = None if critic is None else ValueModel(model, critic, update.dtype)
        self._update = update
        parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            parameters,
            lr=update.learning_rate,
            betas=update.betas,
            eps=update.epsilon,
            weight_decay=update.weight_decay,
            fused=True,
        )
        self.num_updates = 0
        self.reference = copy.deepcopy(model).requires_grad_(False) if needs_reference else None

    def weights(self) -> DecoderWeights:
        """The current weights, fused for sampling."""
        return weights_of(self.model, self._update.dtype, fused=True)

    @torch.no_grad()
    def score(self, groups: Sequence[Group], needs: Needs) -> Scores:
        """Old and reference log-probabilities and entropies of every sampled token, in the order of `TurnIndex.of(groups)`.

        Args:
            groups: what was sampled.
            needs: only what is asked for is computed. Old log-probabilities are the sampled ones unless they are to be
                recomputed.
        """
        turns = [turn for group in groups for t in group.trajectories for turn in t.turns]
        old_N = np.concatenate([turn.logprobs for turn in turns]).astype(np.float64)
        entropy_N: FloatArray | None = None
        recompute = self._update.recompute_old or needs.old
        if recompute or needs.turn_entropy:
            scored = self._score_all(weights_of(self.model, self._update.dtype), turns, entropy=needs.turn_entropy)
            old_N = scored.logprob_N.double().cpu().numpy() if recompute else old_N
            entropy_N = None if scored.entropy_N is None else scored.entropy_N.double().cpu().numpy()
        reference_N: FloatArray | None = None
        if needs.reference:
            if self.reference is None:
                raise TrainingError("the method asks for a reference policy, but the trainer was built without one")
            reference_N = (
                self._score_all(weights_of(self.reference, self._update.dtype), turns, entropy=False)
                .logprob_N.double()
                .cpu()
                .numpy()
            )
        value_N: FloatArray | None = None
        bootstrap_J: FloatArray | None = None
        if needs.values:
            critic = self._required_critic()
            pieces = [critic.values(turns[a:b]) for a, b in self._pieces(turns)]
            value_N = torch.cat(pieces).double().cpu().numpy()
            bootstrap_J = critic.bootstrap(groups)
        return Scores(
            old_N=old_N, reference_N=reference_N, entropy_N=entropy_N, value_N=value_N, bootstrap_J=bootstrap_J
        )

    def _required_critic(self) -> ValueModel:
        if self.critic is None:
            raise TrainingError("the method asks for a critic's values, but the trainer was built without one")
        return self.critic

    def _pieces(self, turns: Sequence[Turn]) -> list[tuple[int, int]]:
        """Ranges of turns that fit the memory bound."""
        pieces: list[tuple[int, int]] = []
        start = size = 0
        for k, turn in enumerate(turns):
            cost = len(turn.prompt_ids) + len(turn.action_ids)
            if size and size + cost > self._update.micro_batch_tokens:
                pieces.append((start, k))
                start, size = k, 0
            size += cost
        return [*pieces, (start, len(turns))]

    def _score_all(self, weights: DecoderWeights, turns: Sequence[Turn], *, entropy: bool) -> TokenScores:
        """Score turns in pieces that fit the memory bound."""
        pieces = [self._score_turns(weights, turns[a:b], entropy=entropy) for a, b in self._pieces(turns)]
        return TokenScores(
            torch.cat([p.logprob_N for p in pieces]),
            torch.cat([p.entropy_N for p in pieces if p.entropy_N is not None]) if entropy else None,
            sum(p.computed_tokens for p in pieces),
        )

    def _score_turns(self, weights: DecoderWeights, turns: Sequence[Turn], *, entropy: bool) -> TokenScores:
        return score_rows(
            weights,
            [turn.prompt_ids for turn in turns],
            [turn.action_ids for turn in turns],
            temperature=self._update.temperature,
            entropy=entropy,
            save_memory=self._update.save_memory,
        )

    def update(
        self, groups: Sequence[Group], credit: Credit, scores: Scores, method: Method, step: int
    ) -> dict[str, Metric]:
        """Epochs of optimizer steps over the groups of one training step.

        Groups are dealt to `minibatches` optimizer steps in an order drawn from the seed; the weights of each optimizer
        step sum to 1. Advantages are those of the whole batch.
        """
        index = TurnIndex.of(groups)
        turns = [turn for group in groups for t in group.trajectories for turn in t.turns]
        metrics: dict[str, Metric] = {}
        for epoch in range(self._update.epochs):
            order = np.random.default_rng(derive_seed(self._update.seed, "order", step, epoch)).permutation(len(groups))
            for chosen_G in np.array_split(order, min(self._update.minibatches, len(groups))):
                chosen_K = np.isin(index.group_K, chosen_G)
                if not np.any(credit.advantage_N[chosen_K[index.turn_N]]) and not method.penalties:
                    metrics = merge(metrics, {"updates/empty": Total(1)})
                    continue
                table = self._table(index, turns, credit, scores, step_weights(method, index, credit, chosen_K))
                metrics = merge(
                    metrics, self._optimizer_step(index, turns, np.flatnonzero(chosen_K), table, method, step)
                )
        self._check_weights()
        return metrics

    def _table(
        self, index: TurnIndex, turns: Sequence[Turn], credit: Credit, scores: Scores, weight_N: FloatArray
    ) -> TokenTable:
        assert scores.old_N is not None
        return TokenTable.of(
            index,
            old_N=scores.old_N,
            behaviour_N=np.concatenate([t.logprobs for t in turns]).astype(np.float64),
            advantage_N=credit.advantage_N,
            weight_N=weight_N,
            reference_N=scores.reference_N,
            old_value_N=scores.value_N,
            return_N=credit.return_N,
            value_weight_N=_part_weights(credit.value_weight_N, weight_N),
            device=next(self.model.parameters()).device,
        )

    def _optimizer_step(
        self,
        index: TurnIndex,
        turns: Sequence[Turn],
        chosen: IntArray,
        table: TokenTable,
        method: Method,
        step: int,
    ) -> dict[str, Metric]:
        """Gradients of all micro-batches, then one step. A loss or gradient that is not finite raises before it."""
        self.optimizer.zero_grad(set_to_none=True)
        trains_policy = self.critic is None or step > self.critic.critic.warm_up_steps
        cost_K = np.array([len(t.prompt_ids) + len(t.action_ids) for t in turns], dtype=np.int64)
        budget = int(cost_K.sum()) if method.needs.whole_step else self._update.micro_batch_tokens
        metrics: dict[str, Metric] = {}
        total = computed = 0.0
        for part in micro_batches(index, method.unit, budget, cost_K=cost_K, turns=chosen):
            weights = weights_of(self.model, self._update.dtype)
            scored = self._score_turns(weights, [turns[k] for k in part], entropy=method.needs.entropy)
            rows = table.select_turns(part)
            result = policy_loss(method, rows, scored.logprob_N, scored.entropy_N)
            self._check_finite("loss", result.loss)
            if trains_policy:
                result.loss.backward()
            metrics = merge(metrics, result.metrics, self._value_gradients([turns[k] for k in part], rows))
            total += float(result.loss.detach())
            computed += scored.computed_tokens
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._update.max_grad_norm)
        self._check_finite("gradient norm", norm)
        warm = min(1.0, (self.num_updates + 1) / max(1, self._update.warmup_updates))
        for group in self.optimizer.param_groups:
            group["lr"] = self._update.learning_rate * warm
        if trains_policy:
            self.optimizer.step()
        if self.critic is not None:
            torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self._update.max_grad_norm)
            self.critic.optimizer.step()
            self.critic.optimizer.zero_grad(set_to_none=True)
        self.num_updates += 1
        own: dict[str, Metric] = {
            "loss": Mean.of(total),
            "grad_norm": Mean.of(float(norm)),
            "grad_norm/max": Max(float(norm)),
            "updates": Total(1),
            "update/computed_tokens": Total(computed),
            "update/row_tokens": Total(float(cost_K[chosen].sum())),
        }
        return merge(metrics, own)

    def _value_gradients(self, turns: Sequence[Turn], rows: TokenTable) -> Mapping[str, Metric]:
        """Backward pass of the value loss of a micro-batch; nothing without a critic."""
        if self.critic is None:
            return {}
        result = value_loss(self.critic.critic, rows, self.critic.values(turns))
        shared = self.critic.trunk is None
        (result.loss * (self.critic.critic.coefficient if shared else 1.0)).backward()
        return result.metrics

    @torch.no_grad()
    def _check_weights(self) -> None:
        """Raise before broken weights are sampled from or saved over the last good checkpoint."""
        if not bool(torch.stack([torch.isfinite(p).all() for p in self.model.parameters()]).all()):
            raise TrainingError(
                f"the weights are not finite after optimizer step {self.num_updates}; they are not saved. "
                "Resume from the last checkpoint, or start again, with a lower train.learning_rate."
            )

    def _check_finite(self, what: str, value: Tensor) -> None:
        if not bool(torch.isfinite(value)):
            raise TrainingError(
                f"the {what} is {float(value.detach())} at optimizer step {self.num_updates}; the weights were not changed by it. "
                "Resume from the last checkpoint with a lower train.learning_rate or a tighter trust region."
            )


def _part_weights(value_weight_N: FloatArray | None, weight_N: FloatArray) -> FloatArray | None:
    """The critic's weights on the tokens of one optimizer step, summing to 1 again."""
    if value_weight_N is None:
        return None
    part = np.where(weight_N > 0, value_weight_N, 0.0)
    return part / max(float(part.sum()), 1e-12)
