"""A run that has learned nothing is told why, and one that learns is told nothing."""

from __future__ import annotations

import pytest
from report_run_folders import RunMaker, event

from keel.report.diagnosis import diagnoses
from keel.report.html import write_report
from keel.report.load import load_run


def steps(count: int, skipped: int, **metrics: float) -> list[dict[str, object]]:
    """Events of some steps with the same metrics; the last `skipped` of them made no update."""
    made: list[dict[str, object]] = []
    for n in range(1, count + 1):
        if n > count - skipped:
            made.append(event("skip", n, n, reason="0 of 4 groups informative"))
        made.append(event("step", n, n, metrics={name.replace("__", "/"): value for name, value in metrics.items()}))
    return made


HEALTHY = {"truncated": 0.1, "valid_format": 0.9, "episodes__failed": 0, "groups__sampled": 4}


@pytest.mark.parametrize(
    ("metrics", "parts"),
    [
        ({}, ["tasks are too hard for the policy as it starts", "clone.target_success", "rollout.group_size"]),
        ({"valid_format": 0.25}, ["Only 25.0 % of the responses are valid", "clone.max_updates"]),
        ({"valid_format": 0.0, "truncated": 0.75}, ["75.0 % of the responses were cut", "prompt.max_new_tokens"]),
        ({"episodes__failed": 8}, ["32 episodes failed in the environment", "keel check-env"]),
    ],
)
@pytest.mark.parametrize("skipped", [0, 4])
def test_a_run_without_any_success_names_cause_and_remedy(
    metrics: dict[str, float], parts: list[str], skipped: int, make_run: RunMaker
) -> None:
    run = load_run(make_run(events=steps(4, skipped, **{**HEALTHY, "success": 0.0, **metrics})))
    (found,) = diagnoses(run)
    assert found.startswith("No training episode was solved in 4 steps")
    for part in parts:
        assert part in found


@pytest.mark.parametrize(
    ("reasons", "part"),
    [
        ({"groups/solved by all": 3.0, "groups/failed by all": 1.0}, "too easy by now"),
        ({"groups/solved by all": 1.0, "groups/failed by all": 3.0}, "all siblings failed"),
        ({"groups/equal env returns": 4.0}, "panel of groups without signal"),
    ],
)
def test_a_run_of_skipped_steps_names_cause_and_remedy(
    reasons: dict[str, float], part: str, make_run: RunMaker
) -> None:
    run = load_run(make_run(events=steps(5, 4, **HEALTHY, success=0.2, **reasons)))
    (found,) = diagnoses(run)
    assert found.startswith("4 of 5 steps had no group whose siblings differ") and part in found


@pytest.mark.parametrize(
    ("count", "skipped", "success"),
    [(2, 0, 0.0), (2, 2, 0.2), (5, 3, 0.2), (20, 0, 0.001)],
    ids=["too short", "too short to be skipped", "some steps skipped", "one success"],
)
def test_a_run_that_learns_or_has_hardly_begun_has_no_finding(
    count: int, skipped: int, success: float, make_run: RunMaker
) -> None:
    assert diagnoses(load_run(make_run(events=steps(count, skipped, **HEALTHY, success=success)))) == ()


def test_the_finding_is_on_the_page(make_run: RunMaker) -> None:
    page = write_report(make_run(events=steps(4, 0, **HEALTHY, success=0.0))).read_text()
    assert "No training episode was solved in 4 steps" in page
