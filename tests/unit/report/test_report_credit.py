"""The credit view: who was rewarded, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_run_folders import RunMaker, trajectory, turn

from keel.errors import DataError
from keel.report.credit_view import MAX_TURNS, group_views, verdict, write_credit_view
from keel.report.records import SampleTurn
from keel.report.trajectories import choose, load_samples


def load_turn(make_run: RunMaker, **fields: object) -> SampleTurn:
    samples = load_samples(make_run(trajectories=[trajectory(True, 0, [turn(**fields)])]))  # type: ignore[arg-type]
    assert samples is not None
    return samples.trajectories[0].turns[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"advantage": None}, "not trained on"),
        ({"advantage": 0.7, "masked": True}, "masked: no gradient"),
        ({"advantage": 0.0, "raw_advantage": 0.7, "rea": False}, "credit withheld: not reasonable"),
        ({"advantage": 0.0, "raw_advantage": 0.7, "masked": True}, "credit withheld"),
        ({"advantage": 0.0}, "no signal"),
        ({"advantage": 0.7, "raw_advantage": 0.7, "pa": True}, "rewarded: advances"),
        ({"advantage": 0.7}, "rewarded"),
        ({"advantage": -0.7}, "penalised"),
        ({"advantage": -0.9, "raw_advantage": -0.6, "drift": 4}, "penalised more: 4 turns without progress from here"),
        ({"advantage": -0.2, "raw_advantage": -0.6, "drift": 1}, "penalised less: 1 turn without progress from here"),
    ],
)
def test_verdict_of_a_turn(make_run: RunMaker, fields: dict[str, object], expected: str) -> None:
    assert verdict(load_turn(make_run, **fields)) == expected


def test_group_view_by_hand(make_run: RunMaker) -> None:
    won = [
        turn(0.5, raw_advantage=0.5, rea=True, pa=True, drift=0, subgoal="box on target"),
        turn(0.0, raw_advantage=0.5, rea=False, pa=False),
    ]
    lost = [
        turn(-1.0, raw_advantage=-0.5, rea=False, pa=False, drift=2, clipped=0.25),
        turn(-0.25, valid=False, why="no <action>"),
    ]
    samples = load_samples(make_run(trajectories=[trajectory(True, 0, won), trajectory(False, 0, lost)]))
    assert samples is not None
    (view,) = group_views(samples)
    assert view.headline == "1 of 2 solved it. Mean advantage of a turn: +0.25 in successes, -0.62 in failures."
    assert (view.shaped, view.annotated, view.num_columns) == (True, True, 2)
    first, second = view.trajectories
    assert first.summary == "Of 2 turns: 1 rewarded, 1 lost their credit in shaping, 1 advanced."
    assert second.outcome == "failed after 2 turns (turn limit)"
    assert [one.bar for one in (*first.turns, *second.turns)] == [0.5, 0.0, -1.0, -0.25]
    assert [one.raw_bar for one in first.turns] == [0.5, 0.5]
    assert [one.symbol for one in (*first.turns, *second.turns)] == ["▲", "○", "○", "×"]
    assert ("goal", "box on target") in first.turns[0].badges
    assert ("warn", "clipped 25 %") in second.turns[0].badges
    assert ("bad", "invalid: no <action>") in second.turns[1].badges
    assert (second.turns[0].raw_advantage, second.turns[0].advantage) == ("-0.50", "-1.00")


def test_masked_turns_are_marked_and_neither_rewarded_nor_penalised(make_run: RunMaker, tmp_path: Path) -> None:
    won = [turn(0.5, masked=True), turn(0.5), turn(-0.5, masked=True, valid=False)]
    run = make_run(trajectories=[trajectory(True, 0, won), trajectory(False, 1, [turn(-0.5)])])
    samples = load_samples(run)
    assert samples is not None
    first, second = group_views(samples)
    assert (first.masked, second.masked) == (True, False)
    shown = first.trajectories[0]
    assert shown.summary == "Of 3 turns: 1 rewarded, 1 invalid, 2 masked."
    assert [one.symbol for one in shown.turns] == ["■", "", "×"]
    assert [("warn", "masked") in one.badges for one in shown.turns] == [True, False, True]
    assert "■ masked" in write_credit_view(run, out=tmp_path / "credit.html").read_text()


def test_a_grid_set_with_tabs_is_shown_one_space_apart(make_run: RunMaker) -> None:
    samples = load_samples(make_run(trajectories=[trajectory(True, 0, [turn(observation=" # \t _ \t P\n #\t\tO")])]))
    assert samples is not None
    assert group_views(samples)[0].trajectories[0].turns[0].observation == " # _ P\n #  O"


def test_groups_with_both_outcomes_come_first(make_run: RunMaker) -> None:
    rows = [trajectory(True, 0, [turn(0.0)], "easy"), trajectory(True, 0, [turn(0.0)], "easy")]
    rows += [trajectory(True, 1, [turn()], "mixed"), trajectory(False, 1, [turn(-0.5)], "mixed")]
    samples = load_samples(make_run(trajectories=rows))
    assert samples is not None
    assert [view.task for view in group_views(samples)] == ["mixed", "easy"]
    assert group_views(samples)[1].headline.startswith("All of 2 solved it: the outcome gives no contrast")


def test_samples_alternate_between_outcomes_and_tasks(make_run: RunMaker) -> None:
    rows = [trajectory(n % 2 == 0, task, [turn()], f"task-{task}") for task in (0, 1) for n in range(4)]
    samples = load_samples(make_run(trajectories=rows))
    assert samples is not None
    chosen = [(one.success, one.task_id) for one in choose(samples, 5)]
    assert chosen == [(True, "task-0"), (False, "task-0"), (True, "task-1"), (False, "task-1"), (True, "task-0")]


def test_failures_fill_up_when_successes_are_few(make_run: RunMaker) -> None:
    rows = [trajectory(n == 2, n, [turn()]) for n in range(7)]
    samples = load_samples(make_run(trajectories=rows))
    assert samples is not None
    assert sorted(one.success for one in choose(samples, 5)) == [False, False, False, False, True]


def test_a_trajectory_without_a_group_stands_alone(make_run: RunMaker) -> None:
    rows = [trajectory(True, 0, [turn()]) | {"group": None} for _ in range(3)]
    samples = load_samples(make_run(trajectories=rows))
    assert samples is not None
    assert [len(group) for group in samples.groups()] == [1, 1, 1]


def test_a_cut_last_trajectory_is_left_out_with_a_note(make_run: RunMaker) -> None:
    folder = make_run(trajectories=[trajectory(True, 0, [turn()])])
    with (folder / "trajectories" / "step_000003.jsonl").open("a") as file:
        file.write('{"task_id": "lev')
    samples = load_samples(folder)
    assert samples is not None
    assert len(samples.trajectories) == 1
    assert "step_000003.jsonl (line 2) was cut" in samples.note


def test_the_last_step_with_a_complete_trajectory_is_taken(make_run: RunMaker) -> None:
    folder = make_run(trajectories=[trajectory(True, 0, [turn()])])
    (folder / "trajectories" / "step_000010.jsonl").write_text("")
    samples = load_samples(folder)
    assert samples is not None
    assert samples.step == 3


def test_a_step_that_was_not_kept_lists_the_kept_ones(make_run: RunMaker) -> None:
    folder = make_run(trajectories=[trajectory(True, 0, [turn()])])
    with pytest.raises(DataError, match="kept no trajectories of step 7; kept steps: 3"):
        load_samples(folder, 7)


def test_a_damaged_turn_is_named(make_run: RunMaker) -> None:
    folder = make_run(trajectories=[trajectory(True, 0, [turn(), turn(valid="yes")])])
    with pytest.raises(DataError, match=r"step_000003\.jsonl, line 1, turns\[1\]: field 'valid' is 'yes'"):
        load_samples(folder)


def test_the_page_has_every_group_and_no_script(make_run: RunMaker) -> None:
    rows = [trajectory(n == 0, group, [turn()], f"task-{group}") for group in range(5) for n in range(2)]
    page = write_credit_view(make_run(trajectories=rows)).read_text()
    assert all(f"task-{group}" in page for group in range(5))
    assert "<script" not in page
    assert "script-src 'none'" in page


def test_a_run_that_kept_nothing_says_so(make_run: RunMaker) -> None:
    with pytest.raises(DataError, match="kept no trajectories yet"):
        write_credit_view(make_run())


def test_a_very_long_trajectory_is_cut_and_the_rest_counted(make_run: RunMaker, tmp_path: Path) -> None:
    rows = [trajectory(True, 0, [turn() for _ in range(MAX_TURNS + 25)])]
    page = write_credit_view(make_run(trajectories=rows), out=tmp_path / "long.html").read_text()
    assert "25 more turns are not shown" in page
