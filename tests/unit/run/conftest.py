"""Refused commands, and a finished run to try them on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runs import Refusals, keel, train_arguments


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refusals:
    return Refusals(capsys, tmp_path / "run")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert keel(*train_arguments(folder, "--steps", "2")) == 0
    return folder


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))
