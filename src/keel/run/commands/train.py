"""`keel train ENV`: clone, train, evaluate, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keel.errors import SettingError
from keel.run import job, toml
from keel.run.commands.arguments import environment_of, long_names, settings_of, take_options

HELP = """keel train ENV [--method M] [--model PATH] [--steps N] [--seed S] [--out DIR] [--config FILE] [--any.setting VALUE]
keel train --resume RUN [--steps N]

Clone behaviour from demonstrations, train with reinforcement learning, evaluate on held-out tasks, write a report.

    keel train sokoban
    keel train sokoban --method "grpo(kl=0)" --steps 50 --seed 1
    keel train sokoban --config runs/sokoban-sampo-0001/config.toml --run.out runs/again
    keel train --resume runs/sokoban-sampo-0001 --steps 200

Every setting of this environment:"""


def main(arguments: list[str]) -> int:
    """Run it; the exit status is 0 only when the report is written."""
    line = take_options(arguments, ("--config", "--resume"))
    wants_help = any(a in ("-h", "--help") for a in line.rest)
    if wants_help and (not line.rest or line.rest[0].startswith("-")):
        line.rest.insert(0, "sokoban")
    if wants_help:
        print(HELP)
    if "--resume" in line.options:
        if "--config" in line.options:
            raise SettingError("--resume takes its settings from the run folder; leave --config out.")
        job.resume(Path(line.options["--resume"]), _nested(long_names(line.rest)))
        return 0
    environment, rest = environment_of(line.rest, "train")
    job.start(settings_of(environment, rest, line.options.get("--config"), "train"))
    return 0


def _nested(arguments: list[str]) -> dict[str, Any]:
    """`--a.b VALUE` pairs as nested dictionaries."""
    values: dict[str, Any] = {}
    waiting = iter(arguments)
    for argument in waiting:
        if not argument.startswith("--"):
            raise SettingError(f"unexpected argument {argument!r}; a resume takes only --any.setting VALUE.")
        name, equals, value = argument[2:].partition("=")
        value = value if equals else next(waiting, "")
        *path, last = name.split(".")
        table = values
        for part in path:
            table = table.setdefault(part, {})
        table[last] = toml.value_of(value)
    return values
