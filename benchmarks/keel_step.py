"""Keel's side of `rollout_update.py`: the same training steps through Keel's own engine, collector and trainer."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from guess_env import NEW_TOKENS_PER_TURN, NUM_SIBLINGS, NUM_TASKS, NUM_TURNS, GuessGame
from keel.envs.base import DemoTurn, Env, Record
from keel.models.load import load_policy
from keel.models.weights import weights_of
from keel.objective.method import Method, assign_credit, resolve
from keel.prompt.context import FullHistory
from keel.prompt.render import ChatRenderer
from keel.rollout.collect import EnvPool, Rollout, collect
from keel.rollout.engine import Sampling
from keel.rollout.episode import Player
from keel.rollout.local import LocalEngine
from keel.train.trainer import Trainer, Update
from keel.types import Action, Observation, Step, Task, TurnIndex

KERNELS = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
)  # fmt: skip
METHOD = "grpo(kl=0, entropy=0, format_scale=None)"


class GuessEnv:
    """The game behind Keel's environment protocol."""

    def __init__(self) -> None:
        self._game = GuessGame(0)
        self._turn = 0
        self._said: tuple[str, ...] = ()

    def reset(self, task: Task, seed: int) -> Observation:
        self._game, self._turn, self._said = GuessGame(int(task.id)), 0, ()
        return Observation(self._game.first_message(), (task.id, self._said))

    def step(self, action: str) -> Step:
        self._turn += 1
        self._said = (*self._said, action)
        last = self._turn == NUM_TURNS
        reward = self._game.finish(action) if last else 0.0
        text = "" if last else self._game.reply(action)
        return Step(Observation(text, self._said), reward, terminated=last, truncated=False)

    def snapshot(self) -> object:
        raise RuntimeError("the benchmark takes no snapshots")

    def restore(self, snapshot: object) -> None:
        raise RuntimeError("the benchmark takes no snapshots")


class GuessText:
    """The messages are the game's own."""

    def user_message(self, observation: Observation, history: Sequence[Record], turn: int) -> str:
        return observation.text

    def follow_up(self, observation: Observation, turn: int) -> str:
        return observation.text

    def response(self, demo: DemoTurn) -> str:
        return demo.action


class GuessEnvironment:
    """Sixteen games, one for each group."""

    name, max_turns, splits, families = "guess", NUM_TURNS, ("train", "held_out"), ()

    def make_env(self) -> Env:
        return GuessEnv()

    def sample_task(self, split: str, seed: int) -> Task:
        return Task(str(seed % 550), split)

    def fixed_tasks(self, split: str, count: int) -> tuple[Task, ...]:
        return tuple(Task(str(i), split) for i in range(count))

    def demonstrate(self, task: Task, seed: int) -> tuple[DemoTurn, ...]:
        return ()

    def check_splits(self) -> str:
        return ""

    def prompt_text(self, style: str) -> GuessText:
        return GuessText()

    def corpus(self) -> Sequence[str]:
        return ()


class AnyText:
    """Whatever was sampled goes to the game."""

    def parse(self, response: str, admissible: tuple[str, ...] | None, cut: bool) -> Action:
        return Action(response, valid=True)


def run(checkpoint: Path, threads: int, steps: int) -> dict[str, object]:
    """One uncounted step, then `steps` timed ones; the fastest counts, as on the other side."""
    torch.set_num_threads(threads)
    policy = load_policy(str(checkpoint), torch.device("cpu"))
    renderer = ChatRenderer(policy.tokenizer)
    engine = LocalEngine(weights_of(policy.model, torch.float32, fused=True))
    environment = GuessEnvironment()
    player = Player(
        engine=engine,
        renderer=renderer,
        context=FullHistory(renderer, environment.prompt_text(""), 4096),
        grammar=AnyText(),
        sampling=Sampling(max_new_tokens=NEW_TOKENS_PER_TURN, stop_ids=()),
        format_penalty=0.0,
        max_episode_tokens=10_000,
    )
    update = Update(
        learning_rate=1e-4, warmup_updates=0, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0,
        minibatches=1, epochs=1, micro_batch_tokens=8192, recompute_old=False, temperature=1.0, save_memory=False,
        dtype=torch.float32, seed=0,
    )  # fmt: skip
    method = resolve(METHOD)
    trainer = Trainer(policy.model, update, needs_reference=False)
    pool = EnvPool(environment)
    timed = [_step(player, pool, environment, method, trainer, engine, number) for number in range(steps + 1)]
    best = max(timed[1:], key=lambda t: t["trajectories_per_s"])
    parameters = sum(p.numel() for p in policy.model.parameters())
    ceiling = _matmul_gflops()
    best["kernel_s"] = _kernel_seconds(lambda: _step(player, pool, environment, method, trainer, engine, steps + 1))
    best["update_share_of_ceiling"] = 6 * parameters * best["update_tokens_per_s"] / (ceiling * 1e9)
    return {"best": best, "steps": timed, "threads": threads, "parameters": parameters, "matmul_gflops": ceiling}


def _step(
    player: Player,
    pool: EnvPool,
    environment: GuessEnvironment,
    method: Method,
    trainer: Trainer,
    engine: LocalEngine,
    number: int,
) -> dict[str, float]:
    start = time.perf_counter()
    rollout: Rollout = collect(
        player, pool, environment, method, num_groups=NUM_TASKS, group_size=NUM_SIBLINGS, step=number, seed=number
    )
    sampled = time.perf_counter()
    groups = rollout.kept
    scores = trainer.score(groups, method.needs)
    credit = assign_credit(method, TurnIndex.of(groups), scores)
    metrics = trainer.update(groups, credit, scores, method, number)
    updated = time.perf_counter()
    engine.load(trainer.weights(), number)
    seconds = time.perf_counter() - start
    trajectories = [t for g in groups for t in g.trajectories]
    tokens = sum(len(t.turns[-1].prompt_ids) + len(t.turns[-1].action_ids) for t in trajectories)
    return {
        "trajectories": float(len(trajectories)),
        "tokens_per_trajectory": tokens / len(trajectories),
        "step_s": seconds,
        "rollout_s": sampled - start,
        "update_s": updated - sampled,
        "trajectories_per_s": len(trajectories) / seconds,
        "generated_tokens_per_s": rollout.num_tokens / (sampled - start),
        "update_tokens_per_s": tokens / (updated - sampled),
        "computed_update_tokens": float(metrics["update/computed_tokens"].value),
    }


def _kernel_seconds(step: Callable[[], object]) -> float:
    """Seconds of a step inside matrix products and attention: what no code around them can save."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    return sum(e.self_cpu_time_total for e in seen.key_averages() if e.key in KERNELS) / 1e6


def _matmul_gflops() -> float:
    """The fastest square-ish product of this model's sizes, best of many."""
    a, b = torch.randn(8192, 128), torch.randn(128, 384)
    best = np.inf
    for _ in range(50):
        start = time.perf_counter()
        torch.matmul(a, b)
        best = min(best, time.perf_counter() - start)
    return 2 * 8192 * 128 * 384 / best / 1e9


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.write_text(json.dumps(run(options.checkpoint, options.threads, options.steps), indent=2))
