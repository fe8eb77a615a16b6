"""Settings as TOML: written resolved, read back exactly. Unknown keys and wrong types raise with the key's full name."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import typing
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from keel.errors import DataError, SettingError, unknown_name

T = TypeVar("T")


def dump(value: Any) -> str:
    """A settings dataclass as TOML. Absent values (None) are left out, which reads back as absent."""
    return "\n".join(_lines(value, "")).strip() + "\n"


def _lines(value: Any, prefix: str) -> list[str]:
    plain: list[str] = []
    tables: list[str] = []
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if item is None:
            continue
        if dataclasses.is_dataclass(item):
            name = f"{prefix}{field.name}"
            tables += ["", f"[{name}]", *_lines(item, f"{name}.")]
        else:
            plain.append(f"{field.name} = {_literal(item)}")
    return plain + tables


def _literal(item: Any) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return repr(item)
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(_literal(i) for i in item) + "]"
    return json.dumps(str(item), ensure_ascii=False).replace("\x7f", "\\u007f")


def read(path: Path) -> dict[str, Any]:
    """A TOML file as nested dictionaries."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise SettingError(f"settings file {path} does not exist.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"settings file {path} is not valid TOML: {error}.") from error


def value_of(text: str) -> Any:
    """A value of the command line as a settings file would read it; what is no TOML value is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def model_path(values: dict[str, Any], path: Path | str) -> str | None:
    """The checkpoint that nested settings name, which decides the defaults of the others."""
    model = values.get("model", {})
    if not isinstance(model, dict):
        raise SettingError(f"setting model of {path} is a table of settings, got {model!r}.")
    return model.get("path")


def overlay(defaults: T, values: dict[str, Any], prefix: str = "") -> T:
    """`defaults` with the given values put in.

    Raises:
        SettingError: a key that is no setting (the nearest is named), or a value of the wrong type.
    """
    hints = typing.get_type_hints(type(defaults))
    names = {f.name: f for f in dataclasses.fields(defaults)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            raise unknown_name("setting", f"{prefix}{key}", [f"{prefix}{n}" for n in names])
        current = getattr(defaults, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise SettingError(f"setting {prefix}{key} is a table of settings, got {value!r}.")
            changes[key] = overlay(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _checked(f"{prefix}{key}", value, hints[key], current)
    return dataclasses.replace(defaults, **changes)  # type: ignore[type-var]


def _checked(name: str, value: Any, hint: Any, current: Any) -> Any:
    """The value in the type of its setting. Nothing is converted but a whole number to a fraction, and a text to a path."""
    try:
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError) as error:
        shown = _literal(value) if isinstance(value, bool) else repr(value)
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "no setting takes such a value"
        remedy = "" if current is None else f" Write it like {name.rpartition('.')[2]} = {_literal(current)}."
        raise SettingError(f"setting {name} is {shown}; {why}.{remedy}") from error
