"""Reading a run folder: what it says, what is forgiven, what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from report_run_folders import RunMaker, evaluation, event, three_step_events

from keel.errors import DataError
from keel.report.load import load_run


def test_a_run_folder_is_read_into_records(make_run: RunMaker) -> None:
    run = load_run(make_run())
    assert [record.step for record in run.steps] == [1, 2, 3]
    assert run.series("success").value == pytest.approx((0.5, 0.6, 0.7))
    assert run.series("success").seconds == (25.0, 30.0, 35.0)
    assert [(record.update, record.loss, record.success) for record in run.clones] == [(20, 2.0, None), (40, 1.0, 0.4)]
    assert (run.ended, run.seconds, run.first_metric_s, run.last_step) == (True, 50.0, 4.0, 3)
    assert run.config["env_name"] == "sokoban"
    assert run.notes == ()


def test_an_evaluation_without_bounds_gets_the_wilson_interval(make_run: RunMaker) -> None:
    before, after = load_run(make_run()).before_and_after or ()
    assert (before.successes, before.count, before.success.value) == (40, 100, 0.4)
    assert (after.success.low, after.success.high) == pytest.approx((0.502003, 0.690599), abs=1e-6)


def test_recorded_bounds_are_kept(make_run: RunMaker) -> None:
    events = [event("start", 0, 0), evaluation(0, 1.0, 4, 10) | {"low": 0.1, "high": 0.7}]
    success = load_run(make_run(events=events)).evaluations[0].success
    assert (success.low, success.high) == (0.1, 0.7)


def test_a_cut_last_line_is_left_out_with_a_note(make_run: RunMaker) -> None:
    run = load_run(make_run(tail='{"kind": "step", "ste'))
    assert len(run.steps) == 3
    assert any("last line of events.jsonl (line 10) was cut" in note for note in run.notes)


def test_a_last_line_cut_inside_a_character_is_left_out(make_run: RunMaker) -> None:
    folder = make_run()
    with (folder / "events.jsonl").open("ab") as file:
        file.write('{"kind": "skip", "reason": "é'.encode()[:-1])
    assert any("was cut" in note for note in load_run(folder).notes)


def test_a_broken_line_before_the_last_is_an_error_with_file_and_line(make_run: RunMaker) -> None:
    folder = make_run()
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines()
    lines[4] = lines[4][:20]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"events\.jsonl, line 5: not readable as JSON"):
        load_run(folder)


def test_a_line_that_is_no_object_is_an_error(make_run: RunMaker) -> None:
    folder = make_run(tail="[1]\n" + json.dumps(event("end", 3, 60.0)) + "\n")
    with pytest.raises(DataError, match="line 10: holds list; expected a JSON object"):
        load_run(folder)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            event("step", 1, 1.0, metrics={"kl/old": "high"}),
            r"line 2, metrics: field 'kl/old' is 'high'; expected a number",
        ),
        (event("step", 1, 1.0, metrics=3), r"line 2: field 'metrics' is 3; expected an object"),
        ({"kind": "step", "seconds": 1.0, "metrics": {}}, r"line 2: field 'step' is nothing; expected a whole number"),
        (event("eval", 0, 1.0, split="heldout", successes=5, count=4), r"line 2: 5 successes of 4 episodes"),
        (
            event("eval", 0, 1.0, split="heldout", successes=1.5, count=4),
            r"field 'successes' is 1\.5; expected a whole number",
        ),
        (
            evaluation(0, 1.0, 1, 4) | {"families": {"clean": [3, 2]}},
            r"field 'clean' is \[3, 2\]; expected \[successes, count\]",
        ),
        ({"step": 0, "seconds": 1.0}, r"field 'kind' is nothing; expected a text"),
    ],
)
def test_a_field_of_the_wrong_kind_names_file_line_and_field(
    make_run: RunMaker, bad: dict[str, object], message: str
) -> None:
    folder = make_run(events=[event("start", 0, 0.0), bad, event("end", 1, 2.0)])
    with pytest.raises(DataError, match=message):
        load_run(folder)


def test_a_null_metric_is_not_a_number(make_run: RunMaker) -> None:
    events = [event("start", 0, 0.0), event("step", 1, 1.0, metrics={"kl/old": None, "entropy": math.nan})]
    metrics = load_run(make_run(events=events)).steps[0].metrics
    assert math.isnan(metrics["kl/old"]) and math.isnan(metrics["entropy"])


def test_unknown_kinds_are_counted_in_a_note(make_run: RunMaker) -> None:
    events = [event("start", 0, 0.0), event("dream", 0, 1.0), event("dream", 0, 2.0)]
    assert load_run(make_run(events=events)).notes == ("2 events of unknown kind 'dream' are left out.",)


def test_steps_made_again_after_a_resume_count_once_and_times_add_up(make_run: RunMaker) -> None:
    def step(n: int, seconds: float, success: float) -> dict[str, object]:
        return event("step", n, seconds, metrics={"success": success})

    events = [
        event("start", 0, 1.0),
        evaluation(0, 2.0, 4, 10),
        step(1, 10.0, 0.1),
        evaluation(1, 11.0, 5, 10),
        step(2, 20.0, 0.2),
        evaluation(2, 21.0, 9, 10),
        step(3, 30.0, 0.3),
        event("start", 1, 2.0),
        step(2, 7.0, 0.25),
        event("end", 2, 8.0),
    ]
    run = load_run(make_run(events=events))
    assert run.series("success").value == (0.1, 0.25)
    assert run.series("success").seconds == (10.0, 37.0)
    assert [one.step for one in run.evaluations] == [0, 1]
    assert run.seconds == 38.0
    assert run.notes == ("The run was resumed 1 time; 2 steps made again, each counted once. Times are added up.",)


def test_a_run_that_goes_on_after_its_end_has_not_ended(make_run: RunMaker) -> None:
    events = [*three_step_events(), event("start", 3, 0.2), event("step", 4, 5.0, metrics={})]
    run = load_run(make_run(events=events))
    assert not run.ended
    assert run.last_step == 4


def test_of_two_evaluations_of_a_step_the_larger_one_counts(make_run: RunMaker) -> None:
    events = [event("start", 0, 0.0), evaluation(3, 1.0, 100, 512), evaluation(3, 2.0, 60, 128)]
    run = load_run(make_run(events=events))
    assert [one.count for one in run.evaluations_of("heldout")] == [512]
    assert run.before_and_after is None


def test_held_out_splits_come_before_the_training_split(make_run: RunMaker) -> None:
    train = evaluation(0, 1.0, 1, 4) | {"split": "train"}
    run = load_run(make_run(events=[event("start", 0, 0.0), train, evaluation(0, 2.0, 2, 4)]))
    assert run.splits == ("heldout", "train")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such run folder: .*/nowhere"):
        load_run(tmp_path / "nowhere")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="is a file; expected a run folder"):
        load_run(tmp_path / "notes.txt")


def test_a_folder_of_runs_says_which_runs_it_holds(make_run: RunMaker, tmp_path: Path) -> None:
    make_run("run-1")
    with pytest.raises(DataError, match=r"is no run folder: it has no events\.jsonl.*It holds runs.*: run-1"):
        load_run(tmp_path)


@pytest.mark.parametrize("content", ["", "\n", '{"kind": "st'])
def test_a_run_without_a_complete_event_says_to_wait(make_run: RunMaker, content: str) -> None:
    with pytest.raises(DataError, match="holds no complete event: the run has only just begun or stopped at once"):
        load_run(make_run(events=[], tail=content))


def test_a_broken_configuration_names_its_file(make_run: RunMaker) -> None:
    with pytest.raises(DataError, match=r"config\.toml: not readable as TOML"):
        load_run(make_run(config="steps = = 3\n"))


def test_missing_configuration_and_manifest_are_empty(make_run: RunMaker) -> None:
    folder = make_run()
    (folder / "config.toml").unlink()
    (folder / "manifest.json").unlink()
    run = load_run(folder)
    assert (run.config, run.manifest, run.results, run.config_text) == ({}, {}, {}, "")
