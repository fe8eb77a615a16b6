"""The run folder: one writer, and a name of its own for each run."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keel.errors import KeelError
from keel.run import toml
from keel.run.folder import RunFolder, make_run_path, run_name
from runs import CORRIDOR, keel, train_arguments

_HOLD = "import sys, pathlib; from keel.run.folder import RunFolder; r = RunFolder(pathlib.Path(sys.argv[1])); print('held', flush=True); input()"


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(KeelError, match="another process is writing to run folder"):
            RunFolder(tmp_path / "run")
        holder.kill()
        holder.wait()
    RunFolder(tmp_path / "run").event("start", 0)


def test_runs_that_start_together_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: make_run_path("sokoban-sampo", None), range(16)))
    assert len(set(paths)) == 16
    assert all(path.is_dir() for path in paths)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("sokoban", "sokoban-sampo"),
        ("gym:FrozenLake-v1", "gym-FrozenLake-v1-sampo"),
        ("gym:ALE/Pong-v5", "gym-ALE_Pong-v5-sampo"),
        ("reasoning:leg_counting", "reasoning-leg_counting-sampo"),
        ("textworld:/data/my games", "textworld-data_my_games-sampo"),
        ("walk.py", "walk-sampo"),
        ("../envs/walk.py:hard", "envs_walk-hard-sampo"),
        ("textworld:" + "x" * 300, "textworld-" + "x" * 80 + "-sampo"),
    ],
)
def test_the_folder_s_name_tells_environments_apart(environment: str, expected: str) -> None:
    assert run_name(environment, "sampo(kl=0)") == expected
    assert run_name(environment, "my/own method") == expected.replace("sampo", "my_own_method")


def test_a_run_folder_is_named_by_its_environment_and_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(CORRIDOR, tmp_path / "corridor.py")
    monkeypatch.chdir(tmp_path)
    _, _, _, _, *small = train_arguments(
        tmp_path, "--steps", "0", "--method", "gigpo+proas", "--clone.max_updates", "0"
    )
    assert keel("train", "corridor.py:load", *small) == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["corridor-load-gigpo+proas-0001"]


@dataclasses.dataclass(frozen=True)
class _Named:
    name: str = ""


@pytest.mark.parametrize("name", ["a\x7fb", "a\x00\n\t\"'\\ü\u2028\U0001f600"])
def test_names_with_odd_characters_are_read_back(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(toml.dump(_Named(name)))
    assert toml.overlay(_Named(), toml.read(file)) == _Named(name)
