"""Ctrl-C and kill -9, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from keel.errors import DataError
from keel.run import cloning, loop
from keel.run.interrupts import finish_first
from keel.train.checkpoint import checkpoints, read_cloning
from keel.train.clone import Cloner
from runs import assert_same_tensors, events, keel, keel_process, step_metrics, tensors, train_arguments

STEPS = 12


def wait_for(path: Path, text: str, process: subprocess.Popen[str], timeout_s: float = 90) -> None:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if path.exists() and text in path.read_text():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError(f"{text!r} did not appear in {path}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert keel(*train_arguments(folder, "--steps", str(STEPS))) == 0
    return folder


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A run of many steps in another process, some steps in."""
    folder = tmp_path / "run"
    process = keel_process(train_arguments(folder, "--steps", "100000"), tmp_path)
    try:
        wait_for(folder / "events.jsonl", '"kind": "step", "step": 5', process)
        yield folder, process
    finally:
        process.kill()
        process.communicate()


def finish_like(folder: Path, whole: Path) -> None:
    """The resumed run equals the one that nobody disturbed."""
    last = int(checkpoints(folder / "checkpoints")[-1].name.removeprefix("step_"))
    assert last >= 4
    steps = max(last, STEPS)
    assert keel("train", "--resume", str(folder), "--steps", str(steps)) == 0
    got, expected = step_metrics(folder), step_metrics(whole)
    assert sorted(got) == list(range(1, steps + 1))
    assert {k: v for k, v in got.items() if k <= STEPS} == expected
    if steps == STEPS:
        assert_same_tensors(tensors(folder, STEPS), tensors(whole, STEPS))


def test_ctrl_c_saves_and_says_how_to_go_on(running: tuple[Path, subprocess.Popen[str]], whole: Path) -> None:
    folder, process = running
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""
    assert "Traceback" not in out
    last = checkpoints(folder / "checkpoints")[-1]
    assert f"saved as {last.name}. Go on with: keel train --resume {folder}" in out.replace("\n", " ")
    assert events(folder, "step")[-1]["step"] - int(last.name.removeprefix("step_")) in (0, 1)
    assert not list((folder / "checkpoints").glob(".*"))
    finish_like(folder, whole)


