"""Who was rewarded, and why: the siblings of a group side by side, turn by turn."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keel.errors import DataError
from keel.report.page import render, write_page
from keel.report.palette import BLUE, ORANGE, rgba
from keel.report.records import Samples, SampleTrajectory, SampleTurn
from keel.report.trajectories import load_samples
from keel.report.words import amount, clean, counted, signed

MAX_TURNS = 60
"""Turns of a trajectory that are shown; the rest is counted."""
OBSERVATION_LIMIT = 1200
RESPONSE_LIMIT = 2000
PROMPT_LIMIT = 6000
ACTION_LIMIT = 160


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn, ready to be shown."""

    number: int
    observation: str
    prompt: str
    response: str
    action: str
    badges: tuple[tuple[str, str], ...]
    """Style and words."""
    numbers: str
    """Reward and ratio."""
    sampling: str
    """Tokens, log-probability and version of the weights."""
    verdict: str
    """Why the turn got its credit."""
    symbol: str
    """One sign for the overview."""
    color: str
    """Ground of the overview cell: blue for credit, orange for blame, by size."""
    advantage: str
    raw_advantage: str
    """Empty when nothing was shaped."""
    bar: float
    """Advantage over the largest of the group, in [-1, 1]."""
    raw_bar: float


@dataclass(frozen=True, slots=True)
class TrajectoryView:
    """One trajectory, ready to be shown."""

    name: str
    success: bool
    outcome: str
    rewards: str
    summary: str
    turns: tuple[TurnView, ...]
    num_hidden: int
    """Turns beyond the limit."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The siblings of one task, ready to be shown."""

    task: str
    family: str
    headline: str
    shaped: bool
    annotated: bool
    """Rea, PA or drift are known."""
    masked: bool
    """A turn was taken out of the loss."""
    trajectories: tuple[TrajectoryView, ...]
    num_columns: int


def write_credit_view(folder: Path, step: int | None = None, out: Path | None = None) -> Path:
    """Write the credit view of every kept group of one training step.

    Args:
        folder: a run folder.
        step: an RL step whose trajectories were kept; None for the last one.
        out: where to write; None for `credit.html` in the run folder.

    Raises:
        DataError: the folder kept no trajectories, or not of that step.
    """
    samples = load_samples(folder, step)
    if samples is None or not samples.trajectories:
        raise DataError(
            f"{folder} kept no trajectories yet; `keel train` writes them to {folder / 'trajectories'} as it goes."
        )
    context = {
        "title": f"Credit, step {samples.step}",
        "run": clean(folder.name, 120),
        "step": samples.step,
        "groups": group_views(samples),
        "note": clean(samples.note, 400),
        "scripts": (),
    }
    return write_page(out or folder / "credit.html", render("credit.html.j2", context))


def group_views(samples: Samples, limit: int | None = None) -> tuple[GroupView, ...]:
    """Groups with both outcomes first, since only these show credit being assigned.

    Args:
        samples: the kept trajectories of a step.
        limit: how many groups; None for all.
    """
    groups = sorted(samples.groups(), key=lambda group: len({trajectory.success for trajectory in group}), reverse=True)
    return tuple(group_view(group) for group in groups[:limit])


def group_view(group: Sequence[SampleTrajectory]) -> GroupView:
    """Prepare the siblings of one task."""
    scale = max(
        (abs(value) for trajectory in group for turn in trajectory.turns for value in _advantages(turn)), default=0.0
    )
    turns = [turn for trajectory in group for turn in trajectory.turns]
    return GroupView(
        task=clean(group[0].task_id, ACTION_LIMIT),
        family=clean(group[0].family, ACTION_LIMIT),
        headline=_group_headline(group),
        shaped=any(_is_shaped(turn) for turn in turns),
        annotated=any(turn.reasonable is not None or turn.advances is not None for turn in turns),
        masked=any(turn.masked for turn in turns),
        trajectories=tuple(
            trajectory_view(trajectory, f"sibling {i}", scale) for i, trajectory in enumerate(group, start=1)
        ),
        num_columns=max((min(len(trajectory.turns), MAX_TURNS) for trajectory in group), default=0),
    )


