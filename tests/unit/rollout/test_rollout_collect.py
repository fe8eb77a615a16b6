"""Groups of siblings: same task and start, rounds, filters, failures."""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from typing import Any

import pytest

import keel.rollout.local as local
from corridor import CorridorSettings
from keel.errors import DataError
from keel.objective.method import Method, resolve
from keel.rollout.collect import EnvPool, Rollout, collect
from keel.types import End
from policies import SmallAgent, small_agent

CLONED = 40
SAMPO = "sampo(max_tries=3, cold_start=0, kl=0)"


def rollout(
    agent: SmallAgent, method: str | Method = SAMPO, *, groups: int = 6, size: int = 4, step: int = 1, seed: int = 7
) -> Rollout:
    chosen = resolve(method) if isinstance(method, str) else method
    pool = EnvPool(agent.environment)
    return collect(
        agent.player, pool, agent.environment, chosen, num_groups=groups, group_size=size, step=step, seed=seed
    )


def test_siblings_share_task_seed_and_first_state_but_not_their_samples() -> None:
    result = rollout(small_agent(cloned=CLONED), "grpo(kl=0)")
    assert len(result.sampled) == 6 and result.rounds == 1
    for group in result.sampled:
        assert len(group.trajectories) == 4
        assert {t.task_id for t in group.trajectories} == {group.task_id}
        assert len({t.seed for t in group.trajectories}) == 1
        assert len({t.turns[0].state for t in group.trajectories}) == 1
    texts = [tuple(turn.response for turn in t.turns) for g in result.sampled for t in g.trajectories]
    assert len(set(texts)) > 6
    assert len({g.task_id for g in result.sampled}) == 6


def test_steps_and_seeds_draw_other_tasks_and_the_same_ones_again() -> None:
    agent = small_agent(cloned=CLONED)

    def tasks(step: int, seed: int) -> list[str]:
        return [g.task_id for g in rollout(agent, "grpo(kl=0)", step=step, seed=seed).sampled]

    first = tasks(1, 7)
    assert first == tasks(1, 7)
    assert not set(first) & set(tasks(2, 7))
    assert not set(first) & set(tasks(1, 8))


def test_filtered_groups_are_replaced_by_fresh_ones_and_counted() -> None:
    result = rollout(small_agent(cloned=CLONED), groups=8)
    assert result.rounds > 1
    assert len(result.kept) + sum(result.dropped.values()) == len(result.sampled)
    assert set(result.dropped) <= {"solved by all", "failed by all"}
    assert len({g.task_id for g in result.sampled}) == len(result.sampled)
    for group in result.kept:
        assert len({t.parts()["env"] for t in group.trajectories}) == 2


def test_surplus_informative_groups_are_kept() -> None:
    agent = small_agent(cloned=CLONED)
    wanted = 5
    results = [rollout(agent, groups=wanted, step=s, size=6) for s in range(1, 9)]
    assert any(len(r.kept) > wanted for r in results)
    for r in results:
        informative = [g for g in r.sampled if len({t.parts()["env"] for t in g.trajectories}) == 2]
        assert [g.task_id for g in r.kept] == [g.task_id for g in informative]


def test_rounds_are_bounded_and_nothing_kept_is_legal() -> None:
    result = rollout(small_agent(), groups=3)  # never solves anything
    assert (result.rounds, result.kept, dict(result.dropped)) == (3, (), {"failed by all": 9})


def test_backfill_takes_refused_groups() -> None:
    result = rollout(small_agent(), "sampo(released=True, max_tries=2, cold_start=0, kl=0)", groups=3)
    assert len(result.kept) == 3


def test_cold_start_keeps_every_group() -> None:
    result = rollout(small_agent(), "sampo(cold_start=2, kl=0)", groups=3, step=2)
    assert len(result.kept) == 3 and result.rounds == 1
    assert len(rollout(small_agent(), "sampo(cold_start=2, kl=0)", groups=3, step=3).kept) == 0


def test_later_rounds_ask_for_what_is_missing_only() -> None:
    agent = small_agent(cloned=CLONED)
    for step in range(1, 6):
        result = rollout(agent, replace(resolve(SAMPO)), groups=8, step=step)
        assert len(result.sampled) <= 8 * result.rounds


def test_a_first_round_asks_for_as_many_groups_as_the_method_oversamples() -> None:
    method = resolve("grpo(kl=0)")
    method = replace(method, sampling=replace(method.sampling, oversample=6.0))
    assert len(rollout(small_agent(), method, groups=2, size=2).sampled) == 12


def test_crashed_members_are_data_counted_by_cause_and_not_trained_on() -> None:
    agent = small_agent(CorridorSettings(crash_every=3, doors=3), cloned=CLONED)
    result = rollout(agent, "grpo(kl=0)", groups=8)
    failed = [t for g in result.sampled for t in g.trajectories if t.end is End.ERROR]
    assert failed
    assert dict(result.errors) == {"RuntimeError: the corridor caved in": len(failed)}
    trained = [t for g in result.kept for t in g.trajectories]
    assert trained and not any(t.end is End.ERROR for t in trained)


def test_when_every_member_crashes_the_groups_are_dropped_with_a_reason() -> None:
    agent = small_agent(CorridorSettings(crash_every=1, doors=4), cloned=CLONED)
    result = rollout(agent, groups=2)
    assert result.kept == ()
    assert dict(result.dropped) == {"no usable trajectory": 6}
    assert result.errors.total() == 24


def test_an_environment_that_is_not_seeded_per_group_is_found_out() -> None:
    agent = small_agent(CorridorSettings(unseeded=True), cloned=CLONED)
    with pytest.raises(DataError, match="the environment must be seeded per group"):
        rollout(agent, "grpo(kl=0)")


def test_counts_are_over_everything_that_was_sampled() -> None:
    result = rollout(small_agent(cloned=CLONED))
    trajectories = [t for g in result.sampled for t in g.trajectories]
    assert result.num_turns == sum(len(t.turns) for t in trajectories)
    assert result.num_tokens == sum(len(turn.action_ids) for t in trajectories for turn in t.turns)


@pytest.mark.parametrize("where", ["environment", "engine"])
def test_an_interrupt_leaves_nothing_running(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_agent(cloned=CLONED)
    calls = 0

    def interrupt_in(owner: object, name: str) -> None:
        original = vars(owner)[name]

        def interrupted(*arguments: Any, **named: Any) -> object:
            nonlocal calls
            calls += 1
            if calls == 10:
                raise KeyboardInterrupt
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, interrupted)

    if where == "environment":
        interrupt_in(type(agent.environment.make_env()), "step")
    else:
        interrupt_in(local, "forward")
    with caplog.at_level(logging.ERROR), pytest.raises(KeyboardInterrupt):
        rollout(agent)
    again = rollout(agent)
    fresh = rollout(small_agent(cloned=CLONED))
    assert [g.task_id for g in again.kept] == [g.task_id for g in fresh.kept]
    del agent
    gc.collect()
    assert [r.getMessage() for r in caplog.records] == []
