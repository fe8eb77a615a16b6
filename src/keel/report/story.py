"""What happened in a run, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from keel.report.diagnosis import diagnoses
from keel.report.intervals import Interval, difference
from keel.report.records import Evaluation, Run
from keel.report.words import amount, bounds, counted, duration, number_of, percent, points, split_name


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number of the headline."""

    label: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A command that makes sense now, and why."""

    command: str
    reason: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What was trained; a dash where the run does not say."""

    environment: str
    method: str
    model: str
    seed: str


def facts(run: Run) -> Facts:
    """What the settings, or else the manifest, say about the run."""
    said = dict(flatten(run.manifest)) | dict(flatten(run.config))
    tiny = any(name.startswith("model.tiny.") for name in said)

    def find(*names: str) -> str:
        return next((said[name] for name in names if said.get(name)), "–")

    return Facts(
        environment=find("env_name", "environment"),
        method=find("method"),
        model=find("model.path", "model") if not tiny or "model.path" in said else "tiny policy",
        seed=find("run.seed", "seed"),
    )


def flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names and texts, in their order."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flatten(cast("dict[str, object]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _written(value)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    return ", ".join(map(_written, cast("list[object]", value))) if isinstance(value, list) else str(value)


def title(run: Run) -> str:
    about = facts(run)
    if about.environment == "–":
        return run.name
    return (
        f"{about.environment}, trained with {about.method.partition('(')[0]}"
        if about.method != "–"
        else about.environment
    )


def headline(run: Run) -> str:
    """One or two sentences: from what to what, in how many steps, how long."""
    spent = f"{number_of(run.last_step, 'RL step')} and {duration(run.seconds)}"
    if run.before_and_after is None:
        known = run.evaluations[-1] if run.evaluations else None
        if known is None:
            return f"No evaluation yet after {spent}."
        return f"One evaluation so far, after RL step {known.step}: {_rate(known)} on {split_name(known.split)} tasks. {spent} in all."
    before, after = run.before_and_after
    start = (
        f"the policy of step {before.step}"
        if before.step
        else "the cloned policy"
        if run.clones
        else "the policy before RL"
    )
    change = difference(before.success, after.success)
    verb = {1: "rose", -1: "fell", 0: "did not change clearly"}[_direction(change)]
    return (
        f"Success on {split_name(after.split)} tasks {verb}: from {_rate(before)} for {start} to {_rate(after)} "
        f"after RL step {after.step}. The run took {spent}."
    )


def tiles(run: Run) -> tuple[Tile, ...]:
    """The large numbers of the headline."""
    made: list[Tile] = []
    pair = run.before_and_after
    if pair is not None:
        before, after = pair
        change = difference(before.success, after.success)
        made.append(
            Tile(
                "before RL" if before.step == 0 else f"step {before.step}",
                percent(before.success.value),
                bounds(before.success),
            )
        )
        made.append(Tile(f"after step {after.step}", percent(after.success.value), bounds(after.success)))
        made.append(
            Tile(
                "change in points", f"{100 * change.value:+.1f}", f"{100 * change.low:+.1f} to {100 * change.high:+.1f}"
            )
        )
    first = f"first metric after {duration(run.first_metric_s)}" if run.first_metric_s is not None else "no metric yet"
    made.append(Tile("time", duration(run.seconds), first))
    made.append(Tile("RL steps", str(run.last_step), _work(run)))
    return tuple(made)


def _work(run: Run) -> str:
    """Sampled tokens, when the run has ended and says how many, and steps without an update."""
    tokens = run.results.get("sampled_tokens")
    said = (
        f"{amount(tokens)} tokens sampled" if isinstance(tokens, int | float) else "",
        f"{len(run.skips)} without an update" if run.skips else "",
    )
    return ", ".join(part for part in said if part)


def _rate(evaluation: Evaluation) -> str:
    return (
        f"{percent(evaluation.success.value)} (95 % interval {bounds(evaluation.success)}, "
        f"{evaluation.successes} of {number_of(evaluation.count, 'episode')})"
    )


def _direction(change: Interval) -> int:
    """1 up, -1 down, 0 when the interval holds zero."""
    return 1 if change.low > 0 else -1 if change.high < 0 else 0


