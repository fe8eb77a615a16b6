"""Behaviour cloning of a run: until the policy succeeds often enough, and with what is needed to go on after Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from keel.envs.base import Environment
from keel.models.weights import weights_of
from keel.report.words import number_of
from keel.rollout.collect import EnvPool, play_tasks
from keel.rollout.episode import derive_seed
from keel.run.console import Console
from keel.run.evaluate import evaluate
from keel.run.folder import RunFolder
from keel.run.interrupts import finish_first
from keel.run.session import Agent
from keel.run.settings import Settings
from keel.train.checkpoint import cloning_checkpoint, load_cloning, save_cloning
from keel.train.clone import Cloner, Example, demonstration_examples, rollout_examples

_SAVE_EVERY_S = 30.0
"""Seconds of cloning that a kill may cost; more where saving itself takes long."""
_SAVING_SHARE = 0.05
"""Most of the time that is spent saving."""


def clone(
    settings: Settings[Any], agent: Agent, environment: Environment, pool: EnvPool, folder: RunFolder, console: Console
) -> None:
    """Clone demonstrations until the policy succeeds on `clone.target_success` of some training tasks.

    Ctrl-C lets an update finish and saves the policy, the optimizer and the place in the demonstrations, which is also done now
    and then; called again with the same settings and run folder, cloning goes on from there with the same draws.
    """
    chosen = settings.clone
    seed = derive_seed(settings.run.seed, "clone")
    split = environment.splits[0]
    tasks = [environment.sample_task(split, derive_seed(seed, "check", i)) for i in range(chosen.check_tasks)]
    cloner = _cloner(settings, agent, _examples(settings, agent, environment, pool, seed))
    start, successes = time.perf_counter() - _go_on(cloner, folder, console), _checked(folder)
    save_at = time.perf_counter() + _SAVE_EVERY_S

    def save() -> float:
        """Returns when to save again."""
        before = time.perf_counter()
        with finish_first():
            save_cloning(folder.checkpoints, cloner, agent.tokenizer, before - start, folder.seconds)
        after = time.perf_counter()
        return after + max(_SAVE_EVERY_S, (after - before) / _SAVING_SHARE)

    try:
        while not chosen.max_seconds or time.perf_counter() - start <= chosen.max_seconds:
            num = cloner.num_updates
            if num and num % chosen.check_every == 0 and num not in successes:
                agent.engine.load(weights_of(agent.model, agent.dtype, fused=True), version=0)
                successes[num] = evaluate(agent.player, pool, tasks, split, derive_seed(seed, "check", num)).success
                folder.event("clone", 0, update=num, loss=cloner.loss, success=successes[num])
                console.note(
                    f"cloning, update {num}: loss {cloner.loss:.3f}, success on training tasks {successes[num]:.3f}"
                )
            if num >= chosen.max_updates or successes.get(num, 0.0) >= chosen.target_success:
                break
            if num and time.perf_counter() >= save_at:
                save_at = save()
            batch = cloner.draw()
            with finish_first():
                cloner.update(batch)
    except KeyboardInterrupt:
        save()
        raise
    num, seconds = cloner.num_updates, time.perf_counter() - start
    reached = successes.get(num, 0.0) >= chosen.target_success
    missed = f"; the target success {chosen.target_success} was not reached in {number_of(num, 'update')}"
    console.note(
        f"cloned {number_of(cloner.num_turns, 'demonstrated turn')} in {seconds:.0f} s{'' if reached else missed}"
    )


def _go_on(cloner: Cloner, folder: RunFolder, console: Console) -> float:
    """Put a cloner where it was stopped, if it was; returns the seconds that cloning has taken."""
    stopped = cloning_checkpoint(folder.checkpoints)
    if not stopped.exists():
        return 0.0
    before = load_cloning(stopped, cloner)
    folder.drop_events_after(0, clone_update=before.num_updates)
    console.note(f"going on with {folder.path}, which was cloning, after update {before.num_updates}")
    return before.seconds


def _checked(folder: RunFolder) -> dict[int, float]:
    """Success on training tasks by update."""
    return {event["update"]: event["success"] for event in folder.events() if event["kind"] == "clone"}


def _cloner(settings: Settings[Any], agent: Agent, examples: Iterator[Example]) -> Cloner:
    return Cloner(
        agent.model,
        examples,
        batch_turns=settings.clone.batch_turns,
        learning_rate=settings.clone.learning_rate,
        warmup_updates=settings.clone.warmup_updates,
        weight_decay=settings.clone.weight_decay,
    )


def _examples(
    settings: Settings[Any], agent: Agent, environment: Environment, pool: EnvPool, seed: int
) -> Iterator[Example]:
    """What is cloned: demonstrations, or the policy's own successes, from before it was cloned."""
    if settings.clone.source == "demonstrations":
        return demonstration_examples(environment, agent.context, agent.text, agent.renderer, seed)
    split = environment.splits[0]
    count = settings.clone.rollout_tasks
    tasks = [environment.sample_task(split, derive_seed(seed, "rollout", i)) for i in range(count)]
    return rollout_examples(play_tasks(agent.player, pool, tasks, derive_seed(seed, "rollouts")), seed)
