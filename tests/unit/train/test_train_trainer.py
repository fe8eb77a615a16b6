"""The trainer: gradients equal the formula, whatever the cut into micro-batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import keel.train.trainer as trainer_file
from keel.errors import TrainingError
from keel.metrics import Metric, values
from keel.objective.method import Credit, Scores, assign_credit, resolve
from keel.tokens import TokenTable
from keel.train.trainer import Trainer
from keel.types import Group, Turn, TurnIndex
from policies import UPDATE, SmallAgent, hub_logprobs, informative_groups, small_agent

CLONED = 40
GRPO = "grpo(kl=0)"


def turns_of(groups: Sequence[Group]) -> list[Turn]:
    return [turn for g in groups for t in g.trajectories for turn in t.turns]


class Setup:
    """A trainer with a batch, ready to update."""

    def __init__(self, expression: str, **changes: Any) -> None:
        self.method = resolve(expression)
        self.agent: SmallAgent = small_agent(cloned=CLONED)
        self.groups = informative_groups(self.agent, expression)
        self.trainer = Trainer(
            self.agent.model, replace(UPDATE, **changes), needs_reference=self.method.needs.reference
        )
        self.index = TurnIndex.of(self.groups)

    def drift(self) -> None:
        """Move the policy away from the one that sampled, so that ratios are not 1."""
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for p in self.agent.model.parameters():
                p.add_(0.01 * torch.randn(p.shape, generator=generator))

    def run(self, step: int = 1) -> tuple[dict[str, Metric], Credit, Scores]:
        scores = self.trainer.score(self.groups, self.method.needs)
        credit = assign_credit(self.method, self.index, scores)
        return self.trainer.update(self.groups, credit, scores, self.method, step), credit, scores

    def gradients(self) -> dict[str, torch.Tensor]:
        return {n: p.grad.clone() for n, p in self.agent.model.named_parameters() if p.grad is not None}

    def weights(self) -> dict[str, torch.Tensor]:
        return {n: p.detach().clone() for n, p in self.agent.model.named_parameters()}


def assert_close(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 2e-4) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        scale = float(tensor.abs().max())
        assert float((got[name] - tensor).abs().max()) <= tolerance * scale + 1e-9, name


def test_first_gradient_is_the_policy_gradient_of_the_hugging_face_model() -> None:
    """On policy every ratio is 1, so the gradient is `-sum w A grad log pi`."""
    setup = Setup(GRPO)
    model = setup.agent.model
    assert isinstance(model, PreTrainedModel)
    scores = setup.trainer.score(setup.groups, setup.method.needs)
    credit = assign_credit(setup.method, setup.index, scores)
    factor_N = credit.weight_N * credit.advantage_N
    loss = torch.zeros(())
    start = 0
    for turn in turns_of(setup.groups):
        end = start + len(turn.action_ids)
        logprobs = hub_logprobs(model, turn.prompt_ids, turn.action_ids)
        loss = loss - (torch.from_numpy(factor_N[start:end]).float() * logprobs).sum()
        start = end
    loss.backward()
    expected = setup.gradients()
    setup.trainer.update(setup.groups, credit, scores, setup.method, 1)
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-4
    assert_close(setup.gradients(), expected)


@pytest.mark.parametrize(
    "expression",
    [
        GRPO,
        "grpo(kl=0.05, entropy=0.01)",
        "sampo(kl=0.01, cold_start=0)",
        "sampo(unit='trajectory', kl=0.01, cold_start=0)",
        "gspo(kl=0)",
        "sapo(kl=0)",
        "cispo(kl=0)",
        "dr_grpo(kl=0)",
        "grpo_sm(kl=0)",
        "gigpo(kl=0)",
        "clip_cov()",
    ],
)
def test_micro_batches_cannot_change_loss_or_gradient(expression: str) -> None:
    results = []
    for budget in (1 << 20, 150, 1):
        setup = Setup(expression, micro_batch_tokens=budget)
        setup.drift()
        metrics, _, _ = setup.run()
        results.append((values(metrics), setup.gradients()))
    for numbers, gradients in results[1:]:
        assert numbers["loss"] == pytest.approx(results[0][0]["loss"], rel=1e-4, abs=1e-6)
        assert numbers["kl/old"] == pytest.approx(results[0][0]["kl/old"], rel=1e-4)
        assert numbers["ratio/max"] == pytest.approx(results[0][0]["ratio/max"], rel=1e-4)
        assert_close(gradients, results[0][1])
    assert results[0][0]["ratio/max"] > 1.001


def spy_on_tables(monkeypatch: pytest.MonkeyPatch) -> list[TokenTable]:
    """The tables that reach the loss, in order."""
    seen: list[TokenTable] = []
    original = trainer_file.policy_loss

    def spy(method: Any, table: TokenTable, *rest: Any) -> Any:
        seen.append(table)
        return original(method, table, *rest)

    monkeypatch.setattr(trainer_file, "policy_loss", spy)
    return seen


def test_micro_batches_stay_within_their_budget_and_cut_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy_on_tables(monkeypatch)
    setup = Setup(GRPO, micro_batch_tokens=150)
    setup.run()
    turns = turns_of(setup.groups)
    assert len(seen) > 3
    for table in seen:
        numbers = sorted(set(table.turn_N.tolist()))
        assert sum(len(turns[k].prompt_ids) + len(turns[k].action_ids) for k in numbers) <= 150
        assert len(table.turn_N) == sum(len(turns[k].action_ids) for k in numbers)


@pytest.mark.parametrize("expression", [GRPO, "sampo(kl=0, cold_start=0)", "grpo_st(kl=0)"])
def test_weights_of_each_optimizer_step_sum_to_one(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy_on_tables(monkeypatch)
    setup = Setup(expression, micro_batch_tokens=100, minibatches=2, epochs=2)
    steps: list[int] = []
    original = setup.trainer.optimizer.step
    monkeypatch.setattr(setup.trainer.optimizer, "step", lambda: (steps.append(len(seen)), original())[1])
    metrics, _, _ = setup.run()
    assert values(metrics)["updates"] == len(steps) == setup.trainer.num_updates == 4
    bounds = [0, *steps]
    for low, high in pairwise(bounds):
        assert sum(float(t.weight_N.double().sum()) for t in seen[low:high]) == pytest.approx(1.0, abs=1e-5)


def test_every_epoch_trains_every_token_once_in_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy_on_tables(monkeypatch)
    setup = Setup(GRPO, minibatches=2, epochs=3)
    setup.run()
    assert len(seen) == 6
    group_K = setup.index.group_K
    halves = []
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        groups = [set(group_K[table.turn_N.numpy()].tolist()) for table in (first, second)]
        assert not groups[0] & groups[1]
        assert len(first.turn_N) + len(second.turn_N) == setup.index.num_tokens
        halves.append(frozenset(groups[0]))
    assert len(set(halves)) > 1  # the order is drawn anew


def test_more_minibatches_than_groups_is_one_step_a_group() -> None:
    setup = Setup(GRPO, minibatches=64)
    numbers = values(setup.run()[0])
    assert numbers["updates"] + numbers["updates/empty"] == len(setup.groups)
    assert numbers["updates"] == setup.trainer.num_updates == 3


def test_the_trained_tokens_are_the_sampled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy_on_tables(monkeypatch)
    setup = Setup(GRPO)
    _, credit, _ = setup.run()
    turns = turns_of(setup.groups)
    sampled = np.concatenate([t.logprobs for t in turns])
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0].behaviour_N.numpy(), sampled)
    np.testing.assert_array_equal(seen[0].old_N.numpy(), sampled)
    np.testing.assert_allclose(seen[0].advantage_N.numpy(), credit.advantage_N.astype(np.float32))


def test_engine_and_trainer_agree_so_the_first_ratio_is_one() -> None:
    metrics, _, _ = Setup(GRPO).run()
    numbers = values(metrics)
    assert numbers["ratio/max"] == pytest.approx(1.0, abs=1e-4)
    assert numbers["ratio/mean"] == pytest.approx(1.0, abs=1e-5)
    assert numbers["kl/old"] == pytest.approx(0.0, abs=1e-7)
    assert numbers["clip_fraction"] == 0.0


def test_recomputed_old_logprobs_are_the_trainers_own() -> None:
    setup = Setup(GRPO, recompute_old=True, micro_batch_tokens=120)
    setup.drift()
    scores = setup.trainer.score(setup.groups, setup.method.needs)
    model = setup.agent.model
    assert isinstance(model, PreTrainedModel)
    with torch.no_grad():
        expected = torch.cat([hub_logprobs(model, t.prompt_ids, t.action_ids) for t in turns_of(setup.groups)])
    assert scores.old_N is not None
    np.testing.assert_allclose(scores.old_N, expected.numpy(), atol=3e-5)
    metrics, _, _ = setup.run()
    assert values(metrics)["ratio/max"] == pytest.approx(1.0, abs=1e-4)


def test_sampled_old_logprobs_stay_the_engines_even_when_entropies_are_computed() -> None:
    setup = Setup("empg(kl=0)")
    setup.drift()
    scores = setup.trainer.score(setup.groups, setup.method.needs)
    assert scores.old_N is not None and scores.entropy_N is not None
    np.testing.assert_array_equal(scores.old_N, np.concatenate([t.logprobs for t in turns_of(setup.groups)]))
    assert float(scores.entropy_N.min()) >= 0


def test_reference_is_the_policy_at_the_start_and_stays() -> None:
    setup = Setup("grpo(kl=0.1)", micro_batch_tokens=200)
    assert setup.trainer.reference is not None
    start = setup.weights()
    scores = setup.trainer.score(setup.groups, setup.method.needs)
    assert scores.reference_N is not None and scores.old_N is not None
    np.testing.assert_allclose(scores.reference_N, scores.old_N, atol=3e-5)
    numbers = values(setup.run()[0])
    assert numbers["kl/reference"] == pytest.approx(0.0, abs=1e-7)
    for name, p in setup.trainer.reference.named_parameters():
        assert torch.equal(p, start[name]) and not p.requires_grad
    later = values(setup.run(step=2)[0])
    assert later["kl/reference"] > 1e-7


def test_no_reference_is_kept_when_no_penalty_asks() -> None:
    setup = Setup(GRPO)
    assert setup.trainer.reference is None
    assert setup.trainer.score(setup.groups, setup.method.needs).reference_N is None


def test_temperature_of_the_rollout_is_the_trainers() -> None:
    setup = Setup(GRPO)
    hot = small_agent(cloned=CLONED)
    hot.player.sampling = replace(hot.player.sampling, temperature=1.5)
    groups = informative_groups(hot, GRPO)
    trainer = Trainer(setup.agent.model, replace(UPDATE, temperature=1.5, recompute_old=True), needs_reference=False)
    scores = trainer.score(groups, setup.method.needs)
    assert scores.old_N is not None
    np.testing.assert_allclose(scores.old_N, np.concatenate([t.logprobs for t in turns_of(groups)]), atol=3e-5)


def test_adam_moves_the_weights_by_the_learning_rate_after_warm_up() -> None:
    setup = Setup(GRPO, learning_rate=1e-3, warmup_updates=4)
    rates = []
    for step in range(1, 6):
        before = setup.weights()
        setup.run(step)
        change = max(float((setup.weights()[n] - before[n]).abs().max()) for n in before)
        rates.append(setup.trainer.optimizer.param_groups[0]["lr"])
        if step == 1:
            assert change == pytest.approx(0.25e-3, rel=0.05)  # Adam's first step is the learning rate in every weight
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3])


def test_large_gradients_are_scaled_to_the_bound() -> None:
    free, bound = Setup(GRPO), Setup(GRPO, max_grad_norm=0.01)
    norm = values(free.run()[0])["grad_norm"]
    assert values(bound.run()[0])["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > 0.01

    def length(setup: Setup) -> float:
        return math.sqrt(sum(float(g.double().square().sum()) for g in setup.gradients().values()))

    assert length(free) == pytest.approx(norm, rel=1e-4)
    assert length(bound) == pytest.approx(0.01, rel=1e-3)


def assert_untouched(setup: Setup, before: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(p, before[n]) for n, p in setup.agent.model.named_parameters())
    assert setup.trainer.num_updates == 0
    assert not setup.trainer.optimizer.state


def test_a_gradient_that_is_not_finite_stops_before_the_weights_change() -> None:
    setup = Setup(GRPO)
    scores = setup.trainer.score(setup.groups, setup.method.needs)
    credit = assign_credit(setup.method, setup.index, scores)
    before = setup.weights()
    with pytest.raises(TrainingError, match="gradient norm is inf at optimizer step 0; the weights were not changed"):
        huge = replace(credit, advantage_N=credit.advantage_N * 1e36)
        setup.trainer.update(setup.groups, huge, scores, setup.method, 1)
    assert_untouched(setup, before)


def test_a_loss_that_is_not_finite_stops_before_the_weights_change() -> None:
    setup = Setup(GRPO)
    scores = setup.trainer.score(setup.groups, setup.method.needs)
    credit = assign_credit(setup.method, setup.index, scores)
    with torch.no_grad():
        setup.agent.model.get_parameter("model.norm.weight")[0] = float("inf")
    before = setup.weights()
    with pytest.raises(TrainingError, match="the step is not taken"):
        setup.trainer.update(setup.groups, credit, scores, setup.method, 1)
    assert_untouched(setup, before)


def test_a_minibatch_without_credit_is_no_step() -> None:
    setup = Setup(GRPO)
    scores = setup.trainer.score(setup.groups, setup.method.needs)
    credit = assign_credit(setup.method, setup.index, scores)
    before = setup.weights()
    nothing = replace(credit, advantage_N=np.zeros_like(credit.advantage_N))
    metrics = setup.trainer.update(setup.groups, nothing, scores, setup.method, 1)
    assert values(metrics) == {"updates/empty": 1}
    assert_untouched(setup, before)


def test_recomputing_layers_changes_no_gradient() -> None:
    plain, saving = Setup("grpo(kl=0, entropy=0.01)"), Setup("grpo(kl=0, entropy=0.01)", save_memory=True)
    plain.run()
    saving.run()
    assert_close(saving.gradients(), plain.gradients(), 1e-5)


def test_shared_prefixes_are_not_computed_twice() -> None:
    numbers = values(Setup(GRPO).run()[0])
    assert numbers["update/computed_tokens"] < 0.7 * numbers["update/row_tokens"]


def test_updating_twice_from_the_same_start_is_bit_for_bit_equal() -> None:
    first, again = (
        Setup("sampo(kl=0.01, cold_start=0)", minibatches=2),
        Setup("sampo(kl=0.01, cold_start=0)", minibatches=2),
    )
    for setup in (first, again):
        setup.run(1)
        setup.run(2)
    a, b = first.weights(), again.weights()
    assert all(torch.equal(a[n], b[n]) for n in a)


def test_weights_that_are_not_finite_stop_the_training_before_they_are_saved() -> None:
    with pytest.raises(TrainingError, match="weights are not finite after optimizer step 1"):
        Setup(GRPO, learning_rate=float("inf"), minibatches=1).run()
