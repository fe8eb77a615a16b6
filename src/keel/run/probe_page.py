"""What the probes found, as one offline page, as text for the terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import plotly.graph_objects as go

from keel.report.html import FigureView
from keel.report.page import boot_script, figure_data, plotly_script, render, write_page
from keel.report.palette import GREY, rgba
from keel.report.words import clean, number_of
from keel.run.auditing import Audit
from keel.run.probing import Probed
from keel.study.probe import Estimate, NoiseResult, Rate, SuppressionResult
from keel.study.probe_view import (
    audit_figure,
    audit_table,
    noise_figure,
    noise_table,
    suppression_figure,
    suppression_table,
)

_NOISE = (
    "The environment is put back into the same state; only the history that the policy is shown differs. Rates are over all "
    "continuations, with Wilson intervals; the interval of the difference is over points, paired by seed."
)
_SUPPRESSION = (
    "Non-advancing turns of failed episodes. From the point before such a turn the policy plays on, once freely and once with the "
    "recorded action forbidden as the first one. An earlier point also has more time left: compare with the grey control."
)
_AUDIT = (
    "Shares over turns, with intervals over trajectories. Unreasonable turns in successes are what uniform credit reinforces by "
    "mistake; non-advancing turns in failures are what it punishes alike, early or late."
)
_TASK_LIMIT = 60


@dataclass(frozen=True, slots=True)
class TableView:
    """A table in its page."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    reading: str
    figure: FigureView | None
    tables: tuple[TableView, ...]


def as_text(probed: Probed, audited: Audit) -> str:
    """The three tables and what must be known, in Markdown."""
    parts: list[str] = []
    if probed.pooled is not None:
        parts += [f"Context noise, {number_of(len(probed.noise), 'point')}\n", noise_table(probed.pooled), ""]
    if probed.suppression is not None:
        parts += ["Action suppression\n", suppression_table(probed.suppression), ""]
    if audited.rows:
        parts += [
            f"Audit, {number_of(audited.audited, 'saved trajectory', 'saved trajectories')}\n",
            audit_table(audited.rows),
            "",
        ]
    parts += [f"note: {note}" for note in notes_of(probed, audited)]
    return "\n".join([*parts, _played(probed)])


def as_json(probed: Probed, audited: Audit) -> dict[str, object]:
    """Everything that was measured, as plain data."""
    return {
        "settings": asdict(probed.settings),
        "episodes": _rate(probed.successes),
        "context_noise": {
            "pooled": None if probed.pooled is None else _noise(probed.pooled),
            "points": [{"task_id": at.task_id, "step": at.step, **_noise(at.result)} for at in probed.noise],
        },
        "suppression": {
            "trend": None if probed.suppression is None else _estimate(probed.suppression.trend),
            "rows": [
                {
                    "task_id": at.task_id,
                    "step": at.row.step,
                    "action": at.row.action,
                    "drift": at.row.drift,
                    "control": _rate(at.row.control),
                    "suppressed": _rate(at.row.rate),
                    "difference": _estimate(at.row.difference),
                }
                for at in probed.suppressed
            ],
        },
        "audit": [
            {
                "step": row.step,
                "unreasonable_in_success": _estimate(row.unreasonable_in_success),
                "stagnant_in_failure": _estimate(row.stagnant_in_failure),
            }
            for row in audited.rows
        ],
        "continuations": probed.continuations,
        "env_steps": probed.num_turns,
        "forced": probed.forced,
        "errors": dict(probed.errors),
        "seconds": probed.seconds,
        "notes": list(notes_of(probed, audited)),
    }


def write_probe_page(path: Path, run: str, probed: Probed, audited: Audit) -> Path:
    """Write the page; it needs no network.

    Args:
        path: where.
        run: what was probed, in words.
        probed: the experiments.
        audited: the saved trajectories.
    """
    sections = [s for s in (_noise_section(probed), _suppression_section(probed), _audit_section(audited)) if s]
    context = {
        "title": f"Probes of {clean(run, 120)}",
        "subtitle": _played(probed),
        "notes": [clean(note, 1000) for note in notes_of(probed, audited)],
        "sections": sections,
        "scripts": (plotly_script(), boot_script()),
    }
    return write_page(path, render("probe.html.j2", context))


def notes_of(probed: Probed, audited: Audit) -> tuple[str, ...]:
    """What the reader must know."""
    notes = list(probed.notes)
    if probed.forced:
        notes.append(
            f"{number_of(probed.forced, 'continuation')} began with an admissible action drawn evenly, since the policy would only sample the "
            "forbidden one"
        )
    notes += [
        f"{number_of(count, 'continuation')} failed, counted as not solved: {cause}"
        for cause, count in probed.errors.items()
    ]
    if audited.left_out:
        notes.append(
            f"{number_of(audited.left_out, 'saved trajectory', 'saved trajectories')} could not be carried out again exactly, not in the audit"
        )
    if not audited.rows:
        notes.append("the run kept no trajectories that can be audited")
    return tuple(notes)


