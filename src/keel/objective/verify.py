"""`keel verify`: one table, method x check, and the golden vectors behind it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from keel.errors import KeelError
from keel.objective.conformance import credit, losses, training
from keel.objective.conformance.checks import PROPERTIES, Check, reference
from keel.objective.conformance.references import Subject, subjects, vector_keys
from keel.objective.conformance.vectors import Adapter, Verdict, check_all, load
from keel.objective.definition import Method
from keel.objective.resolve import resolve

ADAPTERS: Mapping[str, Adapter] = {**losses.ADAPTERS, **credit.ADAPTERS, **training.ADAPTERS}
"""Golden vector function -> how Keel computes it."""

_BLOWN_UP = "released: the penalty is normalised with the reward, so it is blown up where all failed"

DELIBERATE: Mapping[tuple[str, str], str] = {
    ("grpo(released)", "phantom"): _BLOWN_UP,
    ("gigpo(released)", "phantom"): _BLOWN_UP,
    ("sampo(released)", "phantom"): _BLOWN_UP,
    (
        "gdpo",
        "phantom",
    ): "published: the sum is whitened over the batch, which enlarges all of it when few groups differ",
}
"""Checks that a method fails on purpose, because it reproduces what it is named after, and why."""

COLUMNS = ("vectors", "reference", *(name for name, _ in PROPERTIES))


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked, in words, and whether all is well."""

    text: str
    ok: bool


def verify(target: str | None = None, vectors: Path | None = None) -> Report:
    """Check all methods, or one, against vectors, loop-written references and invariances.

    Args:
        target: a method expression; None: every method of Keel.
        vectors: a file in the format of `conformance.vectors`; None: the vectors that ship with Keel.

    Raises:
        SettingError: the expression names no method.
        DataError: the vector file cannot be read.
    """
    started = time.perf_counter()
    cases = load(vectors)
    chosen = subjects() if target is None else (_subject(target),)
    verdicts, uncovered = check_all(cases, ADAPTERS)
    rows = [_row(subject, verdicts) for subject in chosen]
    failures = [
        (v.group, v.check, v.detail) for row in rows for v in row if v.status == "FAIL" and v.check != "vectors"
    ]
    failures += [(v.group, v.check, v.detail) for v in verdicts if v.status == "FAIL"]
    excused = [v for row in rows for v in row if v.status == "differs"]
    lines = [*_table(rows), "", *_vector_lines(verdicts, uncovered)]
    if excused:
        lines += ["", "On purpose:", *(f"  {v.group} / {v.check}: {v.detail}" for v in excused)]
    if failures:
        lines += ["", "Failures:", *(f"  {group} / {check}: {detail}" for group, check, detail in failures)]
    seconds = time.perf_counter() - started
    checks = len(verdicts) + sum(1 for row in rows for v in row if v.check != "vectors" and v.status != "-")
    outcome = "all as expected" if not failures else f"{len(failures)} failed"
    lines += ["", f"{_number_of(len(rows), 'method')}, {_number_of(checks, 'check')}, {outcome}, {seconds:.1f} s"]
    return Report("\n".join(lines), not failures)


def run(target: str | None = None, vectors: Path | None = None) -> int:
    """`verify`, written to standard output. Exit status: 0 if all is as expected, else 1."""
    report = verify(target, vectors)
    sys.stdout.write(report.text + "\n")
    return 0 if report.ok else 1


def _subject(target: str) -> Subject:
    method = resolve(target)
    known = {subject.method.name: subject for subject in subjects()}
    same = known.get(method.name)
    return Subject(method, same.opinion if same is not None and same.method == method else None)


def _row(subject: Subject, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """One verdict per column."""
    method, opinion = subject.method, subject.opinion
    compared = Verdict(method.name, "reference", "-")
    if opinion is not None:
        compared = _verdict(method, "reference", lambda method: reference(method, opinion))
    return [_pinned(method, verdicts), compared, *(_verdict(method, name, check) for name, check in PROPERTIES)]


def _pinned(method: Method, verdicts: Sequence[Verdict]) -> Verdict:
    """The golden vectors of the method's pieces."""
    keys = vector_keys(method)
    found = Counter(verdict.status for verdict in verdicts if verdict.group in keys)
    if not found:
        return Verdict(method.name, "vectors", "-")
    return Verdict(method.name, "vectors", "FAIL" if found["FAIL"] else "pass", str(found["pass"]))


def _verdict(method: Method, name: str, check: Check) -> Verdict:
    """Run a check; an error of Keel's is a failure with its message."""
    try:
        problem = check(method)
    except KeelError as error:
        problem = f"{type(error).__name__}: {error}"
    if problem and (method.name, name) in DELIBERATE:
        return Verdict(method.name, name, "differs", f"{DELIBERATE[method.name, name]} ({problem})")
    return Verdict(method.name, name, "FAIL" if problem else "pass", problem)


def _table(rows: Sequence[Sequence[Verdict]]) -> list[str]:
    cells = [["method", *COLUMNS]]
    for row in rows:
        shown = [v.detail if v.check == "vectors" and v.status == "pass" else _SHOWN[v.status] for v in row]
        cells.append([row[0].group, *shown])
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


_SHOWN: Mapping[str, str] = {"pass": "ok", "FAIL": "FAIL", "differs": "on purpose", "-": "-"}


def _number_of(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _vector_lines(verdicts: Sequence[Verdict], uncovered: Sequence[str]) -> list[str]:
    status = Counter(verdict.status for verdict in verdicts)
    functions = len({verdict.group for verdict in verdicts})
    lines = [
        f"Golden vectors: {_number_of(functions, 'function')}, {_number_of(status['pass'], 'case')} equal, "
        f"{status['differs']} different on purpose, {status['FAIL']} failed"
    ]
    reasons = Counter(verdict.detail for verdict in verdicts if verdict.status == "differs")
    lines += [f"  {count:4d}  {reason}" for reason, count in reasons.most_common()]
    if uncovered:
        lines.append(f"Functions not covered: {', '.join(uncovered)}")
    return lines