def trajectory_view(trajectory: SampleTrajectory, name: str, scale: float) -> TrajectoryView:
    """Prepare one trajectory.

    Args:
        name: its heading.
        scale: the advantage that fills a whole bar.
    """
    ending = clean(trajectory.end, ACTION_LIMIT).replace("_", " ")
    rewards = ", ".join(f"{clean(part, 40)} {signed(value)}" for part, value in trajectory.parts.items())
    return TrajectoryView(
        name=name,
        success=trajectory.success,
        outcome=f"solved in {counted(len(trajectory.turns), 'turn')}"
        if trajectory.success
        else f"failed after {counted(len(trajectory.turns), 'turn')} ({ending})",
        rewards=rewards,
        summary=_trajectory_summary(trajectory.turns),
        turns=tuple(
            _turn_view(turn, number, scale) for number, turn in enumerate(trajectory.turns[:MAX_TURNS], start=1)
        ),
        num_hidden=max(0, len(trajectory.turns) - MAX_TURNS),
    )


def _group_headline(group: Sequence[SampleTrajectory]) -> str:
    solved = sum(trajectory.success for trajectory in group)
    if all(turn.advantage is None for trajectory in group for turn in trajectory.turns):
        return f"{solved} of {len(group)} solved it. The group was not trained on."
    if solved in (0, len(group)):
        return f"{'All' if solved else 'None'} of {len(group)} solved it: the outcome gives no contrast, only differences inside the turns can teach."
    means = [_mean_advantage(group, success) for success in (True, False)]
    return f"{solved} of {len(group)} solved it. Mean advantage of a turn: {means[0]} in successes, {means[1]} in failures."


def _mean_advantage(group: Sequence[SampleTrajectory], success: bool) -> str:
    values = [
        turn.advantage for one in group if one.success is success for turn in one.turns if turn.advantage is not None
    ]
    return signed(sum(values) / len(values)) if values else "–"


def _trajectory_summary(turns: Sequence[SampleTurn]) -> str:
    trained = [turn for turn in turns if turn.advantage is not None]
    if not trained:
        return "Not trained on."
    counts = (
        (sum((turn.advantage or 0.0) > 0 and not turn.masked for turn in trained), "rewarded"),
        (sum((turn.advantage or 0.0) < 0 and not turn.masked for turn in trained), "penalised"),
        (sum(turn.advantage == 0 and bool(turn.raw_advantage) for turn in trained), "lost their credit in shaping"),
        (sum(not turn.valid for turn in trained), "invalid"),
        (sum(bool(turn.masked) for turn in trained), "masked"),
        (sum(bool(turn.advances) for turn in trained), "advanced"),
    )
    said = [f"{count} {word}" for count, word in counts if count]
    return (
        f"Of {counted(len(turns), 'turn')}: {', '.join(said)}."
        if said
        else f"{counted(len(turns), 'turn')}, all without credit."
    )


def _turn_view(turn: SampleTurn, number: int, scale: float) -> TurnView:
    shaped = _is_shaped(turn)
    advantage = turn.advantage if turn.advantage is not None else 0.0
    return TurnView(
        number=number,
        observation=clean(_compact(turn.observation), OBSERVATION_LIMIT),
        prompt=clean(turn.prompt, PROMPT_LIMIT),
        response=clean(turn.response, RESPONSE_LIMIT),
        action=clean(turn.action, ACTION_LIMIT) or "(no action)",
        badges=_badges(turn),
        numbers=_numbers(turn),
        sampling=_sampling(turn),
        verdict=verdict(turn),
        symbol=_symbol(turn),
        color=_cell_color(turn.advantage, scale),
        advantage="–" if turn.advantage is None else signed(turn.advantage),
        raw_advantage=signed(turn.raw_advantage) if shaped and turn.raw_advantage is not None else "",
        bar=_bar(advantage, scale),
        raw_bar=_bar(turn.raw_advantage if turn.raw_advantage is not None else advantage, scale),
    )


