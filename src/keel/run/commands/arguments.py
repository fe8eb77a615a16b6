"""Command-line pieces shared by the commands that take settings."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from keel.errors import SettingError, unknown_name
from keel.run import toml
from keel.run.environments import EnvironmentType, environment_names, find_environment
from keel.run.presets import default_settings
from keel.run.settings import Settings

SHORT = {
    "--method": "--method",
    "--model": "--model.path",
    "--steps": "--train.steps",
    "--seed": "--run.seed",
    "--out": "--run.out",
}
"""Short names of settings."""


@dataclass(frozen=True, slots=True)
class _Void:
    """Settings that another setting leaves without effect."""

    names: str
    """A name, or a section with its dot."""
    holds: Callable[[Settings[Any]], bool]
    when: str
    but: str = ""
    """A name of the section that keeps its effect."""


_VOID = (
    _Void("prompt.history", lambda s: s.prompt.context == "full_history", "prompt.context is full_history"),
    _Void("model.tiny.", lambda s: s.model.path is not None, "model.path names a checkpoint"),
    _Void("clone.", lambda s: s.clone.max_updates == 0, "clone.max_updates is 0", but="clone.max_updates"),
    _Void("clone.rollout_tasks", lambda s: s.clone.source != "rollouts", "clone.source is not rollouts"),
    _Void("eval.tasks_on_the_way", lambda s: s.eval.every == 0, "eval.every is 0"),
)

_RULE = set("│╭╮╰╯─- \t")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Options that are not settings, taken out of the arguments."""

    options: dict[str, str]
    rest: list[str]


def take_options(arguments: Sequence[str], names: Sequence[str]) -> CommandLine:
    """Take `--name VALUE` or `--name=VALUE` of the given names out of the arguments."""
    options: dict[str, str] = {}
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        name, has_value, value = argument.partition("=")
        if name in names:
            given = value if has_value else next(waiting, None)
            if given is None or (not has_value and given.startswith("--")):
                raise SettingError(f"option {name} needs a value.")
            options[name] = given
        else:
            rest.append(argument)
    return CommandLine(options, rest)


def long_names(arguments: Sequence[str]) -> list[str]:
    """Arguments with short names of settings replaced by their full names."""
    named: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        named.append(SHORT.get(name, name) + equals + value)
    return named


def environment_of(arguments: Sequence[str], command: str) -> tuple[EnvironmentType, list[str]]:
    """The environment that the first argument names."""
    if not arguments or arguments[0].startswith("-"):
        raise SettingError(
            f"`keel {command}` needs an environment first, one of {', '.join(environment_names())}, or a file.py. "
            f"Example: keel {command} sokoban"
        )
    return find_environment(arguments[0]), list(arguments[1:])


def settings_of(
    environment: EnvironmentType,
    arguments: Sequence[str],
    config: str | None,
    command: str,
    presets: Callable[[EnvironmentType, str | None], Settings[Any]] = default_settings,
) -> Settings[Any]:
    """Defaults, then the settings file, then the command line.

    Args:
        environment: whose settings.
        arguments: of the command line.
        config: a settings file.
        command: its name, for messages.
        presets: the defaults for an environment and a checkpoint.

    Raises:
        SettingError: unknown or impossible settings.
    """
    given = long_names(arguments)
    values = toml.read(Path(config)) if config else {}
    model = _value_of(given, "--model.path") or toml.model_path(values, str(config))
    if values.get("env_name", environment.name) != environment.name:
        raise SettingError(
            f"{config} is for environment {values['env_name']!r}, the command says {environment.name!r}."
        )
    defaults = toml.overlay(presets(environment, model), values)
    return parse_settings(defaults, environment, given, f"keel {command} {environment.name}")


def parse_settings(
    defaults: Settings[Any], environment: EnvironmentType, arguments: Sequence[str], program: str
) -> Settings[Any]:
    """The command line over `defaults`; `--help` prints every setting and exits."""
    arguments = long_names(arguments)
    _check_names(arguments, defaults)
    typed = Settings[environment.settings]  # type: ignore[name-defined]
    output, errors = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            parsed = tyro.cli(
                typed,
                config=(tyro.conf.FlagConversionOff,),
                prog=program,
                default=defaults,
                args=arguments,
                use_underscores=True,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            print(output.getvalue())
            raise SystemExit(0) from stop
        raise SettingError(_short(output.getvalue() + errors.getvalue())) from stop
    settings = dataclasses.replace(parsed, env_name=defaults.env_name)
    for name in given_names(arguments):
        for void in _VOID:
            if _is_one_of(name, (void.names,)) and name != void.but and void.holds(settings):
                raise SettingError(
                    f"setting {name} has no effect when {void.when}; expected one of the two. Leave {name} out."
                )
    return settings


def refuse_unused(arguments: Sequence[str], used: Sequence[str], command: str, remedy: str = "") -> None:
    """Raise for a setting of the command line that a command makes no use of.

    Args:
        arguments: of the command line, checked for unknown names before.
        used: names of settings that have an effect, and sections with their dot.
        command: in words.
        remedy: what else to do than to leave it out.
    """
    for name in given_names(arguments):
        if not _is_one_of(name, used):
            listed = ", ".join(f"{one}*" if one.endswith(".") else one for one in used)
            raise SettingError(
                f"setting {name} has no effect on `{command}`; expected one of {listed}. Leave it out{remedy}."
            )


def _is_one_of(name: str, names: Sequence[str]) -> bool:
    return any(name.startswith(one) if one.endswith(".") else name == one for one in names)


def given_names(arguments: Sequence[str]) -> list[str]:
    """Full names of the settings on a command line."""
    options = [a.partition("=")[0] for a in long_names(arguments) if a.startswith("--")]
    return [option[2:].replace("-", "_") for option in options]


def _check_names(arguments: Sequence[str], defaults: Settings[Any]) -> None:
    """Raise for an option that is no setting; the nearest one is named."""
    known = {f"--{name}" for name in _setting_names(defaults, "")} | set(SHORT)
    for argument in arguments:
        name = argument.partition("=")[0].replace("-", "_").replace("__", "--", 1)
        if argument.startswith("--") and name not in known and name not in ("--help",):
            raise unknown_name("setting", argument.partition("=")[0], known)


def _setting_names(value: Any, prefix: str) -> list[str]:
    names: list[str] = []
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        inside = dataclasses.is_dataclass(item)
        names += _setting_names(item, f"{prefix}{field.name}.") if inside else [f"{prefix}{field.name}"]
    return names


def _value_of(arguments: Sequence[str], name: str) -> str | None:
    for i, argument in enumerate(arguments):
        if argument == name and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(name + "="):
            return argument.partition("=")[2]
    return None


def _short(text: str) -> str:
    """tyro's message without its frame, its rules and its title."""
    lines = [line.strip("│╭╮╰╯─- \t") if set(line) <= _RULE else line.strip("│╭╮╰╯─ \t") for line in text.splitlines()]
    said = [line for line in lines if line][1:]
    return "\n".join(said).removeprefix("Error parsing Settings: ")
