"""Numbers and foreign texts as a reader should see them."""

from __future__ import annotations

import html
import math
import re

from keel.report.intervals import Interval

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and new line
    "\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff"  # invisible, or able to reorder what follows
    "\ud800-\udfff]"  # lone surrogates, which no file can hold
)


def clean(text: str, limit: int) -> str:
    """A text of a model or environment made visible and finite. Escaping for HTML is not done here.

    Control, invisible and direction-changing characters become visible symbols; what is beyond `limit` is counted.

    Args:
        text: anything.
        limit: characters of it to keep.
    """
    kept = _UNSAFE.sub(_visible, text[:limit].replace("\r\n", "\n"))
    more = len(text) - limit
    return f"{kept} … [{more:,} more characters]" if more > 0 else kept


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"[U+{code:04X}]"


def split_name(split: str) -> str:
    """`held_out` -> `held-out`."""
    return split.replace("_", "-")


def plot_text(text: str) -> str:
    """A foreign text for a plotly label, which understands some HTML."""
    return html.escape(clean(text, 60).replace("\n", " "))


def percent(share: float) -> str:
    """`0.4141` -> `41.4 %`; NaN is a dash."""
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


def bounds(interval: Interval) -> str:
    """`37.2 to 45.7 %`."""
    return "–" if math.isnan(interval.low) else f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"


def points(interval: Interval) -> str:
    """A difference of shares in percentage points: `+33.0 (27.1 to 38.6)`."""
    return f"{100 * interval.value:+.1f} ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"


def duration(seconds: float) -> str:
    """`232` -> `3 min 52 s`."""
    if not math.isfinite(seconds):
        return "–"
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def amount(value: float) -> str:
    """A number with about three significant digits: `1.24 M`, `0.0031`, `128`."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else str(value)
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1e3 if size == 1e4 else size):.3g}{unit}"
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def counted(count: float, thing: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{amount(count)} {thing}" + ("" if count == 1 else "s")


def number_of(count: int, thing: str, things: str = "") -> str:
    """`1 step`, `1240 steps`: like `counted`, but the exact number; `things` where a plural is irregular."""
    return f"{count} {thing if count == 1 else things or thing + 's'}"


def signed(value: float) -> str:
    """`0.7071` -> `+0.71`; zero has no sign, a small number keeps two digits."""
    if value == 0:
        return "0"
    return f"{value:+.2f}" if abs(value) >= 0.01 else f"{value:+.1g}"
