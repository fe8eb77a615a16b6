"""Groups of sibling trajectories for a training step, and episodes for an evaluation: the same episodes underneath."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import traceback
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass

from keel.envs.base import Env, Environment
from keel.objective.method import Method, select_groups
from keel.rollout.episode import Player, derive_seed, play
from keel.types import End, Group, Task, Trajectory

_LEAST_SHARE = 0.25
"""A later round expects at least this share of its groups to be informative; a first unlucky round would ask for too many."""


class EnvPool:
    """Environments that are reused; each runs one episode at a time."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._idle: list[Env] = []

    async def episode(self, player: Player, task: Task, env_seed: int, seed: int) -> Trajectory:
        """Play one episode on an idle environment. One that failed is thrown away, it may be in any state."""
        try:
            env = self._idle.pop() if self._idle else self._environment.make_env()
        except Exception:
            cause = traceback.format_exc(limit=4)
            return Trajectory(task.id, env_seed, (), End.ERROR, success=False, family=task.family, error=cause)
        trajectory = await play(player, env, task, env_seed, seed)
        if trajectory.end is not End.ERROR:
            self._idle.append(env)
        return trajectory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """What was sampled for one training step."""

    kept: tuple[Group, ...]
    """Informative groups, all of them: surplus of the last round is trained on, not thrown away."""
    sampled: tuple[Group, ...]
    """Every group; success rates are over these, not over the kept ones."""
    unused: tuple[Group, ...]
    """Groups that only a filter refused and that are not trained on."""
    tasks: Mapping[str, Task]
    """Every task that was sampled, by id."""
    dropped: Counter[str]
    """Groups left out, by reason."""
    errors: Counter[str]
    """Trajectories that failed, by last line of their cause."""
    rounds: int
    seconds: float

    @property
    def num_turns(self) -> int:
        return sum(len(t.turns) for g in self.sampled for t in g.trajectories)

    @property
    def num_tokens(self) -> int:
        return sum(t.num_tokens for g in self.sampled for t in g.trajectories)


def collect(
    player: Player,
    pool: EnvPool,
    environment: Environment,
    method: Method,
    *,
    num_groups: int,
    group_size: int,
    step: int,
    seed: int,
) -> Rollout:
    """Sample groups until `num_groups` are informative or the method's rounds are used up.

    Every round draws fresh tasks, a pure function of `(seed, step, round)`. A later round draws only as many groups as
    are missing, judged by the share that was informative so far.
    """
    start = time.perf_counter()
    kept: list[Group] = []
    spare: list[Group] = []
    sampled: list[Group] = []
    dropped: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    all_tasks: dict[str, Task] = {}
    rounds = 0
    while len(kept) < num_groups and rounds < method.sampling.max_tries:
        missing = num_groups - len(kept)
        most = round(num_groups * method.sampling.oversample)
        share = max(len(kept) / len(sampled), _LEAST_SHARE) if sampled else 0.0
        count = min(most, math.ceil(missing / share)) if sampled else most
        seeds = [derive_seed(seed, "task", step, rounds, g) for g in range(count)]
        tasks = [environment.sample_task(environment.splits[0], s) for s in seeds]
        all_tasks.update((task.id, task) for task in tasks)
        groups, failed = _groups(player, pool, tasks, seeds, group_size)
        errors.update(failed)
        selection = select_groups(method, groups, step)
        kept.extend(selection.kept)
        spare.extend(selection.spare)
        dropped.update(selection.reasons)
        sampled.extend(groups)
        rounds += 1
    filled = max(0, num_groups - len(kept)) if method.sampling.backfill else 0
    kept.extend(spare[:filled])
    return Rollout(
        kept=tuple(kept),
        sampled=tuple(sampled),
        unused=tuple(spare[filled:]),
        tasks=all_tasks,
        dropped=+dropped,
        errors=errors,
        rounds=rounds,
        seconds=time.perf_counter() - start,
    )


def _groups(
    player: Player, pool: EnvPool, tasks: Sequence[Task], seeds: Sequence[int], group_size: int
) -> tuple[list[Group], Counter[str]]:
    """Play every group. Failed members stay in it as data (`select_groups` takes them out) and are counted by cause."""
    played = _run(
        [
            pool.episode(player, task, seed, derive_seed(seed, "member", member))
            for task, seed in zip(tasks, seeds, strict=True)
            for member in range(group_size)
        ]
    )
    groups: list[Group] = []
    errors: Counter[str] = Counter()
    for g, task in enumerate(tasks):
        members = played[g * group_size : (g + 1) * group_size]
        errors.update(t.error.strip().splitlines()[-1] for t in members if t.end is End.ERROR)
        groups.append(Group(task.id, tuple(members)))
    return groups, errors


def play_tasks(player: Player, pool: EnvPool, tasks: Sequence[Task], seed: int) -> tuple[Trajectory, ...]:
    """One episode of each task, in order; failed ones included, with their cause."""
    episodes = [
        pool.episode(player, task, derive_seed(seed, task.id), derive_seed(seed, "eval", i))
        for i, task in enumerate(tasks)
    ]
    return tuple(_run(episodes))


def _run(episodes: Sequence[Coroutine[None, None, Trajectory]]) -> list[Trajectory]:
    """All episodes, interleaved by one event loop. Interrupted, none is left running.

    Not `asyncio.run`: it installs a signal handler whose bookkeeping prints the result, every array of it.
    """
    loop = asyncio.new_event_loop()

    async def gather() -> list[Trajectory]:
        return await asyncio.gather(*episodes)

    try:
        return loop.run_until_complete(gather())
    finally:
        _cancel_rest(loop)
        loop.close()


def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what an interrupt left running, and look at every outcome, so that none is reported as forgotten.

    An interrupt that was raised inside a task is raised again by whoever awaits that task, hence the loop.
    """
    while pending := asyncio.all_tasks(loop):
        for task in pending:
            task.cancel()
        with contextlib.suppress(KeyboardInterrupt):
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        for task in pending:
            if task.done() and not task.cancelled():
                task.exception()
