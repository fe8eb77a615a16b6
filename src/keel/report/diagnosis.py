"""Why a run has learned nothing, and what to do about it."""

from __future__ import annotations

import math

from keel.report.records import Run
from keel.report.words import counted, percent

MIN_STEPS = 3
"""Fewer steps than this may be chance."""
MOSTLY = 0.8
"""A share of the steps that is nearly all."""
_HALF = 0.5


def diagnoses(run: Run) -> tuple[str, ...]:
    """Findings with likely cause and remedy: no training episode solved, or nearly no step with an update."""
    success = [value for value in run.series("success").value if math.isfinite(value)]
    if len(success) >= MIN_STEPS and not any(success):
        return (
            f"No training episode was solved in {counted(len(success), 'step')}, so there was no success to learn from. "
            + _why_never_solved(run),
        )
    made = len({record.step for record in (*run.steps, *run.skips)})
    if made < MIN_STEPS or len(run.skips) < MOSTLY * made:
        return ()
    without = f"{len(run.skips)} of {counted(made, 'step')} had no group whose siblings differ, so nothing was learned in them. "
    return (without + _why_no_contrast(run),)


def _why_never_solved(run: Run) -> str:
    """The plainest cause that the metrics show: failing episodes, cut responses, a format that is not met, or hard tasks."""
    failed, played = sum(run.series("episodes/failed").value), sum(run.series("groups/sampled").value)
    if failed and failed >= played:  # at least one of each group
        return f"{counted(failed, 'episode')} failed in the environment: mend that first; `keel check-env` says where."
    cut = _mean(run, "truncated")
    if cut > _HALF:
        return (
            f"{percent(cut)} of the responses were cut at their limit before they named an action: raise "
            "prompt.max_new_tokens, or clone longer so that responses become short (clone.target_success, clone.max_updates)."
        )
    valid = _mean(run, "valid_format")
    if valid < _HALF:
        return (
            f"Only {percent(valid)} of the responses are valid: the policy does not know the format yet. Clone longer "
            "(clone.target_success, clone.max_updates), or start from a model that was cloned."
        )
    return (
        "The responses are valid, so the tasks are too hard for the policy as it starts: clone longer (clone.target_success, "
        "clone.max_updates), choose easier tasks or more turns among the env settings, or raise rollout.group_size."
    )


def _why_no_contrast(run: Run) -> str:
    solved, failed = (sum(run.series(f"groups/{reason} by all").value) for reason in ("solved", "failed"))
    if solved > failed:
        return (
            "In most groups all siblings solved their task: it is too easy by now. Choose harder tasks among the env settings, "
            "or stop here."
        )
    if failed:
        return (
            "In most groups all siblings failed: the tasks are too hard as they are. Clone longer (clone.target_success, "
            "clone.max_updates), choose easier tasks among the env settings, or raise rollout.group_size."
        )
    return "The panel of groups without signal shows the reasons; a larger rollout.group_size makes differences more likely."


def _mean(run: Run, metric: str) -> float:
    """Over the steps; NaN, which no comparison holds for, when it was not recorded."""
    values = [value for value in run.series(metric).value if math.isfinite(value)]
    return sum(values) / len(values) if values else math.nan
