"""Numbers and foreign texts in words, and the intervals behind them."""

from __future__ import annotations

import math

import pytest

from keel.report.intervals import Interval, difference, rate_of
from keel.report.words import amount, bounds, clean, counted, duration, number_of, percent, plot_text, points, signed


def test_wilson_interval_by_hand() -> None:
    # 5 of 10: centre 0.5, half width 1.96 sqrt(0.025 + 3.8415 / 400) / (1 + 3.8415 / 10) = 0.2634.
    half = rate_of(5, 10)
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.236593, 0.763407), abs=1e-6)


def test_wilson_interval_at_its_ends() -> None:
    # 0 of 10: high = z^2 / (n + z^2).
    assert rate_of(0, 10) == Interval(0.0, 0.0, pytest.approx(3.841459 / 13.841459, abs=1e-6))
    assert rate_of(10, 10) == Interval(1.0, pytest.approx(10 / 13.841459, abs=1e-6), pytest.approx(1.0))


def test_no_episode_has_no_rate() -> None:
    assert math.isnan(rate_of(0, 0).value) and math.isnan(rate_of(0, 0).low)


def test_difference_of_two_rates_matches_the_published_example() -> None:
    # Newcombe 1998, table II, method 10: 56/70 - 48/80 = 0.2, interval 0.0524 to 0.3339.
    change = difference(rate_of(48, 80), rate_of(56, 70))
    assert (change.value, change.low, change.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_control_and_reordering_characters_become_visible() -> None:
    assert clean("a\x00b\x1b[31m\x7f", 100) == "a␀b␛[31m␡"
    assert clean("x\u202eevil\u200b", 100) == "x[U+202E]evil[U+200B]"
    assert clean("lone \ud800 half", 100) == "lone [U+D800] half"
    assert clean("a\r\nb\tc\rd", 100) == "a\nb\tc␍d"


def test_a_long_text_is_cut_and_the_rest_counted() -> None:
    assert clean("x" * 5000, 3) == "xxx … [4,997 more characters]"


def test_cleaning_twice_changes_nothing() -> None:
    once = clean("a\x00\u202e\ud800" * 3, 100)
    assert clean(once, 1000) == once


def test_labels_of_plots_cannot_hold_markup() -> None:
    assert plot_text("<b>run</b>\n1") == "&lt;b&gt;run&lt;/b&gt; 1"


def test_numbers_in_words() -> None:
    assert percent(0.41406) == "41.4 %"
    assert percent(math.nan) == "–"
    assert bounds(Interval(0.4, 0.372, 0.457)) == "37.2 to 45.7 %"
    assert points(Interval(0.33, 0.271, 0.386)) == "+33.0 (+27.1 to +38.6)"
    assert [duration(s) for s in (1.25, 59.7, 232, 3725, math.nan)] == [
        "1.2 s",
        "1 min 0 s",
        "3 min 52 s",
        "1 h 2 min",
        "–",
    ]
    assert [amount(v) for v in (0.00312, 128.0, 15_000, 1_240_000, math.inf)] == [
        "0.00312",
        "128",
        "15 k",
        "1.24 M",
        "inf",
    ]
    assert [signed(v) for v in (0.7071, -0.02, 0.0, -0.004)] == ["+0.71", "-0.02", "0", "-0.004"]


def test_one_thing_is_singular() -> None:
    assert [counted(n, "turn") for n in (0, 1, 2, 12_400)] == ["0 turns", "1 turn", "2 turns", "12.4 k turns"]
    assert [number_of(n, "turn") for n in (0, 1, 2, 12_400)] == ["0 turns", "1 turn", "2 turns", "12400 turns"]
    assert [number_of(n, "vertex", "vertices") for n in (1, 2)] == ["1 vertex", "2 vertices"]
