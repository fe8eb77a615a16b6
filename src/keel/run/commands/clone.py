"""`keel clone ENV`: behaviour cloning alone."""

from __future__ import annotations

import dataclasses
from typing import Any

from keel.errors import SettingError
from keel.run import job
from keel.run.commands.arguments import environment_of, given_names, settings_of, take_options
from keel.run.environments import EnvironmentType
from keel.run.presets import default_settings
from keel.run.settings import Settings

HELP = """keel clone ENV [--out DIR] [--clone.target_success S] [--clone.max_updates N] [--any.setting VALUE]
keel clone ENV --clone.source rollouts [--model CHECKPOINT]

Clone demonstrations (or, with `--clone.source rollouts`, the policy's own successful episodes) and evaluate on held-out tasks.
The run folder has a checkpoint that `keel train ENV --model FOLDER` starts from.

    keel clone sokoban --clone.target_success 0.5
    keel clone sokoban --model runs/sokoban-sampo-0001/checkpoints/step_000100 --clone.source rollouts"""


def main(arguments: list[str]) -> int:
    """Run it as a training run of no steps."""
    if not arguments or any(a in ("-h", "--help") for a in arguments):
        print(HELP)
        return 0
    line = take_options(arguments, ("--config",))
    environment, rest = environment_of(line.rest, "clone")
    settings = settings_of(environment, rest, line.options.get("--config"), "clone", _presets)
    if settings.clone.max_updates == 0:
        raise SettingError("clone.max_updates is 0, so nothing would be cloned; expected 1 or more.")
    if "train.steps" in given_names(rest):
        raise SettingError(
            "`keel clone` makes no training steps, so train.steps has no effect. Leave it out, and train on afterwards with "
            "`keel train --resume RUN --steps N`."
        )
    job.start(dataclasses.replace(settings, train=dataclasses.replace(settings.train, steps=0)))
    return 0


def _presets(environment: EnvironmentType, model_path: str | None) -> Settings[Any]:
    """Those of training, but a language model is cloned too."""
    settings = default_settings(environment, model_path)
    if settings.clone.max_updates:
        return settings
    return dataclasses.replace(settings, clone=dataclasses.replace(settings.clone, max_updates=200))
