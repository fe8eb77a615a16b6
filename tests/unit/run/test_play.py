"""A person in the place of the policy: scripted input, the same loop."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from keel.envs.sokoban import SokobanSettings, load
from keel.errors import KeelError, SettingError
from keel.run import cli
from keel.run.commands import play
from runs import CORRIDOR

Play = Callable[..., str]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Play with typed lines; returns what the screen shows."""

    def run(arguments: str, *lines: str, status: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        assert play.main(arguments.split()) == status
        return capsys.readouterr().out

    return run


def test_the_demonstration_typed_in_wins(played: Play) -> None:
    environment = load(SokobanSettings(demonstrator="optimal"))
    task = environment.sample_task("train", 3)
    moves = [turn.action for turn in environment.demonstrate(task, 0)]
    shown = played("sokoban --seed 3", *moves, ":quit")
    assert f"--- task {task.id} ---" in shown
    assert f"SUCCESS: the environment ended the episode after {len(moves)} turns" in shown
    assert shown.count("reward env 0\n") == len(moves) - 1 and shown.count("reward env 10\n") == 1
    assert "rewards of the episode: env 10, format 0" in shown
    assert shown.endswith("played 1 episode, 1 with success\n")


def test_observations_are_those_of_the_environment(played: Play) -> None:
    environment = load(SokobanSettings())
    env = environment.make_env()
    texts = [
        env.reset(environment.sample_task("held_out", 5), 5).text,
        *(env.step("left").observation.text for _ in range(2)),
    ]
    shown = played("sokoban --seed 5 --split held_out", "left", "3")
    for text in texts:
        assert text in shown
    assert "1 up   2 down   3 left   4 right" in shown


def test_symbols_are_explained_in_the_environment_s_own_words(played: Play) -> None:
    shown = played("sokoban --seed 5 --env.max_turns 10", *["nothing"] * 10, "", ":quit")
    assert shown.count("--- task ") == 2
    assert shown.count("√ is a box that is on a target") == 1  # once, before the first room
    assert shown.index("# is a wall") < shown.index(" P ")
    environment = load(SokobanSettings())
    observation = environment.make_env().reset(environment.sample_task("train", 5), 5)
    rules = environment.prompt_text("full").user_message(observation, (), 0)
    assert "Choose one of four moves: up, down, left, right." in rules
    assert f"\n{rules}\n" in played("sokoban --seed 5", ":rules", ":quit")
    assert f"\n{rules}\n" not in shown


def test_what_is_explained_is_not_shown_twice(played: Play) -> None:
    assert played("alfworld", ":quit").count("Welcome to TextWorld") == 1


def test_an_environment_without_rules_shows_the_observation_alone(played: Play) -> None:
    shown = played(f"{CORRIDOR} --seed 1", ":quit")
    assert shown.partition(" ---\n\n")[2].startswith("door ") and shown.count("door ") == 1


def test_an_inadmissible_action_costs_what_it_costs_the_policy(played: Play) -> None:
    shown = played("sokoban --rollout.format_penalty 0.25", "banana", "up", "banana")
    expected = "reward env 0, format -0.25 (not an admissible action: 'banana')   refused: nothing happened"
    assert shown.count(expected) == 2


def test_a_whole_response_goes_through_the_grammar(played: Play) -> None:
    good = "<think>go</think><action> UP </action>"
    shown = played("sokoban", good, "<think>go</think> now <action>up</action>", "hello </action> there")
    lines = [line for line in shown.splitlines() if line.startswith("reward")]
    assert "format" not in lines[0]
    assert "format -0.1 (text between </think> and <action>)" in lines[1]
    assert "format -0.1 (2 </action> tags)" in lines[2] or "format -0.1 (two </action> tags)" in lines[2]


def test_the_prompt_is_what_a_policy_reads(played: Play) -> None:
    shown = played("sokoban --seed 1 --show-prompt --prompt.history 2", "down")
    environment = load(SokobanSettings())
    env = environment.make_env()
    text = environment.prompt_text("terse")
    message = text.user_message(env.reset(environment.sample_task("train", 1), 1), (), 0)
    assert f"<|im_start|>user\n{message}<|im_end|><|im_start|>assistant\n" in shown
    assert "tokens of at most 512 =====" in shown
    assert "past player" in shown.partition("turn 1> ")[2]


def test_the_number_of_tokens_counts_words(played: Play) -> None:
    """Two markers, a role and a newline before and behind: 7 tokens around the words, symbols and newlines of the message."""
    shown = played("sokoban --seed 1", ":prompt")
    prompt = shown.partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    tokens = len(prompt.split()) + prompt.count("\n") + 7
    assert f"===== prompt, {tokens} tokens of at most 512 =====" in shown


def test_commands(played: Play) -> None:
    shown = played("sokoban --seed 1", ":help", ":expert", ":actions", "", ":nonsense", ":q", "never read")
    assert shown.count(":expert    how the environment's demonstrator plays") == 2
    assert "1. down\n2. down\n3. down" in shown
    assert "reward" not in shown and "never read" not in shown
    assert shown.endswith("played 0 episodes, 0 with success\n")


def test_the_end_of_the_input_stops(played: Play) -> None:
    assert played("sokoban").endswith("turn 1> \n\nplayed 0 episodes, 0 with success\n")


def test_the_limit_of_turns_ends_and_the_next_task_follows(played: Play) -> None:
    shown = played("sokoban --env.max_turns 10 --seed 7", *["no move"] * 10, "", "down")
    assert "no success: the limit of turns is reached after 10 turns" in shown
    assert shown.count("--- task ") == 2
    assert shown.endswith("played 1 episode, 0 with success\n")


def test_a_prompt_that_does_not_fit_ends_as_for_the_policy(played: Play) -> None:
    shown = played("sokoban --prompt.max_prompt_tokens 10", ":quit")
    assert "no success: the prompt does not fit prompt.max_prompt_tokens after 0 turns" in shown


def test_a_task_by_its_id(played: Play) -> None:
    task = load(SokobanSettings()).sample_task("held_out", 11)
    shown = played(f"sokoban --split held_out --task {task.id} --env.max_turns 10", *["no move"] * 10, "never read")
    assert f"--- task {task.id} ---" in shown and shown.count("--- task") == 1


def test_the_number_of_a_pattern_asks_for_words(played: Play) -> None:
    shown = played("webshop --env.catalogue generated", "1", "search[rug]", ":quit")
    assert "turn 1> 1\nwrite search[<your query>] with your own words in place of <...>\nturn 1> search[rug]" in shown
    assert "reward env 0   task_score 0" in shown and "format" not in shown


def test_control_c_stops_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(question: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupt)
    assert cli.run(["play", "sokoban"]) == 130
    assert capsys.readouterr().out.endswith("played 0 episodes, 0 with success\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sokoban --split test", "split 'test' does not exist here; expected one of train, held_out"),
        ("sokoban --task nope", "no task 'nope' among the first"),
        ("sokoban --model /no/such/folder", "no tokenizer can be loaded from '/no/such/folder'"),
        ("sokoben", "Did you mean 'sokoban'"),
        ("", "needs an environment first"),
    ],
)
def test_wrong_requests(arguments: str, message: str) -> None:
    with pytest.raises((SettingError, KeelError), match=message):
        play.main(arguments.split() or ["--show-prompt"])