def test_kill_9_loses_the_steps_since_the_last_checkpoint_only(
    running: tuple[Path, subprocess.Popen[str]], whole: Path
) -> None:
    folder, process = running
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    finish_like(folder, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_cloning_saves_what_was_cloned_and_says_how_to_go_on(
    number: signal.Signals, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    process = keel_process(train_arguments(folder, "--clone.max_updates", "100000"), tmp_path)
    try:
        wait_for(folder / "events.jsonl", '"kind": "clone"', process)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "")
    assert f"stopped; saved as cloning. Go on with: keel train --resume {folder}" in out.replace("\n", " ")
    assert read_cloning(folder / "checkpoints" / "cloning").num_updates >= 40


CLONED_TWICE = ["--clone.max_updates", "60", "--clone.check_every", "20", "--steps", "2"]


@pytest.mark.parametrize(
    ("source", "moment"),
    [
        ("demonstrations", "an update"),
        ("demonstrations", "a check"),
        ("demonstrations", "the first evaluation"),
        ("rollouts", "an update"),
    ],
)
def test_cloning_that_was_stopped_goes_on_as_if_nobody_had_stopped_it(
    source: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, whenever the signal arrives; a second stop and the events of a part that was lost change nothing."""
    more = [*CLONED_TWICE, "--clone.source", source]
    if source == "rollouts":
        assert keel(*train_arguments(tmp_path / "sane", "--steps", "0")) == 0
        more += ["--model", str(checkpoints(tmp_path / "sane" / "checkpoints")[-1]), "--clone.rollout_tasks", "32"]
        more += ["--prompt.style", "terse", "--prompt.max_new_tokens", "16", "--train.micro_batch_tokens", "32768"]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert keel(*train_arguments(whole, *more)) == 0
    owner, name, calls = {
        "an update": (torch.optim.AdamW, "step", 30),
        "a check": (cloning, "evaluate", 2),
        "the first evaluation": (loop, "evaluate", 1),
    }[moment]
    with monkeypatch.context() as patch:
        _press_at(patch, owner, name, calls)
        assert keel(*train_arguments(folder, *more)) == 130
    found = read_cloning(folder / "checkpoints" / "cloning").num_updates if moment != "the first evaluation" else None
    assert found == {"an update": 30, "a check": 40, "the first evaluation": None}[moment]
    if found is not None:
        with monkeypatch.context() as patch:
            _press_at(patch, torch.optim.AdamW, "step", 5)
            assert keel("train", "--resume", str(folder)) == 130
        with (folder / "events.jsonl").open("a") as file:
            file.write('{"kind": "clone", "step": 0, "seconds": 1, "update": 60, "loss": 9.0, "success": 1.0}\n')
    assert keel("train", "--resume", str(folder)) == 0
    assert not (folder / "checkpoints" / "cloning").exists()
    checks = [[(e["update"], e["loss"], e["success"]) for e in events(run, "clone")] for run in (whole, folder)]
    assert checks[0] == checks[1] and [update for update, _, _ in checks[0]] == [20, 40, 60]
    assert step_metrics(folder) == step_metrics(whole)
    assert len(events(folder, "eval")) == len(events(whole, "eval"))
    assert_same_tensors(tensors(folder, 2), tensors(whole, 2))


def test_cloning_is_saved_now_and_then_against_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends without a word in update 45 goes on after the last one that was saved."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert keel(*train_arguments(whole, *CLONED_TWICE)) == 0
    saves: list[int] = []
    original = cloning.save_cloning

    def saving(checkpoints: Path, cloner: Cloner, *more: Any) -> Path:
        saves.append(cloner.num_updates)
        if cloner.num_updates == 45:
            raise DataError("as if killed")
        return original(checkpoints, cloner, *more)

    with monkeypatch.context() as patch:
        patch.setattr(cloning, "_SAVE_EVERY_S", 0.0)
        patch.setattr(cloning, "_SAVING_SHARE", float("inf"))
        patch.setattr(cloning, "save_cloning", saving)
        assert keel(*train_arguments(folder, *CLONED_TWICE)) == 2
    assert saves == list(range(1, 46))
    assert keel("train", "--resume", str(folder)) == 0
    assert step_metrics(folder) == step_metrics(whole)
    assert_same_tensors(tensors(folder, 2), tensors(whole, 2))


def _press_at(patch: pytest.MonkeyPatch, owner: Any, name: str, calls: int) -> None:
    """Ctrl-C in the given call of a function, before it does anything; an update that is held finishes first."""
    original = getattr(owner, name)
    left = calls

    def pressed(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments, **named)

    patch.setattr(owner, name, pressed)


def test_ctrl_c_between_optimizer_steps_saves_no_half_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives after the first of two optimizer steps of training step 3."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert keel(*train_arguments(whole, "--steps", "6")) == 0
    steps = 0
    original = torch.optim.AdamW.step

    def interrupted(self: torch.optim.AdamW, closure: None = None) -> None:
        nonlocal steps
        original(self, closure)
        steps += 1
        if steps == 40 + 5:  # cloning takes 40, training step 3 the fifth and sixth
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    assert keel(*train_arguments(folder, "--steps", "6")) == 130
    monkeypatch.setattr(torch.optim.AdamW, "step", original)
    assert steps == 40 + 6
    assert checkpoints(folder / "checkpoints")[-1].name == "step_000003"
    assert keel("train", "--resume", str(folder)) == 0
    assert step_metrics(folder) == step_metrics(whole)
    assert_same_tensors(tensors(folder, 6), tensors(whole, 6))


def test_an_interrupted_command_leaves_without_the_interpreter_s_clean_up() -> None:
    """The clean-up can hang on what libraries left half made; here something waits in it."""
    code = (
        "import atexit, sys, time; atexit.register(time.sleep, 60); from keel.run import cli; from keel.run.commands import verify\n"
        "def main(arguments):\n    print('said')\n    raise KeyboardInterrupt\n"
        "verify.main = main; sys.argv = ['keel', 'verify']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "said\n", "")


def test_ctrl_c_is_held_back_and_raised_once() -> None:
    done = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), finish_first():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        done.append("whole block")
    assert done == ["whole block"]
    assert signal.getsignal(signal.SIGINT) is before
    with finish_first():
        pass


def test_an_error_in_a_held_block_is_that_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="broken"), finish_first():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_held() -> None:
    seen: list[object] = []

    def body() -> None:
        with finish_first():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
