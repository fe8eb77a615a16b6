"""Settings: written resolved, read back exactly, refused when they are wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from keel.errors import DataError, SettingError
from keel.run import bounds, toml
from keel.run.environments import environment_names, find_environment
from keel.run.presets import default_settings
from keel.run.settings import Settings

ENVIRONMENTS = ("sokoban", "alfworld", "webshop")


def defaults(name: str = "sokoban", model: str | None = None) -> Settings[Any]:
    return default_settings(find_environment(name), model)


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("model", [None, "Qwen/Qwen3-0.6B"])
def test_toml_gives_back_the_same_settings(name: str, model: str | None, tmp_path: Path) -> None:
    settings = defaults(name, model)
    file = tmp_path / "config.toml"
    file.write_text(toml.dump(settings))
    assert toml.overlay(defaults(name, model), toml.read(file)) == settings


def test_odd_values_survive_the_file(tmp_path: Path) -> None:
    settings = defaults()
    settings = dataclasses.replace(
        settings,
        method='sampo(low=0.1, name="a\\b")',
        run=dataclasses.replace(settings.run, out=Path('/tmp/öd "x"\ty'), seed=-3),
        train=dataclasses.replace(settings.train, learning_rate=1e-30, epsilon=1e-8),
    )
    file = tmp_path / "config.toml"
    file.write_text(toml.dump(settings))
    assert toml.overlay(defaults(), toml.read(file)) == settings


def test_an_overlay_changes_what_it_names_and_nothing_else() -> None:
    base = defaults()
    changed = toml.overlay(base, {"train": {"steps": 7}, "env": {"max_turns": 20}})
    assert (changed.train.steps, changed.env.max_turns) == (7, 20)
    assert dataclasses.replace(changed, train=base.train, env=base.env) == base
    assert base.train.steps != 7


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": {"stepz": 1}}, r"unknown setting 'train.stepz'. Did you mean 'train.steps'\?"),
        ({"train": {"steps": 1.5}}, r"setting train.steps is 1.5"),
        ({"train": {"steps": -1}}, r"train.steps is -1; expected 0 or more"),
        ({"model": {"tiny": {"hidden_size": 0}}}, r"model.tiny.hidden_size is 0"),
        ({"model": 3}, r"setting model is a table"),
        ({"env": {"family": "huge"}}, r"family"),
    ],
)
def test_wrong_values_name_their_setting(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        toml.overlay(defaults(), values)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train.steps = true", r"setting train.steps is true; .*integer\. Write it like steps = 100\."),
        ("train.steps = '5'", r"setting train.steps is '5'; .*integer"),
        ("train.steps = 3.7", r"setting train.steps is 3\.7; .*integer"),
        ("train.steps = 3.0", r"setting train.steps is 3\.0; .*integer"),
        ("train.learning_rate = true", r"setting train.learning_rate is true; .*number\. Write it like .* = 0\.0005\."),
        ("train.learning_rate = '1e-3'", r"setting train.learning_rate is '1e-3'; .*number"),
        ("model.save_memory = 1", r"setting model.save_memory is 1; .*boolean\. Write it like save_memory = false\."),
        ("model.save_memory = 'true'", r"setting model.save_memory is 'true'; .*boolean"),
        ("model.tiny.num_layers = true", r"setting model.tiny.num_layers is true; .*integer"),
        ("env.max_turns = false", r"setting env.max_turns is false; .*integer"),
        ("method = 3", r"setting method is 3; .*string"),
        ("method = 1979-05-27", r"setting method is datetime.date\(1979, 5, 27\); no setting takes"),
        ("run.out = 5", r"setting run.out is 5; "),
    ],
)
def test_a_value_of_another_type_is_refused_and_not_converted(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(line)
    with pytest.raises(SettingError, match=message):
        toml.overlay(defaults(), toml.read(file))


def test_a_whole_number_is_a_fraction_too(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("clone.max_seconds = 30\nrun.out = 'a/b'")
    changed = toml.overlay(defaults(), toml.read(file))
    assert (changed.clone.max_seconds, type(changed.clone.max_seconds)) == (30.0, float)
    assert changed.run.out == Path("a/b")


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not valid TOML"):
        toml.read(tmp_path / "x.toml")


def test_every_number_has_a_bound() -> None:
    """A new numeric setting comes with the numbers it may have."""
    settings = defaults()
    numbers = {
        f"{section.name}.{field.name}"
        for section in dataclasses.fields(settings)
        if section.name not in ("env", "model") and dataclasses.is_dataclass(getattr(settings, section.name))
        for field in dataclasses.fields(getattr(settings, section.name))
        if type(getattr(getattr(settings, section.name), field.name)) in (int, float)
    }
    bounded = {*bounds.AT_LEAST, *bounds.ABOVE_ZERO, *bounds.SHARES, *bounds.DECAYS}
    assert bounded == numbers - {"run.seed"}


def test_every_setting_is_explained() -> None:
    """Each field of a settings class is followed by its docstring."""
    import ast

    import keel.run.settings as module

    tree = ast.parse(Path(module.__file__).read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name != "Settings":
            for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign):
                    assert isinstance(after, ast.Expr), f"{node.name}.{ast.unparse(field.target)} has no docstring"


def test_the_environments_that_ship_are_found() -> None:
    assert set(ENVIRONMENTS) <= set(environment_names())
    for name in ENVIRONMENTS:
        assert find_environment(name).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def load(settings): ...", "must take one annotated argument"),
        ("def load(settings: int): ...", "expected a dataclass of settings"),
        ("x = 1", "has no function 'load'"),
        ("import nothing_like_this", r"fails when it is imported: ModuleNotFoundError.*\(line 1\)"),
        ("def load(:", r"SyntaxError.*\(line 1\)"),
    ],
)
def test_environment_files_that_are_none(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(SettingError, match=message):
        find_environment(str(tmp_path / "mine.py"))


def test_a_file_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    import os

    file = tmp_path / "mine.py"
    code = "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass S:\n    x: int = {}\ndef load(settings: S): ...\n"
    file.write_text(code.format(1))
    first = find_environment(str(file))
    assert find_environment(str(file)).settings is first.settings
    file.write_text(code.format(2))
    os.utime(file, ns=(1, 1))
    assert find_environment(str(file)).settings().x == 2
