"""Read a run folder. Nothing here imports the code that wrote it."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from keel.errors import DataError
from keel.report.fields import Fields, read_json, read_json_lines
from keel.report.intervals import Interval, rate_of
from keel.report.records import Alarm, CloneRecord, Evaluation, Run, Skip, StepRecord
from keel.report.words import counted

KINDS = ("start", "clone", "eval", "step", "skip", "alarm", "end")


def load_run(folder: Path) -> Run:
    """Read a run folder.

    A last line that was cut off is left out with a note. Steps that a resume made again replace the earlier ones.

    Args:
        folder: a folder that `keel train` wrote.

    Raises:
        DataError: there is no such folder, it is no run folder, it has no event yet, or a file is damaged.
    """
    _check_folder(folder)
    events = read_json_lines(folder / "events.jsonl")
    if not events.rows:
        raise DataError(
            f"{folder / 'events.jsonl'} holds no complete event: the run has only just begun or stopped at once. "
            "Wait for its first metric, or start it again."
        )
    log = _Log()
    for row in events.rows:
        log.add(row)
    config_text = _text_or_empty(folder / "config.toml")
    return Run(
        folder=folder,
        config=_parse_toml(config_text, folder / "config.toml"),
        config_text=config_text,
        manifest=_json_or_empty(folder / "manifest.json"),
        results=_json_or_empty(folder / "results.json"),
        steps=tuple(log.steps),
        evaluations=tuple(log.evaluations),
        clones=tuple(log.clones),
        skips=tuple(log.skips),
        alarms=tuple(log.alarms),
        ended=log.ended,
        end_reason=log.end_reason,
        seconds=log.seconds,
        first_metric_s=log.first_metric_s,
        notes=tuple(note for note in (events.note, *log.notes()) if note),
    )


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        raise DataError(f"no such run folder: {folder}. Expected a folder that `keel train` wrote, such as runs/NAME.")
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; expected a run folder that `keel train` wrote.")
    if not (folder / "events.jsonl").is_file():
        inside = sorted(path.parent.name for path in folder.glob("*/events.jsonl"))
        hint = f" It holds runs, name one of them: {', '.join(inside[:5])}." if inside else ""
        raise DataError(f"{folder} is no run folder: it has no events.jsonl, which `keel train` writes first.{hint}")


@dataclass(slots=True)
class _Log:
    """Sorts events into records while they are read."""

    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    clones: list[CloneRecord] = field(default_factory=list[CloneRecord])
    skips: list[Skip] = field(default_factory=list[Skip])
    alarms: list[Alarm] = field(default_factory=list[Alarm])
    unknown: dict[str, int] = field(default_factory=dict[str, int])
    ended: bool = False
    end_reason: str = ""
    seconds: float = 0.0
    first_metric_s: float | None = None
    num_starts: int = 0
    num_replaced: int = 0
    offset_s: float = 0.0
    """Time of the earlier commands of a resumed run."""
    resumed: bool = False
    """A later command has begun and has made no step yet."""

    def add(self, row: Fields) -> None:
        kind = row.text("kind")
        if kind not in KINDS:
            self.unknown[kind] = self.unknown.get(kind, 0) + 1
            return
        if kind == "start":
            self._start(row)
        self.seconds = max(self.seconds, row.number("seconds") + self.offset_s)
        at = row.number("seconds") + self.offset_s
        match kind:
            case "step":
                self._rewind(row.integer("step"))
                self.steps.append(StepRecord(row.integer("step"), at, row.numbers("metrics")))
            case "eval":
                self.evaluations.append(_evaluation(row, at))
            case "clone":
                success = row.optional_number("success")
                self.clones.append(CloneRecord(at, row.integer("update"), row.number("loss"), success))
            case "skip":
                self._rewind(row.integer("step"))
                self.skips.append(Skip(row.integer("step"), at, row.text("reason")))
            case "alarm":
                words = (row.text("level"), row.text("dimension"), row.text("evidence"))
                self.alarms.append(Alarm(row.integer("step"), at, *words))
            case _:
                self.ended = kind == "end"
                self.end_reason = (row.optional_text("reason") or "") if self.ended else ""
        if self.first_metric_s is None and kind in ("step", "eval", "clone"):
            self.first_metric_s = at

    def _start(self, row: Fields) -> None:
        self.num_starts += 1
        self.resumed = self.num_starts > 1
        if row.number("seconds") + self.offset_s < self.seconds:
            self.offset_s = self.seconds

    def _rewind(self, step: int) -> None:
        """Leave out what the first step after a resume makes again."""
        if not self.resumed:
            return
        self.resumed = False
        kept = [record for record in self.steps if record.step < step]
        self.num_replaced += len(self.steps) - len(kept)
        self.steps = kept
        self.skips = [record for record in self.skips if record.step < step]
        self.alarms = [record for record in self.alarms if record.step < step]
        self.evaluations = [record for record in self.evaluations if record.step < step]

    def notes(self) -> list[str]:
        notes = [f"{count} events of unknown kind {kind!r} are left out." for kind, count in self.unknown.items()]
        if self.num_starts > 1:
            again = f"; {counted(self.num_replaced, 'step')} made again, each counted once" if self.num_replaced else ""
            notes.append(f"The run was resumed {counted(self.num_starts - 1, 'time')}{again}. Times are added up.")
        return notes


def _evaluation(row: Fields, seconds: float) -> Evaluation:
    successes, count = row.integer("successes"), row.integer("count")
    if not 0 <= successes <= count:
        raise DataError(f"{row.where}: {successes} successes of {count} episodes; expected 0 <= successes <= count.")
    computed = rate_of(successes, count)
    low, high = row.optional_number("low"), row.optional_number("high")
    recorded = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
    return Evaluation(
        step=row.integer("step"),
        seconds=seconds,
        split=row.text("split"),
        successes=successes,
        count=count,
        success=Interval(computed.value, cast("float", low), cast("float", high)) if recorded else computed,
        mean_return=row.optional_number("return"),
        turns=row.optional_number("turns"),
        valid_format=row.optional_number("valid_format"),
        families=_families(row),
    )


def _families(row: Fields) -> dict[str, Interval]:
    families = Fields(row.optional_mapping("families"), f"{row.where}, families")
    rates: dict[str, Interval] = {}
    for name, value in families.data.items():
        match value:
            case [int() as successes, int() as count] if 0 <= successes <= count:
                rates[name] = rate_of(successes, count)
            case _:
                raise families.fail(name, "[successes, count]")
    return rates


def _text_or_empty(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _json_or_empty(path: Path) -> dict[str, object]:
    return read_json(path) if path.is_file() else {}


def _parse_toml(text: str, path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(
            f"{path}: not readable as TOML ({error}). Repair the line or copy the run's settings again."
        ) from error
