"""The causal probes, in real Sokoban levels with scripted policies."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import re
from collections.abc import Sequence

import numpy as np
import pytest

from keel.credit.adapters.sokoban import SokobanAdapter
from keel.credit.attribution import Attribution, judge
from keel.credit.graph import Graph
from keel.credit.progress import Episode
from keel.credit.purify import purify
from keel.credit.pushes import PushGraph
from keel.credit.seed import play
from keel.envs.base import Record
from keel.envs.sokoban import SokobanSettings, load
from keel.envs.sokoban.engine import Snapshot, SokobanEnv
from keel.envs.sokoban.room import MOVES, advance
from keel.envs.sokoban.solver import solve
from keel.errors import DataError, SettingError
from keel.study.probe import (
    Continue,
    Decision,
    audit,
    bootstrap,
    context_noise,
    pick_points,
    rank_correlation,
    replay,
    suppress_actions,
    unreasonable_turns,
    wilson,
)
from keel.study.probe_view import (
    audit_figure,
    audit_table,
    noise_figure,
    noise_table,
    suppression_figure,
    suppression_table,
)
from keel.types import End, Task, TurnIndex

ENVIRONMENT = load(SokobanSettings(max_turns=12))
ADAPTER = SokobanAdapter()


def level() -> Task:
    """A level whose optimal solution is long enough to be interrupted."""
    tasks = (ENVIRONMENT.sample_task("train", seed) for seed in range(100))
    return next(task for task in tasks if len(ENVIRONMENT.demonstrate(task, 0)) == 6)


TASK = level()
PLAN = [turn.action for turn in ENVIRONMENT.demonstrate(TASK, 0)]


def graph() -> Graph:
    episode = play(ENVIRONMENT, TASK, PLAN)
    assert episode is not None
    return PushGraph().union(purify(ADAPTER.trace(episode)))[0]


class Echo:
    """Half of the time does again what the last two visible turns did, otherwise moves optimally: context noise hurts it."""

    def __init__(self, env: SokobanEnv, echo: float = 0.5) -> None:
        self.env = env
        self.echo = echo

    def __call__(self, snapshot: object, history: Sequence[Record], forbidden: str | None, seed: int) -> bool:
        rng = random.Random(seed)
        self.env.restore(snapshot)
        assert isinstance(snapshot, Snapshot)
        state, shown, first = snapshot.state, [record.action for record in history], True
        while True:
            visible = shown[-2:]
            action = rng.choice(visible) if visible and rng.random() < self.echo else (solve(state).moves or MOVES)[0]
            if first and action == forbidden:
                action = rng.choice([move for move in MOVES if move != forbidden])
            first = False
            step = self.env.step(action)
            shown.append(action)
            state = advance(state, action).state
            if step.terminated or step.truncated:
                return step.success


def decisions() -> list[Decision]:
    return replay(ENVIRONMENT.make_env(), TASK, 0, PLAN)


def test_replay_keeps_every_point_and_its_past() -> None:
    found = decisions()
    assert [d.step for d in found] == [1, 2, 3, 4, 5, 6]
    assert [record.action for record in found[3].history] == PLAN[:3]
    assert found[0].history == () and found[0].action == PLAN[0]
    env = ENVIRONMENT.make_env()
    env.restore(found[-1].snapshot)
    assert env.step(PLAN[-1]).success


def test_replay_of_another_episode_is_named() -> None:
    with pytest.raises(DataError, match="ended at step 6 of 7 recorded actions"):
        replay(ENVIRONMENT.make_env(), TASK, 0, [*PLAN, "up"])


def test_noise_turns_are_real_unreasonable_and_leave_the_environment_alone() -> None:
    env = ENVIRONMENT.make_env()
    start = decisions()[2]
    noise = unreasonable_turns(env, TASK, start, ADAPTER, graph(), 4, seed=0)
    assert len(noise) == 4
    assert env.snapshot() == start.snapshot
    states = [start.observation.state]
    for record in noise:
        assert isinstance(states[-1], bytes)
        states.append(advance(states[-1], record.action).state)
    valid = [before != after for before, after in itertools.pairwise(states)]
    episode = Episode("t", False, states[:-1], states[1:], [r.action for r in noise], valid)
    rea, _ = judge(ADAPTER.trace(episode), graph(), redundant_is_reasonable=True, exploration_is_reasonable=False)
    assert not any(rea)
    assert noise == unreasonable_turns(env, TASK, start, ADAPTER, graph(), 4, seed=0)


def test_context_noise_lowers_the_success_of_a_policy_that_echoes() -> None:
    start = decisions()[1]
    noise = unreasonable_turns(ENVIRONMENT.make_env(), TASK, start, ADAPTER, graph(), 4, seed=0)
    result = context_noise(Echo(ENVIRONMENT.make_env(), echo=0.7), start, noise, trials=200, seed=0)
    assert result.clean.value > result.noisy.value
    assert result.difference.high < 0
    assert result.difference.value == pytest.approx(result.noisy.value - result.clean.value)


def test_noise_before_everything_is_not_seen_by_a_short_window() -> None:
    start = decisions()[2]
    noise = unreasonable_turns(ENVIRONMENT.make_env(), TASK, start, ADAPTER, graph(), 4, seed=0)
    result = context_noise(Echo(ENVIRONMENT.make_env()), start, noise, trials=40, where="earliest")
    assert result.clean == result.noisy and result.difference.value == 0


def test_noise_comes_last_or_first_in_what_is_shown() -> None:
    start, noise, seen = decisions()[2], [Record("room", "up"), Record("room", "down")], []

    def play_on(snapshot: object, history: Sequence[Record], forbidden: str | None, seed: int) -> bool:
        seen.append((snapshot, tuple(history), forbidden, seed))
        return True

    context_noise(play_on, start, noise, trials=1, seed=5)
    context_noise(play_on, start, noise, trials=1, seed=5, where="earliest")
    shown = [start.history, (*start.history, *noise), start.history, (*noise, *start.history)]
    assert seen == [(start.snapshot, history, None, 5) for history in shown]


def test_context_noise_does_not_touch_a_policy_that_ignores_its_history() -> None:
    start = decisions()[2]
    noise = [Record("room", "up")] * 4
    result = context_noise(Echo(ENVIRONMENT.make_env(), echo=0.0), start, noise, trials=20)
    assert (result.clean.value, result.noisy.value) == (1.0, 1.0)
    assert result.difference.low == result.difference.high == 0


class Stubborn(Echo):
    """Makes one fixed wrong move wherever it has not been stopped yet, and plays well once it was forbidden something."""

    def __call__(self, snapshot: object, history: Sequence[Record], forbidden: str | None, seed: int) -> bool:
        if forbidden is None:
            return False
        return Echo(self.env, echo=0.1)(snapshot, (), forbidden, seed)


def lost_episode() -> tuple[list[Decision], Attribution]:
    """The player runs into a wall until there is no time left."""
    env = ENVIRONMENT.make_env()
    wall = next(move for move in MOVES if not advance(TASK.data, move).moved)  # type: ignore[arg-type]
    points = replay(env, TASK, 0, [wall] * 12)
    num = len(points)
    drift = np.arange(num, 0, -1)
    return points, Attribution(np.zeros(num, dtype=bool), np.zeros(num, dtype=bool), drift, np.array([True]))


def test_points_are_spread_over_the_drift() -> None:
    points = pick_points(*lost_episode(), count=4)
    assert [(decision.step, drift) for decision, drift in points] == [(1, 12), (5, 8), (8, 5), (12, 1)]
    advanced = lost_episode()[1]
    all_good = Attribution(advanced.reasonable_K, np.ones(12, dtype=bool), advanced.drift_K, advanced.known_G)
    assert pick_points(lost_episode()[0], all_good) == []
    with pytest.raises(DataError, match="11 decisions but 12 labels"):
        pick_points(lost_episode()[0][1:], advanced)


def test_suppressing_early_actions_recovers_more() -> None:
    points = pick_points(*lost_episode(), count=4)
    result = suppress_actions(Stubborn(ENVIRONMENT.make_env()), points, trials=60, seed=3)
    rates = [row.rate.value for row in result.rows]
    assert rates[0] > 0.5 and rates[-1] == 0
    assert rates == sorted(rates, reverse=True)
    assert all(row.control.value == 0 for row in result.rows)
    assert result.trend is not None and result.trend.value > 0.9 and result.trend.low > 0


def test_the_forbidden_action_is_the_recorded_one() -> None:
    seen: list[str | None] = []

    def play_on(snapshot: object, history: Sequence[Record], forbidden: str | None, seed: int) -> bool:
        seen.append(forbidden)
        return False

    start = decisions()[0]
    result = suppress_actions(play_on, [(start, 3)], trials=2)
    assert seen == [None, None, start.action, start.action]
    assert result.trend is None


def test_workers_do_not_change_the_result() -> None:
    points = pick_points(*lost_episode(), count=3)

    def fresh(snapshot: object, history: Sequence[Record], forbidden: str | None, seed: int) -> bool:
        return Stubborn(ENVIRONMENT.make_env())(snapshot, history, forbidden, seed)

    play_on: Continue = fresh
    assert suppress_actions(play_on, points, trials=10) == suppress_actions(play_on, points, trials=10, workers=4)


def test_wilson_equals_the_textbook() -> None:
    # 41 of 50: Newcombe's formula by hand.
    low, high = wilson(41, 50)
    p, n, z = 0.82, 50, 1.959964
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert (low, high) == pytest.approx((middle - half, middle + half))
    assert (low, high) == pytest.approx((0.692, 0.902), abs=1e-3)
    assert wilson(0, 10)[0] == 0 and wilson(10, 10)[1] == pytest.approx(1)
    with pytest.raises(SettingError, match="3 successes in 2 trials"):
        wilson(3, 2)


def test_rank_correlation_with_ties() -> None:
    assert rank_correlation(np.array([4.0, 11, 23, 47]), np.array([0, 0.1, 0.16, 0.24])) == pytest.approx(1)
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    # Ranks (1, 2.5, 2.5, 4) against (1, 2, 3, 4).
    assert rank_correlation(np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 3, 4])) == pytest.approx(
        4.5 / math.sqrt(4.5 * 5)
    )
    assert math.isnan(rank_correlation(np.ones(3), np.arange(3.0)))


def test_bootstrap_interval_of_a_mean() -> None:
    data = np.random.default_rng(0).normal(size=400)
    found = bootstrap(lambda rng: float(rng.choice(data, 400).mean()), float(data.mean()), seed=1)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 / 20, rel=0.15)


def labelled() -> tuple[TurnIndex, Attribution]:
    """Two successes with 1 of 4 and 2 of 4 unreasonable turns, one failure with 3 of 4 stagnant ones, one unknown failure."""
    trajectory_K = np.repeat(np.arange(4), 4)
    index = TurnIndex(
        task_id_G=("t", "u"),
        group_J=np.array([0, 0, 0, 1]),
        success_J=np.array([True, True, False, False]),
        end_J=(End.TERMINATED,) * 4,
        trajectory_K=trajectory_K,
        position_K=np.tile(np.arange(4), 4),
        num_tokens_K=np.ones(16, dtype=np.int64),
        valid_K=np.ones(16, dtype=bool),
        state_K=(0,) * 16,
        next_state_K=(0,) * 16,
        observation_K=("",) * 16,
        action_K=("",) * 16,
        rewards={"env": np.zeros(16)},
    )
    reasonable = np.array([0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    advancing = np.array([0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
    return index, Attribution(reasonable, advancing, np.zeros(16, dtype=np.int64), np.array([True, False]))


def test_audit_shares_and_intervals() -> None:
    row = audit(7, *labelled())
    assert row.step == 7
    assert row.unreasonable_in_success is not None and row.stagnant_in_failure is not None
    assert row.unreasonable_in_success.value == 3 / 8
    assert (row.unreasonable_in_success.low, row.unreasonable_in_success.high) == (0.25, 0.5)
    assert row.stagnant_in_failure.value == 3 / 4


def test_audit_without_judged_trajectories() -> None:
    index, labels = labelled()
    nothing = Attribution(labels.reasonable_K, labels.advancing_K, labels.drift_K, np.array([False, False]))
    row = audit(0, index, nothing)
    assert row.unreasonable_in_success is None and row.stagnant_in_failure is None
    assert "| 0 | - | - |" in audit_table([row])


def test_no_action_breaks_a_table_or_writes_markup_into_a_figure() -> None:
    found = suppress_actions(Stubborn(ENVIRONMENT.make_env()), pick_points(*lost_episode()), trials=2)
    hostile = "search[a|b \\\\| <b>c</b>]\nd"
    rows = tuple(dataclasses.replace(row, action=hostile) for row in found.rows)
    found = dataclasses.replace(found, rows=rows)
    lines = suppression_table(found).partition("\n\n")[0].splitlines()
    assert len(lines) == 2 + len(rows)
    assert {len(re.split(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines} == {8}  # bars with an even number of \ before
    assert r"search[a\|b \\\\\| <b>c</b>] d" in lines[-1]
    assert all("<b>" not in text for text in suppression_figure(found).data[1].text)


def test_tables_and_figures_show_the_numbers() -> None:
    start = decisions()[1]
    noise = [Record("room", "up")] * 4
    noisy = context_noise(Echo(ENVIRONMENT.make_env()), start, noise, trials=10)
    table = noise_table(noisy)
    assert f"| as it was | {noisy.clean.successes}/10 | {noisy.clean} |" in table
    bars = noise_figure(noisy).data[0]
    assert list(bars.y) == [noisy.clean.value, noisy.noisy.value]
    low, high = noisy.clean.interval
    assert bars.error_y.array[0] == pytest.approx(high - noisy.clean.value)
    assert bars.error_y.arrayminus[0] == pytest.approx(noisy.clean.value - low)

    suppressed = suppress_actions(Stubborn(ENVIRONMENT.make_env()), pick_points(*lost_episode()), trials=10)
    table = suppression_table(suppressed)
    assert all(f"| {row.step} | {row.action} | {row.drift} |" in table for row in suppressed.rows)
    assert "rank correlation" in table
    figure = suppression_figure(suppressed)
    assert list(figure.data[1].x) == [1, 5, 8, 12]
    assert list(figure.data[1].y) == [row.rate.value for row in suppressed.rows[::-1]]

    rows = [audit(step, *labelled()) for step in (0, 5)]
    assert "37.5% [25.0%, 50.0%]" in audit_table(rows)
    assert list(audit_figure(rows).data[0].x) == [0, 5]


def test_wrong_settings_are_named() -> None:
    start = decisions()[0]
    with pytest.raises(SettingError, match="no noise turn was given"):
        context_noise(Echo(ENVIRONMENT.make_env()), start, [])
    with pytest.raises(SettingError, match="where is 'middle'"):
        context_noise(Echo(ENVIRONMENT.make_env()), start, [Record("", "up")], where="middle")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="no action to suppress"):
        suppress_actions(Echo(ENVIRONMENT.make_env()), [])
    with pytest.raises(SettingError, match="trials is 0"):
        suppress_actions(Echo(ENVIRONMENT.make_env()), [(start, 1)], trials=0)