def still_improving(run: Run) -> bool:
    """The last third of the evaluations lies clearly above what was there before it."""
    if not run.splits:
        return False
    evaluations = run.evaluations_of(run.splits[0])
    if len(evaluations) < 4:
        return False
    earlier = evaluations[: -max(1, len(evaluations) // 3)]
    return _direction(difference(earlier[-1].success, evaluations[-1].success)) > 0


def state_notes(run: Run) -> tuple[str, ...]:
    """What a reader must know before trusting the page."""
    notes = list(run.notes)
    if not run.ended:
        notes.insert(
            0,
            f"The run has not ended: it is still going or was stopped. Its last event is {duration(run.seconds)} "
            f"after its start, at RL step {run.last_step}; this page shows what there is.",
        )
    elif run.end_reason:
        notes.append(f"The run ended: {run.end_reason}")
    notes.extend(diagnoses(run))
    if run.alarms:
        first = run.alarms[0]
        notes.append(
            f"{counted(len(run.alarms), 'alarm')}; the first at step {first.step} ({first.level}, {first.dimension}): {first.evidence}"
        )
    if run.skips:
        counts: dict[str, int] = {}
        for skip in run.skips:
            counts[skip.reason] = counts.get(skip.reason, 0) + 1
        notes.extend(f"{counted(count, 'step')} made no update: {reason}" for reason, count in counts.items())
    return tuple(notes)


def advice(run: Run) -> tuple[Advice, ...]:
    """What to run next."""
    folder = shlex.quote(str(run.folder))
    about = facts(run)
    made: list[Advice] = []
    if not run.ended:
        made.append(Advice(f"keel train --resume {folder}", "Go on from the last checkpoint."))
    else:
        made.append(Advice(f"keel eval {folder}", "Evaluate the trained policy again on the held-out tasks."))
    if run.ended and still_improving(run):
        longer = f"keel train --resume {folder} --steps {2 * run.last_step}"
        made.append(Advice(longer, "Success was still rising at the end: train longer."))
    if about.environment != "–":
        # Settings that name their own run folder would write into this one.
        elsewhere = " --out NEW_RUN" if "run.out" in dict(flatten(run.config)) else ""
        seed = int(about.seed) + 1 if about.seed.isdigit() else 1
        again = f"keel train {shlex.quote(about.environment)} --config {folder}/config.toml --seed {seed}{elsewhere}"
        made.append(Advice(again, "One run is one sample: another seed shows how much of the change is luck."))
    if about.method != "–":
        made.append(Advice(f"keel describe {shlex.quote(about.method)}", "The method in the papers' terms."))
    made.append(Advice(f"keel report {folder} OTHER_RUN", "Lay this run over another one."))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under a head."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def family_table(run: Run) -> Table | None:
    """Success of each task family before and after; None without families or a second evaluation."""
    if run.before_and_after is None or not run.before_and_after[1].families:
        return None
    before, after = run.before_and_after
    nan = float("nan")
    rows: list[tuple[str, ...]] = []
    for name, rate in after.families.items():
        first = before.families.get(name, Interval(nan, nan, nan))
        rows.append(
            (
                name,
                percent(first.value),
                bounds(first),
                percent(rate.value),
                bounds(rate),
                points(difference(first, rate)),
            )
        )
    return Table(("family", "before", "95 % interval", "after", "95 % interval", "change in points"), tuple(rows))


def comparison_table(runs: tuple[Run, ...]) -> Table:
    """One row a run: what it was, from what to what, how long."""
    head = ("run", "environment", "method", "seed", "before", "after", "change in points", "RL steps", "time")
    rows: list[tuple[str, ...]] = []
    for run in runs:
        about = facts(run)
        pair = run.before_and_after
        outcome = ("–", "–", "–")
        if pair is not None:
            before, after = (evaluation.success for evaluation in pair)
            outcome = (
                f"{percent(before.value)} ({bounds(before)})",
                f"{percent(after.value)} ({bounds(after)})",
                points(difference(before, after)),
            )
        spent = (str(run.last_step), duration(run.seconds))
        rows.append((run.name, about.environment, about.method, about.seed, *outcome, *spent))
    return Table(head, tuple(rows))


def differing_settings(runs: tuple[Run, ...]) -> Table:
    """The settings in which the runs are not alike."""
    settings = [dict(flatten(run.config)) for run in runs]
    names = dict.fromkeys(name for one in settings for name in one)
    rows = [
        (name, *(one.get(name, "–") for one in settings))
        for name in names
        if len({one.get(name) for one in settings}) > 1
    ]
    return Table(("setting", *(run.name for run in runs)), tuple(rows))
