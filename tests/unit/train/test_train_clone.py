"""Behaviour cloning: the prompts that RL will show, and nothing that cannot end."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from corridor import CorridorSettings
from keel.errors import DataError, TrainingError
from keel.rollout.collect import EnvPool, play_tasks
from keel.rollout.engine import Completion, Sampling
from keel.rollout.episode import derive_seed, play
from keel.train.clone import Cloner, Example, demonstration_examples, rollout_examples
from keel.types import Finish, Trajectory
from policies import SmallAgent, hub_logprobs, informative_groups, small_agent


def examples(agent: SmallAgent, count: int, seed: int = 3) -> list[Example]:
    text = agent.environment.prompt_text("terse")
    made = demonstration_examples(agent.environment, agent.player.context, text, agent.player.renderer, seed)
    return list(islice(made, count))


class Says:
    """An engine that writes the demonstrator's responses."""

    def __init__(self, responses: list[np.ndarray]) -> None:
        self._responses = iter(responses)

    async def sample(self, prompt_ids: np.ndarray, sampling: Sampling, seed: int) -> Completion:
        ids = next(self._responses)
        return Completion(ids, np.zeros(len(ids), dtype=np.float32), Finish.STOP, 0)


def demonstrated_episode(agent: SmallAgent, task_seed: int) -> Trajectory:
    """What an episode records when the policy answers as the demonstrator does."""
    environment = agent.environment
    task = environment.sample_task("train", task_seed)
    text = environment.prompt_text("terse")
    demos = environment.demonstrate(task, task_seed)
    agent.player.engine = Says([agent.player.renderer.response_ids(text.response(d)) for d in demos])
    return asyncio.run(play(agent.player, environment.make_env(), task, task_seed, 0))


def test_examples_are_exactly_the_turns_that_rl_would_record() -> None:
    agent = small_agent(CorridorSettings(doors=3, max_turns=6))
    made = examples(agent, 400)
    pairs = {(e.prompt_ids.tobytes(), e.action_ids.tobytes()) for e in made}
    expected = set()
    for number in range(60):
        trajectory = demonstrated_episode(agent, derive_seed(3, "clone", number))
        assert all(turn.action.valid for turn in trajectory.turns)
        expected |= {(t.prompt_ids.tobytes(), t.action_ids.tobytes()) for t in trajectory.turns}
    assert len(expected) > 60
    assert len(pairs & expected) > 0.5 * len(pairs)
    whole = {(e.prompt_ids.tobytes(), e.action_ids.tobytes()) for e in examples(agent, 1024)}
    assert expected <= whole


def test_the_stop_token_is_cloned() -> None:
    agent = small_agent()
    assert {int(e.action_ids[-1]) for e in examples(agent, 50)} == {agent.tokenizer.eos_token_id}


def test_examples_depend_on_the_seed_and_mix_episodes() -> None:
    agent = small_agent()

    def texts(seed: int) -> list[bytes]:
        return [e.prompt_ids.tobytes() + e.action_ids.tobytes() for e in examples(agent, 60, seed)]

    assert texts(1) == texts(1) != texts(2)


@pytest.mark.parametrize("settings", [CorridorSettings(padding=300), CorridorSettings(doors=0)])
def test_demonstrations_without_a_turn_raise_instead_of_searching_for_ever(settings: CorridorSettings) -> None:
    with pytest.raises(DataError, match=r"demonstrations.*without a turn.*max_prompt_tokens"):
        examples(small_agent(settings), 1)


def test_loss_is_the_mean_over_tokens_of_the_hugging_face_model() -> None:
    agent = small_agent()
    assert isinstance(agent.model, PreTrainedModel)
    batch = examples(agent, 16)
    with torch.no_grad():
        expected = -torch.cat([hub_logprobs(agent.model, e.prompt_ids, e.action_ids) for e in batch]).mean()
    cloner = Cloner(agent.model, batch, batch_turns=16, learning_rate=1e-3, warmup_updates=0, weight_decay=0.0)
    assert cloner.update(cloner.draw()) == pytest.approx(float(expected), rel=1e-4)
    assert (cloner.num_updates, cloner.num_turns) == (1, 16)


def test_cloning_teaches_the_format_and_the_answer() -> None:
    agent = small_agent(CorridorSettings(mistakes=0.0), cloned=0)
    text = agent.environment.prompt_text("terse")
    made = demonstration_examples(agent.environment, agent.player.context, text, agent.player.renderer, 3)
    cloner = Cloner(agent.model, made, batch_turns=64, learning_rate=1e-2, warmup_updates=5, weight_decay=0.0)
    losses = [cloner.update(cloner.draw()) for _ in range(80)]
    assert losses[-1] < 0.1 < 2 < losses[0]


def test_a_loss_that_is_not_finite_stops_before_the_weights_change() -> None:
    agent = small_agent()
    cloner = Cloner(
        agent.model, examples(agent, 8), batch_turns=8, learning_rate=1e-3, warmup_updates=0, weight_decay=0.0
    )
    with torch.no_grad():
        agent.model.get_parameter("model.norm.weight")[0] = float("nan")
    before = {n: p.clone() for n, p in agent.model.named_parameters()}
    with pytest.raises(TrainingError, match=r"cloning loss is nan at update 0; lower clone.learning_rate"):
        cloner.update(cloner.draw())
    assert all(torch.equal(p, before[n]) for n, p in agent.model.named_parameters() if n != "model.norm.weight")


def test_rollouts_give_the_valid_turns_of_successes_over_and_over() -> None:
    agent = small_agent(cloned=40)
    tasks = [agent.environment.sample_task("train", i) for i in range(30)]
    played = play_tasks(agent.player, EnvPool(agent.environment), tasks, 1)
    good = [
        (t.prompt_ids.tobytes(), t.action_ids.tobytes()) for j in played if j.success for t in j.turns if t.action.valid
    ]
    bad = [t for j in played if not j.success for t in j.turns]
    assert good and bad
    drawn = [
        (e.prompt_ids.tobytes(), e.action_ids.tobytes()) for e in islice(rollout_examples(played, 0), 2 * len(good))
    ]
    assert sorted(drawn[: len(good)]) == sorted(drawn[len(good) :]) == sorted(good)
    assert drawn[: len(good)] != drawn[len(good) :]


def test_rollouts_without_a_success_are_refused() -> None:
    agent = small_agent()
    played = [t for g in informative_groups(agent, "grpo(kl=0)") for t in g.trajectories]
    with pytest.raises(DataError, match="none of 20 trajectories succeeded"):
        next(rollout_examples(played, 0))
