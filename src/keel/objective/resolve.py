"""From the text a user types to a method: `gigpo`, `gigpo+proas`, `sampo(released=True)`, `file.py:function`."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from keel.errors import KeelError, SettingError, unknown_name
from keel.objective import methods, methods_more
from keel.objective.definition import Method

_USER_MODULE = "keel_user_"
"""Prefix of the module name of a user's file; a method of it that keeps the name of a published one gets its function's."""


def catalogue() -> Mapping[str, Callable[..., Method]]:
    """Every method function of `keel.objective.methods` and `methods_more`, by name."""
    return {
        name: function
        for module in (methods, methods_more)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def resolve(expression: str) -> Method:
    """The method that an expression names.

        expression = base [+ shaper ...]
        base       = NAME | NAME(keyword=value, ...) | FILE.py:FUNCTION | FILE.py:FUNCTION(keyword=value, ...)
        shaper     = proas

    Raises:
        SettingError: unknown name or keyword (with the nearest match), a value that is no literal or of another type, a broken
            file.
    """
    base, *modifiers = _split(expression)
    if not base:
        raise SettingError(
            f"method expression {expression!r} names no method; expected for example 'sampo' or 'gigpo+proas'"
        )
    function, keywords = _call(base)
    _check_keywords(base, function, keywords)
    try:
        method = function(**keywords)
    except KeelError:
        raise
    except Exception as error:  # A value of another type, or a user's function, may fail in any way.
        raise SettingError(f"{base!r} failed: {type(error).__name__}: {error}") from error
    if not isinstance(method, Method):
        raise SettingError(f"{base!r} gave a {type(method).__name__}; expected a function that returns keel's Method")
    if function.__module__.startswith(_USER_MODULE) and method.name in catalogue():
        method = replace(method, name=function.__name__)
    for modifier in modifiers:
        method = _modified(method, modifier)
    return method


def _split(expression: str) -> list[str]:
    """Cut at the plus signs outside brackets."""
    parts, depth = [""], 0
    for character in expression:
        depth += (character in "([") - (character in ")]")
        if character == "+" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _call(base: str) -> tuple[Callable[..., object], dict[str, object]]:
    path, colon, rest = base.partition(".py:")
    head, bracket, _ = (rest if colon else base).partition("(")
    keywords = _keywords(base, base[base.index("(") :]) if bracket else {}
    if colon:
        return _from_file(Path(path + ".py"), head.strip()), keywords
    known = catalogue()
    if head.strip() not in known:
        raise unknown_name("method", head.strip(), known)
    return known[head.strip()], keywords


def _keywords(base: str, arguments: str) -> dict[str, object]:
    problem = f"cannot read {base!r}; expected keywords with plain values, for example sampo(released=True, low=0.003)"
    try:
        call = ast.parse(f"f{arguments}", mode="eval").body
    except SyntaxError as error:
        raise SettingError(problem) from error
    if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
        raise SettingError(problem)
    try:
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except ValueError as error:
        raise SettingError(problem) from error


def _check_keywords(base: str, function: Callable[..., object], keywords: Mapping[str, object]) -> None:
    """Names, and for published methods types: a user's function may annotate what it likes."""
    name, valid = base.partition("(")[0], inspect.signature(function).parameters
    hints = {} if function.__module__.startswith(_USER_MODULE) else get_type_hints(function)
    for keyword, value in keywords.items():
        if keyword not in valid:
            raise unknown_name(f"keyword of {name}", keyword, list(valid))
        try:
            TypeAdapter(hints.get(keyword, Any)).validate_python(value, strict=True)
        except ValidationError as error:
            problem, default = error.errors()[0]["msg"], valid[keyword].default
            raise SettingError(
                f"keyword {keyword} of {name} is {value!r}; {problem}. Write it like {keyword}={default!r}."
            ) from error


def _from_file(path: Path, name: str) -> Callable[..., object]:
    if not path.is_file():
        raise SettingError(f"no file {str(path)!r}; expected FILE.py:FUNCTION with a path from {Path.cwd()}")
    spec = importlib.util.spec_from_file_location(f"{_USER_MODULE}{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SettingError(f"cannot import {str(path)!r}; expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingError(f"importing {str(path)!r} failed: {type(error).__name__}: {error}") from error
    functions = dict(inspect.getmembers(module, inspect.isfunction))
    if name not in functions:
        raise unknown_name(f"function of {path.name}", name, functions)
    return functions[name]


def _modified(method: Method, modifier: str) -> Method:
    if modifier != "proas":
        raise unknown_name("shaper after '+'", modifier, ["proas"])
    try:
        proas = importlib.import_module("keel.credit.proas")
    except ModuleNotFoundError as error:
        raise SettingError(
            f"method {method.name}+proas needs keel.credit.proas, which this installation lacks"
        ) from error
    return proas.with_proas(method)
