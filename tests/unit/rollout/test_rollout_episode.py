"""One episode: why it ends, what it records, and failures as data."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
import torch

from corridor import CorridorSettings, load
from keel.rollout.collect import EnvPool, play_tasks
from keel.rollout.engine import Sampling
from keel.rollout.episode import derive_seed, play
from keel.run.evaluate import summarise
from keel.types import End, Finish, Trajectory
from policies import SmallAgent, fused, small_agent

CLONED = 40


def episodes(agent: SmallAgent, count: int = 40, seed: int = 5) -> tuple[Trajectory, ...]:
    tasks = [agent.environment.sample_task("train", i) for i in range(count)]
    return play_tasks(agent.player, EnvPool(agent.environment), tasks, seed)


def test_a_cloned_policy_succeeds_and_fails_by_the_turn_limit() -> None:
    played = episodes(small_agent(CorridorSettings(max_turns=2), cloned=CLONED))
    ends = {t.end for t in played}
    assert ends == {End.TERMINATED, End.TURN_LIMIT}
    for t in played:
        assert t.success == (t.end is End.TERMINATED)
        assert t.parts()["env"] == float(t.success)
        assert t.info == {"passed": 2.0} if t.success else t.info["passed"] < 2.0
        assert len(t.turns) <= 2


def test_a_turn_records_what_was_seen_sampled_and_done() -> None:
    agent = small_agent(cloned=CLONED)
    trajectory = episodes(agent, 1)[0]
    first = trajectory.turns[0]
    task = agent.environment.sample_task("train", 0)
    doors = str(task.data).split()
    assert first.observation == f"door {doors[0]}"
    assert first.state == (tuple(doors), 0)
    shown = agent.tokenizer.decode(first.prompt_ids.tolist())
    assert shown == f"<|im_start|>user\n{first.observation}<|im_end|><|im_start|>assistant\n"
    assert agent.tokenizer.decode(first.action_ids.tolist()) == first.response + "<|im_end|>"
    assert f"<action>{first.action.text}</action>" in first.response
    assert trajectory.seed == derive_seed(5, task.id)
    for a, b in zip(trajectory.turns, trajectory.turns[1:], strict=False):
        assert a.next_state == b.state
        shown = agent.tokenizer.decode(b.prompt_ids.tolist())
        assert f"user\n{a.observation} {a.action.text}\n{b.observation}<|im_end|>" in shown


def test_the_format_penalty_is_a_part_of_its_own() -> None:
    played = episodes(small_agent(), 5)  # an untrained policy writes nonsense
    turns = [turn for t in played for turn in t.turns]
    assert all(not turn.action.valid and turn.rewards == {"env": 0.0, "format": -0.1} for turn in turns)
    valid = [turn for t in episodes(small_agent(cloned=CLONED)) for turn in t.turns if turn.action.valid]
    assert valid and all(turn.rewards["format"] == 0.0 for turn in valid)


def test_four_stop_reasons_are_distinct() -> None:
    cut_turns = small_agent(cloned=CLONED, max_new_tokens=3)
    played = episodes(cut_turns, 10)
    assert {t.end for t in played} == {End.TURN_LIMIT}
    turns = [turn for t in played for turn in t.turns]
    assert {turn.finish for turn in turns} == {Finish.LENGTH}
    assert {turn.action.why for turn in turns} == {"cut at the token limit"}

    budget = episodes(small_agent(cloned=CLONED, max_episode_tokens=9), 40)
    spent = [t for t in budget if t.end is End.TOKEN_LIMIT]
    assert spent
    for t in spent:
        assert t.num_tokens >= 9
        assert t.num_tokens - len(t.turns[-1].action_ids) < 9
        assert not t.success

    overflow = episodes(small_agent(CorridorSettings(padding=300), cloned=CLONED), 3)
    assert [(t.end, t.turns, t.success, t.error) for t in overflow] == [(End.PROMPT_OVERFLOW, (), False, "")] * 3

    ended = episodes(small_agent(cloned=CLONED), 40)
    assert {End.TERMINATED} <= {t.end for t in ended} <= {End.TERMINATED, End.TURN_LIMIT}


def test_a_success_on_the_last_turn_is_terminated_not_turn_limit() -> None:
    played = episodes(small_agent(CorridorSettings(doors=1, max_turns=1, mistakes=0.0), cloned=CLONED), 40)
    assert {(t.end, t.success) for t in played} == {(End.TERMINATED, True), (End.TURN_LIMIT, False)}


def test_a_crash_is_an_error_with_its_cause_and_never_a_reward() -> None:
    agent = small_agent(CorridorSettings(crash_every=1, doors=4), cloned=CLONED)
    for t in episodes(agent, 6):
        assert t.end is End.ERROR
        assert "the corridor caved in" in t.error
        assert "corridor.py" in t.error
        assert not t.success
        assert len(t.turns) == 1  # the turn that crashed has no outcome, so it is not recorded


def test_a_crash_harms_no_neighbour() -> None:
    whole = small_agent(CorridorSettings(doors=3), cloned=CLONED)
    crashing = small_agent(CorridorSettings(doors=3, crash_every=2), cloned=CLONED)
    pool = EnvPool(crashing.environment)
    tasks = [whole.environment.sample_task("train", i) for i in range(8)]
    for task in tasks:  # one environment: its second episode crashes, then a fresh one is made
        seed = derive_seed(1, task.id)
        sane = asyncio.run(play(whole.player, whole.environment.make_env(), task, 0, seed))
        tried = asyncio.run(pool.episode(crashing.player, task, 0, seed))
        if tried.end is not End.ERROR:
            assert [t.action.text for t in tried.turns] == [t.action.text for t in sane.turns]
            assert tried.success == sane.success
    assert len(pool._idle) <= 1


def test_logits_that_are_not_finite_end_the_trajectory_with_an_error() -> None:
    agent = small_agent(cloned=CLONED)
    with torch.no_grad():
        agent.model.get_parameter("model.embed_tokens.weight")[0, 0] = float("inf")
    agent.engine.load(fused(agent.model), version=1)
    played = episodes(agent, 3)
    assert [(t.end, t.success, t.turns) for t in played] == [(End.ERROR, False, ())] * 3
    assert {t.error for t in played} == {"the engine's logits were not finite"}


def test_results_do_not_depend_on_who_else_plays() -> None:
    agent = small_agent(cloned=CLONED)
    tasks = [agent.environment.sample_task("train", i) for i in range(12)]
    together = play_tasks(agent.player, EnvPool(agent.environment), tasks, 9)
    fresh = small_agent(cloned=CLONED)
    for i, task in enumerate(tasks):
        seed = derive_seed(9, "eval", i)
        alone = asyncio.run(play(fresh.player, fresh.environment.make_env(), task, derive_seed(9, task.id), seed))
        assert [t.action_ids.tolist() for t in alone.turns] == [t.action_ids.tolist() for t in together[i].turns]
        assert alone.end is together[i].end


def test_the_seed_reaches_the_sampler() -> None:
    agent = small_agent()
    first, again, other = episodes(agent, 6, 1), episodes(agent, 6, 1), episodes(agent, 6, 2)
    ids = [[t.action_ids.tolist() for j in played for t in j.turns] for played in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


def test_greedy_evaluation_ignores_the_seed() -> None:
    agent = small_agent(cloned=CLONED)
    greedy = Sampling(max_new_tokens=10, stop_ids=agent.player.sampling.stop_ids, temperature=0)
    player = dataclasses.replace(agent.player, sampling=greedy, _parsed={})
    tasks = [agent.environment.sample_task("train", i) for i in range(5)]
    texts = [
        [turn.response for t in play_tasks(player, EnvPool(agent.environment), tasks, seed) for turn in t.turns]
        for seed in (1, 2)
    ]
    assert texts[0] == texts[1]


def test_summary_counts_by_hand() -> None:
    agent = small_agent(cloned=CLONED)
    played = episodes(agent, 30)
    result = summarise(played, "train")
    assert result.count == 30
    assert result.successes == sum(t.success for t in played)
    assert result.success == result.successes / 30
    assert sum(result.ends.values()) == 30
    assert sum(n for _, n in result.families.values()) == 30
    assert sum(w for w, _ in result.families.values()) == result.successes
    assert set(result.families) == {"low", "high"}
    assert result.mean_return == pytest.approx(result.success)
    assert result.num_turns == sum(len(t.turns) for t in played)
    assert result.sampled_tokens == sum(t.num_tokens for t in played)
    assert result.low < result.success < result.high
    assert "return" in result.record() and "mean_return" not in result.record()


def test_an_evaluation_says_why_episodes_failed() -> None:
    played = episodes(small_agent(CorridorSettings(crash_every=2, doors=4), cloned=CLONED), 6)
    result = summarise(played, "train")
    cause = "RuntimeError: the corridor caved in"
    assert result.causes == {cause: 3}
    assert result.failures() == f"3 of 6 episodes failed, counted as not solved: 3 times {cause}"
    assert summarise([t for t in played if t.end is not End.ERROR], "train").failures() == ""


def test_failures_are_counted_in_an_evaluation() -> None:
    agent = small_agent(CorridorSettings(crash_every=1, doors=4), cloned=CLONED)
    result = summarise(episodes(agent, 6), "train")
    assert result.errors == 6
    assert result.ends == {"error": 6}


def test_derived_seeds_tell_parts_apart() -> None:
    assert derive_seed(1, 23) != derive_seed(12, 3)
    assert derive_seed("a", 1) == derive_seed("a", 1)
    seeds = {derive_seed(0, "task", step, r, g) for step in range(20) for r in range(3) for g in range(16)}
    assert len(seeds) == 20 * 3 * 16
    assert all(0 <= s < 2**63 for s in seeds)


def test_prompt_ids_are_whole_numbers_of_the_vocabulary() -> None:
    agent = small_agent(cloned=CLONED)
    for t in episodes(agent, 5):
        for turn in t.turns:
            assert turn.prompt_ids.dtype == np.int32 and turn.action_ids.dtype == np.int32
            assert max(turn.prompt_ids.max(), turn.action_ids.max()) < len(agent.tokenizer)
    assert load(CorridorSettings()).name == "corridor"