def _compact(observation: str) -> str:
    """Columns that a grid sets with tabs, one space apart: a card is narrow, and the prompt shows the exact text."""
    return re.sub(r" *\t *", " ", observation)


def _symbol(turn: SampleTurn) -> str:
    """What a cell shows beside its color: the first that holds."""
    marks = ((not turn.valid, "×"), (turn.masked, "■"), (turn.advances, "▲"), (turn.reasonable is False, "○"))
    return next((mark for holds, mark in marks if holds), "")


def verdict(turn: SampleTurn) -> str:
    """Why a turn got its credit, in a few words."""
    if turn.advantage is None:
        return "not trained on"
    raw = turn.raw_advantage if turn.raw_advantage is not None else turn.advantage
    if turn.advantage == 0 and raw > 0:
        return "credit withheld: not reasonable" if turn.reasonable is False else "credit withheld"
    if turn.masked:
        return "masked: no gradient"
    if turn.advantage == 0:
        return "no signal"
    if turn.advantage > 0:
        return "rewarded: advances" if turn.advances else "rewarded"
    if not _is_shaped(turn):
        return "penalised"
    drift = f": {counted(turn.drift, 'turn')} without progress from here" if turn.drift is not None else ""
    return f"penalised {'more' if abs(turn.advantage) > abs(raw) else 'less'}{drift}"


def _badges(turn: SampleTurn) -> tuple[tuple[str, str], ...]:
    badges: list[tuple[str, str]] = []
    if turn.subgoal:
        badges.append(("goal", clean(turn.subgoal, 80)))
    if not turn.valid:
        badges.append(("bad", f"invalid: {clean(turn.why, 120)}" if turn.why else "invalid"))
    if turn.reasonable is not None:
        badges.append(("good", "reasonable") if turn.reasonable else ("warn", "not reasonable"))
    if turn.advances is not None:
        badges.append(("good", "advances") if turn.advances else ("flat", "no progress"))
    if turn.drift is not None:
        badges.append(("flat", f"drift {amount(turn.drift)}"))
    if turn.clipped:
        badges.append(("warn", "clipped" if turn.clipped >= 1 else f"clipped {100 * turn.clipped:.0f} %"))
    if turn.masked:
        badges.append(("warn", "masked"))
    if turn.finish and turn.finish != "stop":
        badges.append(("warn", f"cut: {clean(turn.finish, 40)}"))
    return tuple(badges)


def _numbers(turn: SampleTurn) -> str:
    rewards = [f"{clean(part, 40)} {signed(value)}" for part, value in turn.rewards.items() if value]
    said = (
        f"reward {', '.join(rewards)}" if rewards else "",
        f"ratio {turn.ratio:.3f}" if turn.ratio is not None else "",
    )
    return " · ".join(part for part in said if part)


def _sampling(turn: SampleTurn) -> str:
    said = (
        counted(turn.num_tokens, "token") if turn.num_tokens is not None else "",
        f"mean log-probability {turn.logprob_mean:.2f}" if turn.logprob_mean is not None else "",
        f"weights {turn.version}" if turn.version is not None else "",
    )
    return " · ".join(part for part in said if part)


def _advantages(turn: SampleTurn) -> tuple[float, ...]:
    return tuple(value for value in (turn.advantage, turn.raw_advantage) if value is not None and math.isfinite(value))


def _is_shaped(turn: SampleTurn) -> bool:
    if turn.raw_advantage is None or turn.advantage is None:
        return False
    return not math.isclose(turn.raw_advantage, turn.advantage, rel_tol=1e-6, abs_tol=1e-9)


def _bar(value: float, scale: float) -> float:
    return max(-1.0, min(1.0, value / scale)) if scale and math.isfinite(value) else 0.0


def _cell_color(advantage: float | None, scale: float) -> str:
    if advantage is None or not math.isfinite(advantage) or not scale or advantage == 0:
        return "transparent"
    return rgba(BLUE if advantage > 0 else ORANGE, round(0.12 + 0.78 * min(1.0, abs(advantage) / scale), 3))
