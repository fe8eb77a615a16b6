"""The only loop: rollout, filter, credit, update, and what is written about it.

rollout  = sample_groups(session, step)     groups of sibling episodes; filters decide which are informative
scores   = trainer.score(kept, needs)       only what the method asks for
credit   = credit_step(method, ...)         advantage and weight of every sampled token
metrics  = trainer.update(kept, credit)     optimizer steps
engine.load(trainer.weights(), version)     the next rollout samples from the new policy
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from keel.errors import TrainingError
from keel.metrics import Mean, Metric, Total, merge, values
from keel.objective.filters import SOLVED
from keel.objective.method import informative_fraction
from keel.report.words import number_of
from keel.rollout.collect import Rollout, collect
from keel.rollout.episode import derive_seed
from keel.run.crediting import credit_step, next_method, state_to_text
from keel.run.evaluate import Evaluation, evaluate
from keel.run.interrupts import finish_first
from keel.run.samples import save_samples
from keel.run.session import Session
from keel.train.checkpoint import Progress, save_checkpoint
from keel.types import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the loop ended."""

    progress: Progress
    interrupted: bool
    """By Ctrl-C; the checkpoint is saved."""


def train(session: Session, progress: Progress) -> Outcome:
    """Run training steps from `progress` to `settings.train.steps`.

    A checkpoint is written every `run.checkpoint_every` steps, at the end and on Ctrl-C. Ctrl-C breaks off a rollout at once
    and lets an update finish; a step that was not finished is done again by a resume, with the same draws.
    """
    settings = session.settings
    interrupted = False
    try:
        while progress.step < settings.train.steps:
            rollout = sample_groups(session, progress.step + 1)
            with finish_first():
                progress = train_step(session, progress, rollout)
            if (
                settings.eval.every
                and progress.step % settings.eval.every == 0
                and progress.step < settings.train.steps
            ):
                evaluate_now(session, progress.step, settings.eval.tasks_on_the_way)
            if progress.step % settings.run.checkpoint_every == 0:
                save(session, progress)
            if progress.empty_in_a_row >= settings.run.empty_steps:
                session.console.note(
                    f"training is done: {number_of(progress.empty_in_a_row, 'step')} in a row had only solved groups"
                )
                progress = replace(progress, empty_in_a_row=0, solved_in_a_row=0)
                break
    except KeyboardInterrupt:
        interrupted = True
    save(session, progress)
    return Outcome(progress=progress, interrupted=interrupted)


def sample_groups(session: Session, step: int) -> Rollout:
    """The rollouts of a step, from an engine that remembers nothing: the same bits whatever was evaluated in between."""
    rollout = session.settings.rollout
    session.engine.forget()
    return collect(
        session.player,
        session.pool,
        session.environment,
        session.method,
        num_groups=rollout.groups,
        group_size=rollout.group_size,
        step=step,
        seed=derive_seed(session.settings.run.seed, "train"),
    )


def train_step(session: Session, progress: Progress, rollout: Rollout) -> Progress:
    """Credit, update and log of one step's rollouts; weights, the shapers' memory and adaptive penalties change here only."""
    settings, method, step = session.settings, session.method, progress.step + 1
    metrics = rollout_metrics(rollout, settings.rollout.group_size)
    counted = replace(
        progress,
        step=step,
        env_steps=progress.env_steps + rollout.num_turns,
        sampled_tokens=progress.sampled_tokens + rollout.num_tokens,
        seconds=session.folder.seconds,
    )
    if not rollout.kept:
        return _skip(session, counted, rollout, metrics)
    start = time.perf_counter()
    scores = session.trainer.score(rollout.kept, method.needs)
    credited = credit_step(method, session.environment, rollout, scores, session.credit_state)
    credit = credited.credit
    updated = session.trainer.update(rollout.kept, credit, scores, method, step)
    session.engine.load(session.trainer.weights(), version=step)
    seconds: dict[str, Metric] = {"time/update_s": Total(time.perf_counter() - start)}
    metrics = merge(metrics, credited.metrics, credit.metrics, updated, seconds)
    session.credit_state = credit.state
    session.method = next_method(method, values(metrics), credited.index.num_turns)
    if step % settings.run.trajectories_every == 0 or step == 1:
        save_samples(session.folder, step, rollout.kept, method, credit, scores, session.trainer)
    _log(session, step, metrics)
    return replace(counted, num_updates=session.trainer.num_updates, empty_in_a_row=0, solved_in_a_row=0)


def _log(session: Session, step: int, metrics: Mapping[str, Metric]) -> None:
    numbers = values(metrics)
    session.folder.event("step", step, metrics=numbers)
    session.console.step(step, numbers)


