"""The run folder: everything a report or a resume needs, and nothing else.

`config.toml` (resolved settings), `manifest.json`, `events.jsonl`, `trajectories/`, `checkpoints/`, `results.json`,
`report.html`; `.lock`, empty, is held by the process that writes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from keel import __version__
from keel.errors import DataError, KeelError, SettingError

if sys.platform != "win32":
    import fcntl

_NAME_LENGTH = 80
"""Characters of each part of an environment's name that a run folder keeps, the last ones: a path may be longer than a name."""


class RunFolder:
    """Writes a run's files, alone: another process is refused until this one ends, however it ends.

    Every line is on disk when the call returns.

    Raises:
        KeelError: another process writes to this run folder.
    """

    def __init__(self, path: Path, seconds_before: float = 0.0) -> None:
        self.path = path
        self._start = time.perf_counter() - seconds_before
        path.mkdir(parents=True, exist_ok=True)
        weakref.finalize(self, os.close, _locked(path))

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def seconds(self) -> float:
        """Since the command's start, resumed parts added up."""
        return time.perf_counter() - self._start

    def event(self, kind: str, step: int, **fields: object) -> None:
        """Append one line to `events.jsonl`."""
        head = {"kind": kind, "step": step, "seconds": round(self.seconds, 3)}
        line = json.dumps(_plain({**head, **fields}))
        with (self.path / "events.jsonl").open("a") as file:
            file.write(line + "\n")
            file.flush()

    def events(self) -> list[dict[str, Any]]:
        """What was logged so far; nothing in a folder that is new."""
        return read_events(self.path)

    def write(self, name: str, text: str) -> None:
        """Write a whole file so that a reader never sees half of it."""
        partial = self.path / f".{name}.partial"
        partial.write_text(text)
        os.replace(partial, self.path / name)

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        self.write(name, json.dumps(_plain(value), indent=2) + "\n")

    def drop_events_after(self, step: int, clone_update: int | None = None) -> None:
        """Before a resume: forget what a later, lost part of the run logged, and a cut last line.

        Args:
            step: the last one that is kept.
            clone_update: the last update of cloning that is kept, where cloning goes on.
        """
        kept: list[str] = []
        for event in read_events(self.path):
            lost = clone_update is not None and event.get("kind") == "clone" and event["update"] > clone_update
            if event["step"] <= step and event.get("kind") != "end" and not lost:
                kept.append(json.dumps(event) + "\n")
        self.write("events.jsonl", "".join(kept))

    def write_trajectories(self, step: int, rows: Sequence[Mapping[str, object]]) -> None:
        """Sample trajectories of a step, one a line."""
        folder = self.path / "trajectories"
        folder.mkdir(exist_ok=True)
        (folder / f"step_{step:06d}.jsonl").write_text("".join(json.dumps(_plain(row)) + "\n" for row in rows))


def read_events(path: Path) -> list[dict[str, Any]]:
    """The whole events of a run folder in their order; a line that was cut, or is no event, is left out."""
    file = path / "events.jsonl"
    found: list[dict[str, Any]] = []
    for line in file.read_text(errors="replace").splitlines() if file.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("step"), int):
            found.append(event)
    return found


def _locked(path: Path) -> int:
    """An open file that holds the folder's lock; the system gives it back when the process ends."""
    lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    if sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise KeelError(
                f"another process is writing to run folder {path}; two would mix their events and checkpoints. Wait until it "
                "ends, or stop it with Ctrl-C."
            ) from error
    return lock


def _plain(value: object) -> object:
    """JSON without NaN: numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (np.floating, float)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def run_name(environment: str, method: str) -> str:
    """`ENV-METHOD` as a folder name: every part of the environment's name that tells it from others, in plain characters.

    `gym:FrozenLake-v1` gives `gym-FrozenLake-v1`, `envs/walk.py:load` gives `envs_walk-load`.
    """
    head, _, rest = environment.partition(":")
    parts = (head.removesuffix(".py"), rest, method.partition("(")[0])
    plain = [re.sub(r"[^\w.+-]+", "_", part)[-_NAME_LENGTH:].strip("._-") for part in parts]
    return "-".join(part for part in plain if part)


def new_run_path(name: str, out: Path | None) -> Path:
    """`out`, which must be empty, or `runs/NAME-0001` with the next free number."""
    if out is not None:
        if out.exists() and any(out.iterdir()):
            raise SettingError(
                f"run folder {out} is not empty. Choose another `--run.out`, or go on with `keel train --resume {out}`."
            )
        return out
    runs = Path("runs")
    number = 1
    while (runs / f"{name}-{number:04d}").exists():
        number += 1
    return runs / f"{name}-{number:04d}"


def make_run_path(name: str, out: Path | None) -> Path:
    """`new_run_path`, made: of two processes that start at the same moment, each gets a number of its own."""
    path = new_run_path(name, out)
    if out is not None:
        return path
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return make_run_path(name, out)
    return path


def require_run(path: Path) -> Path:
    """A folder that is a run, or a clear error."""
    if not (path / "config.toml").exists():
        raise DataError(
            f"{path} is no run folder: it has no config.toml. Runs are made by `keel train`, in `runs/` by default."
        )
    return path


def machine() -> dict[str, object]:
    """Versions and hardware for `manifest.json`."""
    return {
        "keel": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the source tree Keel runs from; None when installed from a wheel."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
