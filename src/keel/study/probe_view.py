"""Results of the probes as Markdown tables and as plots."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from keel.report.words import clean, plot_text
from keel.study.probe import AuditRow, Estimate, NoiseResult, Rate, SuppressionResult

_CELL_LIMIT = 200
_BLUE, _RED, _GREY = "#3b6fb6", "#c2503f", "#8a939d"


def noise_table(result: NoiseResult) -> str:
    """Expected success with and without noise."""
    return _table(
        ("visible history", "successes", "expected success [95 %]"),
        [
            ("as it was", _of(result.clean), str(result.clean)),
            (f"with {len(result.noise)} unreasonable turns", _of(result.noisy), str(result.noisy)),
            ("difference", "", str(result.difference)),
        ],
    )


def suppression_table(result: SuppressionResult) -> str:
    """One row a suppressed action, and the trend with drift below."""
    rows = [(str(r.step), r.action, str(r.drift), str(r.control), str(r.rate), str(r.difference)) for r in result.rows]
    trend = (
        "no trend: all drifts or all rates are equal"
        if result.trend is None
        else f"rank correlation of drift and success: {result.trend}"
    )
    head = ("step", "suppressed action", "Future-Drift", "nothing suppressed", "suppressed [95 %]", "difference")
    return f"{_table(head, rows)}\n\n{trend}"


def audit_table(rows: Sequence[AuditRow]) -> str:
    """Shares of bad turns by training step."""
    head = ("training step", "unreasonable in successes", "non-advancing in failures")
    return _table(head, [(str(r.step), _share(r.unreasonable_in_success), _share(r.stagnant_in_failure)) for r in rows])


def noise_figure(result: NoiseResult) -> go.Figure:
    """Two bars with intervals."""
    names = ["as it was", f"with {len(result.noise)} unreasonable turns"]
    rates = [result.clean, result.noisy]
    figure = go.Figure(
        go.Bar(x=names, y=[r.value for r in rates], error_y=_errors(rates), marker_color=[_BLUE, _RED], width=0.5)
    )
    return _styled(figure, "Success from the same state, by visible history", "visible history")


def suppression_figure(result: SuppressionResult) -> go.Figure:
    """Expected success against Future-Drift, suppressed and not."""
    rows = sorted(result.rows, key=lambda row: row.drift)
    drift = [row.drift for row in rows]
    figure = go.Figure()
    for name, rates, colour in (
        ("nothing suppressed", [row.control for row in rows], _GREY),
        ("action suppressed", [row.rate for row in rows], _BLUE),
    ):
        figure.add_scatter(
            x=drift,
            y=[rate.value for rate in rates],
            error_y=_errors(rates),
            mode="lines+markers",
            name=name,
            line_color=colour,
            text=[f"step {row.step}: {plot_text(row.action)}" for row in rows],
        )
    return _styled(figure, "Success when one action is suppressed", "Future-Drift of the suppressed action")


def audit_figure(rows: Sequence[AuditRow]) -> go.Figure:
    """Both shares by training step, with bands."""
    figure = go.Figure()
    for name, colour, found in (
        ("unreasonable in successes", _RED, [(r.step, r.unreasonable_in_success) for r in rows]),
        ("non-advancing in failures", _BLUE, [(r.step, r.stagnant_in_failure) for r in rows]),
    ):
        known = [(step, share) for step, share in found if share is not None]
        figure.add_scatter(
            x=[step for step, _ in known],
            y=[share.value for _, share in known],
            error_y=_bars([s.value for _, s in known], [(s.low, s.high) for _, s in known]),
            mode="lines+markers",
            name=name,
            line_color=colour,
        )
    return _styled(
        figure, "Turns that should not be reinforced, and turns that went nowhere", "training step", "share of turns"
    )


def _cell(text: str) -> str:
    """A text of a model or environment as one cell: neither a bar nor a new line ends it."""
    return clean(text, _CELL_LIMIT).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _styled(figure: go.Figure, title: str, x: str, y: str = "expected success") -> go.Figure:
    return figure.update_layout(
        title=title,
        template="plotly_white",
        xaxis_title=x,
        yaxis={"title": y, "range": [0, 1.02], "tickformat": ".0%"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )


def _errors(rates: Sequence[Rate]) -> dict[str, object]:
    return _bars([rate.value for rate in rates], [rate.interval for rate in rates])


def _bars(values: Sequence[float], intervals: Sequence[tuple[float, float]]) -> dict[str, object]:
    pairs = list(zip(values, intervals, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, (_, high) in pairs],
        "arrayminus": [value - low for value, (low, _) in pairs],
    }


def _of(rate: Rate) -> str:
    return f"{rate.successes}/{rate.trials}"


def _share(share: Estimate | None) -> str:
    return "-" if share is None else f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)
