"""Whole runs for tests: small, but through the command line and with every real part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from keel.run.cli import run

CORRIDOR = str(Path(__file__).parent / "corridor.py")

SMALL = [
    "--model.tiny.hidden_size",
    "32",
    "--model.tiny.intermediate_size",
    "64",
    "--model.tiny.num_layers",
    "1",
    "--model.tiny.num_heads",
    "2",
    "--model.tiny.num_key_value_heads",
    "2",
    "--clone.max_updates",
    "40",
    "--clone.check_every",
    "40",
    "--clone.check_tasks",
    "16",
    "--clone.learning_rate",
    "0.01",
    "--clone.target_success",
    "1.0",
    "--rollout.groups",
    "4",
    "--rollout.group_size",
    "4",
    "--eval.tasks",
    "16",
    "--eval.every",
    "2",
    "--eval.tasks_on_the_way",
    "8",
    "--run.threads",
    "1",
    "--run.checkpoint_every",
    "2",
]


def train_arguments(out: Path, *more: str) -> list[str]:
    """A small run; of its settings, those that `more` leaves without effect are left out, since they would be refused."""
    given = dict(pairwise(more))
    void = [
        prefix
        for prefix, holds in (
            ("--model.tiny.", "--model" in given),
            ("--clone.", given.get("--clone.max_updates") == "0"),
            ("--eval.tasks_on_the_way", given.get("--eval.every") == "0"),
        )
        if holds
    ]
    pairs = zip(SMALL[::2], SMALL[1::2], strict=True)
    small = [text for pair in pairs if not pair[0].startswith(tuple(void)) for text in pair]
    return ["train", CORRIDOR, "--out", str(out), *small, *more]


def keel_process(arguments: Sequence[str], cwd: Path, **named: Any) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    code = "import sys; from keel.run.cli import main; sys.argv[0] = 'keel'; main()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **named,
    )


def keel(*arguments: str) -> int:
    """The command in this process."""
    return run(arguments)


class Refusals:
    """Runs commands that must be refused."""

    def __init__(self, capsys: pytest.CaptureFixture[str], out: Path) -> None:
        self._capsys = capsys
        self.out = out

    def __call__(self, *arguments: str) -> str:
        """The message."""
        self._capsys.readouterr()
        status = keel(*arguments)
        captured = self._capsys.readouterr()
        assert status == 2, captured
        assert captured.err.startswith("keel: ")
        assert captured.err.count("keel: ") == 1
        assert "Traceback" not in captured.out + captured.err
        return captured.err

    def train(self, *more: str) -> str:
        return self(*train_arguments(self.out, *more))


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def timeless(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics without those that measure time."""
    return {k: v for k, v in metrics.items() if not k.startswith(("time/", "speed/"))}


def step_metrics(folder: Path) -> dict[int, dict[str, Any]]:
    return {event["step"]: timeless(event["metrics"]) for event in events(folder, "step")}


def tensors(folder: Path, step: int) -> dict[str, torch.Tensor]:
    """Weights, optimizer state and reference of a checkpoint."""
    checkpoint = folder / "checkpoints" / f"step_{step:06d}"
    return {
        f"{file.name}/{k}": v for file in sorted(checkpoint.glob("*.safetensors")) for k, v in load_file(file).items()
    }


def assert_same_tensors(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Bit for bit."""
    assert got.keys() == expected.keys() and len(expected) > 10
    different = [name for name, tensor in expected.items() if not torch.equal(got[name], tensor)]
    assert different == []