def _skip(session: Session, progress: Progress, rollout: Rollout, metrics: Mapping[str, Metric]) -> Progress:
    """No informative group: no update, an explanation, and a diagnosis when it goes on.

    Where every group was solved by all siblings there is nothing left to learn, which is no failure: the loop ends.
    """
    reasons = ", ".join(f"{count} {reason}" for reason, count in rollout.dropped.most_common()) or "no group at all"
    causes = "".join(
        f"; {number_of(count, 'episode')} failed: {cause}" for cause, count in rollout.errors.most_common(2)
    )
    reason = (
        f"0 of {number_of(len(rollout.sampled), 'group')} informative after {number_of(rollout.rounds, 'round')} "
        f"({reasons}{causes})"
    )
    session.folder.event("skip", progress.step, reason=reason)
    _log(session, progress.step, metrics)
    session.console.note(f"step {progress.step} skipped: {reason}")
    empty = progress.empty_in_a_row + 1
    solved = progress.solved_in_a_row + 1 if set(rollout.dropped) == {SOLVED} else 0
    if empty >= session.settings.run.empty_steps and solved < empty:
        save(session, replace(progress, empty_in_a_row=0))
        raise TrainingError(
            f"{number_of(empty, 'step')} in a row without an informative group: {reason}. When all failed, clone longer (clone.target_success), choose easier tasks or a larger "
            "rollout.group_size; when episodes failed, mend the environment (`keel check-env`). The checkpoint is saved."
        )
    return replace(progress, empty_in_a_row=empty, solved_in_a_row=solved)


def rollout_metrics(rollout: Rollout, group_size: int) -> dict[str, Metric]:
    """Rates over everything that was sampled, kept or not; the unit of each mean is in its name or a trajectory."""
    trajectories = [t for g in rollout.sampled for t in g.trajectories]
    turns = [turn for t in trajectories for turn in t.turns]
    num_j, num_k = float(max(len(trajectories), 1)), float(max(len(turns), 1))
    success = sum(t.success for t in trajectories) / num_j
    metrics: dict[str, Metric] = {
        "success": Mean(success * num_j, num_j),
        "turns": Mean(float(len(turns)), num_j),
        "tokens": Mean(float(rollout.num_tokens), num_k),
        "valid_action": Mean(sum(t.action.valid for t in turns), num_k),
        "valid_format": Mean(sum(t.action.format_valid for t in turns), num_k),
        "truncated": Mean(sum(t.finish is Finish.LENGTH for t in turns), num_k),
        "entropy/sampled": Mean(-sum(float(t.logprobs.sum()) for t in turns), float(max(rollout.num_tokens, 1))),
        "groups/kept": Total(len(rollout.kept)),
        "groups/sampled": Total(len(rollout.sampled)),
        "groups/informative": Mean(len(rollout.kept), float(max(len(rollout.sampled), 1))),
        "groups/informative_expected": Mean.of(informative_fraction(success, group_size)),
        "rounds": Total(rollout.rounds),
        "episodes/failed": Total(rollout.errors.total()),
        "time/rollout_s": Total(rollout.seconds),
        "speed/turns_per_s": Mean(float(len(turns)), rollout.seconds),
        "speed/tokens_per_s": Mean(float(rollout.num_tokens), rollout.seconds),
    }
    for part in ("env", "format"):
        metrics[f"reward/{part}"] = Mean(sum(t.parts().get(part, 0.0) for t in trajectories), num_j)
    for reason, count in rollout.dropped.items():
        metrics[f"groups/{reason}"] = Total(count)
    return metrics


def evaluate_now(session: Session, step: int, num_tasks: int) -> Evaluation:
    """Evaluate the current policy on the first held-out tasks, and log it."""
    split = session.environment.splits[1]
    tasks = session.environment.fixed_tasks(split, num_tasks)
    result = evaluate(session.eval_player, session.pool, tasks, split, derive_seed(session.settings.run.seed, "eval"))
    session.folder.event("eval", step, **result.record())
    session.console.evaluation(step, result)
    return result


def save(session: Session, progress: Progress) -> None:
    """Write a checkpoint and say so."""
    path = save_checkpoint(
        session.folder.checkpoints,
        session.trainer,
        session.tokenizer,
        replace(
            progress,
            seconds=session.folder.seconds,
            credit_state=state_to_text(session.method, session.credit_state),
        ),
        session.settings.run.keep_checkpoints,
    )
    session.console.note(f"checkpoint {path}", quiet=True)