def _played(probed: Probed) -> str:
    per_second = probed.num_turns / probed.seconds if probed.seconds else 0.0
    return (
        f"{number_of(probed.successes.trials, 'episode')} of {number_of(probed.settings.tasks, 'training task')}, success {probed.successes}; "
        f"{number_of(probed.continuations, 'continuation')} of {number_of(probed.num_turns, 'turn')}, {probed.seconds:.1f} s, {per_second:.0f} turns/s"
    )


def _noise_section(probed: Probed) -> Section | None:
    if probed.pooled is None:
        return None
    rows = [
        (
            clean(at.task_id, _TASK_LIMIT),
            str(at.step),
            str(at.result.clean),
            str(at.result.noisy),
            str(at.result.difference),
            " → ".join(clean(record.action, 40) for record in at.result.noise),
        )
        for at in probed.noise
    ]
    pooled = probed.pooled
    rows.append(("all points", "", str(pooled.clean), str(pooled.noisy), str(pooled.difference), ""))
    head = ("task", "before step", "as it was", "with noise", "difference", "injected turns")
    return Section("Context noise", _NOISE, _figure(noise_figure(pooled)), (TableView("", head, tuple(rows)),))


def _suppression_section(probed: Probed) -> Section | None:
    if probed.suppression is None:
        return None
    rows = tuple(
        (
            clean(at.task_id, _TASK_LIMIT),
            str(at.row.step),
            clean(at.row.action, 60),
            str(at.row.drift),
            str(at.row.control),
            str(at.row.rate),
            str(at.row.difference),
        )
        for at in probed.suppressed
    )
    head = ("task", "step", "suppressed action", "Future-Drift", "nothing suppressed", "suppressed", "difference")
    trend = probed.suppression.trend
    said = (
        "no trend: all drifts or all rates are equal"
        if trend is None
        else f"rank correlation of drift and success {trend}"
    )
    return Section(
        "Action suppression",
        _SUPPRESSION,
        _figure(_suppression_figure(probed.suppression)),
        (TableView(said, head, rows),),
    )


def _audit_section(audited: Audit) -> Section | None:
    if not audited.rows:
        return None
    rows = tuple(
        (str(row.step), _percent(row.unreasonable_in_success), _percent(row.stagnant_in_failure))
        for row in audited.rows
    )
    head = ("training step", "unreasonable in successes", "non-advancing in failures")
    return Section(
        "Audit",
        _AUDIT,
        _figure(audit_figure(audited.rows), 1 if audited.rows[-1].step <= 10 else None),
        (TableView("", head, rows),),
    )


def _suppression_figure(found: SuppressionResult) -> go.Figure:
    """Points without lines, since several episodes share a drift, and the two kinds a little apart."""
    figure = suppression_figure(found)
    figure.update_traces(mode="markers", marker_size=8)
    drifts = sorted(row.drift for row in found.rows)
    for name, shift in (("nothing suppressed", -0.3), ("action suppressed", 0.3)):
        figure.update_traces(x=[drift + shift for drift in drifts], selector={"name": name})
    return figure


def _figure(figure: go.Figure, tick: int | None = None) -> FigureView:
    """In the dress of the report: transparent ground, and a font that the page may recolour."""
    figure.update_layout(
        template=go.layout.Template(),
        title=None,
        height=360,
        margin={"l": 66, "r": 16, "t": 40, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": GREY},
        meta={"switch": False},
    )
    figure.update_xaxes(gridcolor=rgba(GREY, 0.22), linecolor=rgba(GREY, 0.5), zeroline=False, dtick=tick)
    figure.update_yaxes(gridcolor=rgba(GREY, 0.22), linecolor=rgba(GREY, 0.5), zeroline=False)
    return FigureView("", "", figure_data(figure))


def _percent(share: Estimate | None) -> str:
    return "–" if share is None else f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"


def _noise(result: NoiseResult) -> dict[str, object]:
    return {
        "clean": _rate(result.clean),
        "noisy": _rate(result.noisy),
        "difference": _estimate(result.difference),
        "noise": [record.action for record in result.noise],
    }


def _rate(rate: Rate) -> dict[str, float]:
    low, high = rate.interval
    return {"successes": rate.successes, "trials": rate.trials, "value": rate.value, "low": low, "high": high}


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else asdict(estimate)
