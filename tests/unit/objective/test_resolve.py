"""From text to a method, and from a method to text."""

from pathlib import Path

import pytest

from keel.errors import SettingError
from keel.objective.method import describe, diff, resolve
from keel.objective.methods import gspo, sampo
from keel.objective.resolve import catalogue
from keel.objective.surrogate import Clip


@pytest.mark.parametrize("name", catalogue())
def test_every_name_resolves_and_is_described(name: str) -> None:
    text = describe(resolve(name))
    for heading in ("FILTERING", "ADVANTAGE", "CLIPPING", "AGGREGATION", "PENALTIES", "NEEDS"):
        assert heading in text
    assert "Source" not in text.splitlines()[0]


@pytest.mark.parametrize("name", catalogue())
def test_a_method_does_not_differ_from_itself(name: str) -> None:
    method = resolve(name)
    same = "the same: filtering, advantage, clipping, aggregation, penalties"
    assert diff(method, method).splitlines() == [f"- {method.name}", f"+ {method.name}", "", same]


def test_keywords_reach_the_method() -> None:
    method = resolve("sampo(low=0.01, high=0.02, released=True, unit='trajectory')")
    assert isinstance(method.surrogate, Clip) and (method.surrogate.low, method.surrogate.high) == (0.01, 0.02)
    assert method.ratio.unit == "trajectory" and method.name == "sampo(released)(trajectory)"
    assert resolve("sampo") == sampo()


def test_proas_is_added_last() -> None:
    method = resolve("gigpo(scale='none')+proas")
    assert method.name == "gigpo+proas" and len(method.shapers) == 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("samppo", "unknown method 'samppo'. Did you mean 'sampo'?"),
        ("sampo(lo=1)", "unknown keyword of sampo 'lo'. Did you mean 'low'?"),
        ("sampo+proass", "unknown shaper after '\\+' 'proass'. Did you mean 'proas'?"),
        ("sampo(0.1)", "expected keywords with plain values"),
        ("sampo(low=)", "expected keywords with plain values"),
        ("sampo(low=open('x'))", "expected keywords with plain values"),
        ("", "names no method"),
        ("none.py:f", "no file 'none.py'"),
        ("gigpo(scale='std2')", "scale of gigpo is 'std2'; Input should be 'std' or 'none'"),
        ("sampo(low=True)", "low of sampo is True; Input should be a valid number. Write it like low=0.003"),
        ("sampo(low='1')", "low of sampo is '1'; Input should be a valid number"),
        ("sampo(max_tries=2.5)", "max_tries of sampo is 2.5; Input should be a valid integer"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong(expression: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        resolve(expression)


def test_a_users_file_may_hold_dataclasses(tmp_path: Path) -> None:
    file = tmp_path / "with_settings.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from keel.objective.methods import grpo\n"
        "@dataclass(frozen=True)\n"
        "class Mine:\n    clip: float = 0.4\n"
        "def mine():\n    return grpo(clip=Mine().clip)\n"
    )
    assert resolve(f"{file}:mine").surrogate == resolve("grpo(clip=0.4)").surrogate


def test_a_users_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\n"
        "from keel.objective.methods import gspo\n"
        "def wide(low: float = 0.1):\n"
        "    '''Mine.'''\n"
        "    return replace(gspo(low=low), name='wide')\n"
        "def number():\n"
        "    return 3\n"
    )
    method = resolve(f"{file}:wide(low=0.2)")
    assert isinstance(method.surrogate, Clip) and method.surrogate.low == 0.2
    with pytest.raises(SettingError, match="Did you mean 'wide'"):
        resolve(f"{file}:wied")
    with pytest.raises(SettingError, match="gave a int"):
        resolve(f"{file}:number")
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_like_this\n")
    with pytest.raises(SettingError, match=r"importing .* failed: ModuleNotFoundError"):
        resolve(f"{broken}:wide")


def test_sampo_reads_like_the_paper() -> None:
    text = describe(sampo())
    for part in (
        "Varied(part='env'",
        "EpisodeNorm(part='env'",
        "AnchorNorm(weight=1.0, gamma=0.95",
        "Ratio(unit='turn', form='straight_through'",
        "Clip(low=0.003, high=0.004",
        "UnitMean(unit='token'",
        "KlPenalty(coefficient=0.01, estimator='k3'",
        "log s = mean over the unit's tokens of log(pi / pi_old)",
    ):
        assert part in text


def test_diff_names_fields_and_pieces() -> None:
    text = diff(sampo(), gspo(low=0.01))
    assert "Clip  low: 0.003 -> 0.01" in text
    assert "- AnchorNorm(" in text
    assert "UnitMean  unit: 'token' -> 'turn'" in text
    assert "the same: penalties" in text
