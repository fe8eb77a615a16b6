"""Settings that would have no effect are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import Refusals


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--model.path", "elsewhere"], "setting model.path has no effect on `keel eval`"),
        (["--model=elsewhere"], "another model is evaluated with `keel eval MODEL ENV`"),
        (["--method", "grpo"], "setting method has no effect"),
        (["--steps", "3"], "setting train.steps has no effect"),
        (["--clone.max-updates", "3"], "setting clone.max_updates has no effect"),
        (["--eval.every", "3"], "expected one of env.*, prompt.*, model.dtype"),
        (
            ["--prompt.context", "full_history", "--prompt.history", "1"],
            "no effect when prompt.context is full_history",
        ),
    ],
)
def test_settings_that_an_evaluation_does_not_use(
    more: list[str], part: str, refused: Refusals, run_copy: Path
) -> None:
    assert part in refused("eval", str(run_copy), *more)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["play", "sokoban", "--train.steps", "3"], "setting train.steps has no effect on `keel play`"),
        (["play", "sokoban", "--prompt.max_new_tokens", "3"], "setting prompt.max_new_tokens has no effect"),
        (["check-env", "sokoban", "--method", "grpo"], "setting method has no effect on `keel check-env`"),
        (["arg", "init", "sokoban", "--seed", "3"], "setting run.seed has no effect on `keel arg init`"),
        (["clone", "sokoban", "--steps", "3"], "train.steps has no effect. Leave it out, and train on afterwards"),
        (["clone", "sokoban", "--clone.max_updates", "0"], "nothing would be cloned; expected 1 or more"),
    ],
)
def test_settings_that_a_command_does_not_use(arguments: list[str], part: str, refused: Refusals) -> None:
    assert part in refused(*arguments)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (["--prompt.context", "full_history", "--prompt.history", "5"], "prompt.history"),
        (["--model", "somewhere", "--model.tiny.num_layers", "3"], "model.tiny.num_layers"),
        (["--clone.max_updates", "0", "--clone.learning_rate", "0.1"], "clone.learning_rate"),
        (["--model", "somewhere", "--clone.check_tasks", "3"], "clone.check_tasks"),
        (["--clone.rollout_tasks", "8"], "clone.rollout_tasks"),
        (["--eval.every", "0", "--eval.tasks_on_the_way", "8"], "eval.tasks_on_the_way"),
    ],
)
@pytest.mark.parametrize("command", ["train", "clone"])
def test_settings_that_another_one_leaves_without_effect(
    command: str, more: list[str], name: str, refused: Refusals
) -> None:
    if command == "clone" and name == "clone.check_tasks":  # cloning a language model is what the command is for
        more = [*more, "--clone.max_updates", "0"]
    assert f"setting {name} has no effect when" in refused(command, "sokoban", "--out", str(refused.out), *more)
    assert not refused.out.exists()
