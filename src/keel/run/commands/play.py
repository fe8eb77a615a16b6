"""`keel play ENV`: a person in the place of the policy, in the same loop that training and evaluation use."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from keel.envs.base import Env, Environment
from keel.errors import DataError, SettingError
from keel.models.tokenizer import build_tokenizer
from keel.prompt.context import Context, FullHistory, Window
from keel.prompt.parse import Grammar, ThinkAction
from keel.prompt.render import ChatRenderer, Ids
from keel.report.words import number_of
from keel.rollout.engine import Completion, Sampling
from keel.rollout.episode import Player, play
from keel.run.commands.arguments import environment_of, refuse_unused, settings_of, take_options
from keel.run.settings import Settings
from keel.types import Action, End, Finish, Observation, Step, Task, Trajectory

HELP = """keel play ENV [--split SPLIT] [--task ID] [--show-prompt] [--model PATH] [--seed S] [--any.setting VALUE]

Be the agent: you see the observations, admissible actions and rewards that a policy gets, in the same loop. Type an action, or
its number in the list. --show-prompt prints every turn the whole prompt that a policy reads, with its number of tokens: of the
tiny policy's tokenizer, or of the model given with --model (only its tokenizer is loaded).

    keel play alfworld --env.house full
    keel play sokoban --split held_out --seed 3 --show-prompt
    keel play webshop --model Qwen/Qwen3-0.6B --show-prompt
    keel play my_env.py

While playing: :help :rules :actions :prompt :expert :quit. Ctrl-D or the end of a script quits too."""

_COMMANDS = """:rules     what is to be done, what symbols mean and how to answer, as a language model reads it
:actions   the admissible actions, all of them
:prompt    the prompt that a policy reads now
:expert    how the environment's demonstrator plays this task from its start
:quit      stop
Anything else is your action: a text, or its number in the list. A whole response <think>...</think><action>...</action> works too."""
_USED = ("env.", "prompt.style", "prompt.context", "prompt.history", "prompt.max_prompt_tokens", "prompt.max_episode_tokens",
         "rollout.format_penalty", "model.path", "run.seed")  # fmt: skip
_LISTED = 40
"""More admissible actions than this are told only when asked for."""
_SEARCHED_TASKS = 512


def main(arguments: list[str]) -> int:
    """Play until the person stops."""
    if not arguments or any(a in ("-h", "--help") for a in arguments):
        print(HELP)
        return 0
    show_prompt = "--show-prompt" in arguments
    line = take_options([a for a in arguments if a != "--show-prompt"], ("--split", "--task"))
    environment_type, rest = environment_of(line.rest, "play")
    settings = settings_of(environment_type, rest, None, "play")
    refuse_unused(rest, _USED, "keel play")
    environment = environment_type.load(settings.env)
    split = line.options.get("--split") or environment.splits[0]
    if split not in environment.splits:
        raise SettingError(f"split {split!r} does not exist here; expected one of {', '.join(environment.splits)}.")
    screen = Screen(environment, settings.prompt.max_prompt_tokens, settings.rollout.format_penalty, show_prompt)
    player = build_player(settings, environment, screen)
    print(
        f"{environment.name}, {split}, at most {number_of(environment.max_turns, 'turn')}. :help explains, :quit stops."
    )
    played: list[Trajectory] = []
    try:
        while not played or (line.options.get("--task") is None and screen.ask_for_another()):
            seed = settings.run.seed + len(played)
            task = _task(environment, split, line.options.get("--task"), seed)
            played.append(_finished(play(player, screen.env(task), task, seed, seed)))
            _tell_end(played[-1])
    except Leave:
        return 0
    finally:
        won = sum(trajectory.success for trajectory in played)
        print(f"\nplayed {number_of(len(played), 'episode')}, {won} with success")
    return 0


def _finished(episode: Coroutine[None, None, Trajectory]) -> Trajectory:
    """The episode, played without an event loop: nothing in it waits, and Ctrl-C must stop the question at once."""
    try:
        episode.send(None)
    except StopIteration as finished:
        return finished.value
    finally:
        episode.close()
    raise AssertionError("an episode with a person waited for something")


def build_player(settings: Settings[Any], environment: Environment, screen: Screen) -> Player:
    """The player of a training run, with a person for its engine."""
    prompt = settings.prompt
    tokenizer = _tokenizer(settings, environment)
    renderer, grammar = ChatRenderer(tokenizer), ThinkAction()
    text = environment.prompt_text(prompt.style)
    context: Context = (
        Window(renderer, text, prompt.history, prompt.max_prompt_tokens)
        if prompt.context == "window"
        else FullHistory(renderer, text, prompt.max_prompt_tokens)
    )
    return Player(
        engine=Person(tokenizer, renderer, grammar, screen),
        renderer=renderer,
        context=context,
        grammar=grammar,
        sampling=Sampling(max_new_tokens=prompt.max_new_tokens, stop_ids=renderer.stop_ids),
        format_penalty=settings.rollout.format_penalty,
        max_episode_tokens=prompt.max_episode_tokens,
    )


def _tokenizer(settings: Settings[Any], environment: Environment) -> PreTrainedTokenizerFast:
    path = settings.model.path
    if path is None:
        return build_tokenizer(environment.corpus(), None)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        kind = DataError if Path(path).exists() else SettingError
        raise kind(
            f"no tokenizer can be loaded from {path!r}: {first}. Give a checkpoint folder, or a hub name while online."
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise SettingError(f"{path} has a slow tokenizer ({type(tokenizer).__name__}); a fast one is expected.")
    return tokenizer


def _task(environment: Environment, split: str, task_id: str | None, seed: int) -> Task:
    """The task of an id among the first fixed and sampled ones, or the one that the seed draws."""
    if task_id is None:
        return environment.sample_task(split, seed)
    drawn = (environment.sample_task(split, k) for k in range(_SEARCHED_TASKS))
    for task in drawn:
        if task.id == task_id:
            return task
    raise SettingError(
        f"no task {task_id!r} among the first {_SEARCHED_TASKS} of split {split!r}; leave --task out, and choose with --seed."
    )


class Leave(BaseException):
    """The person stops. No `Exception`: the loop would take it for a failure of the environment."""


class Screen:
    """What the person sees and types."""

    def __init__(
        self, environment: Environment, max_prompt_tokens: int, format_penalty: float, show_prompt: bool
    ) -> None:
        self._environment = environment
        self._max_prompt_tokens = max_prompt_tokens
        self._format_penalty = format_penalty
        self._show_prompts = show_prompt
        self._task: Task | None = None
        self._observation: Observation | None = None
        self._turn = 0
        self._penalty = ""

    def env(self, task: Task) -> ShownEnv:
        """A fresh environment that tells this screen what happens."""
        self._task, self._turn = task, 0
        family = f", {task.family}" if task.family else ""
        print(f"\n--- task {task.id}{family} ---")
        return ShownEnv(self._environment.make_env(), self)

    def show(self, observation: Observation) -> None:
        """What the agent sees; before the first one, what it means."""
        first, self._observation = self._observation is None, observation
        about = self._rules().partition(observation.text)[0].partition("\n\n")[0].strip()
        if first and about:
            print(f"\n{about}\n\n:rules says how to answer too.")
        print(f"\n{observation.text}")
        if observation.image is not None:
            height, width = observation.image.shape[:2]
            print(f"(the agent also sees a picture of {width}x{height})")

    def show_step(self, step: Step) -> None:
        """The reward in its parts, and what comes next."""
        self._turn += 1
        refused = "" if step.accepted else "   refused: nothing happened"
        numbers = "".join(f"   {name} {value:g}" for name, value in step.info.items())
        print(f"reward env {step.reward:g}{self._penalty}{refused}{numbers}")
        self.show(step.observation)

    def show_judgement(self, action: Action) -> None:
        """What the response grammar says, to be shown with the reward."""
        self._penalty = "" if action.valid else f", format {-self._format_penalty:g} ({action.why})"

    @property
    def admissible(self) -> tuple[str, ...] | None:
        """What the environment would accept now."""
        return self._observation.admissible if self._observation else None

    def _rules(self) -> str:
        """The environment's own wording of the task for a language model."""
        assert self._observation is not None
        return self._environment.prompt_text("full").user_message(self._observation, (), self._turn)

    def show_actions(self, everything: bool) -> None:
        admissible = self.admissible
        if admissible is None:
            print("any text may be an action: the environment does not list them" if everything else "")
        elif len(admissible) > _LISTED and not everything:
            print(f"\n{len(admissible)} admissible actions; :actions lists them")
        else:
            print("\n" + "   ".join(f"{k} {action}" for k, action in enumerate(admissible, 1)))

    def response(self, prompt: str, num_tokens: int) -> str:
        """Ask until an action is typed; returns it as a response in the grammar."""
        if self._show_prompts:
            self._show_prompt(prompt, num_tokens)
        self.show_actions(everything=False)
        while True:
            typed = self._read(f"turn {self._turn + 1}> ")
            if not typed.strip():
                continue
            if typed == ":rules":
                print(f"\n{self._rules()}")
            elif typed == ":actions":
                self.show_actions(everything=True)
            elif typed == ":prompt":
                self._show_prompt(prompt, num_tokens)
            elif typed == ":expert":
                self._show_expert()
            elif typed in (":quit", ":q"):
                raise Leave
            elif typed.startswith(":"):
                print(_COMMANDS)
            elif "<action>" in typed:
                return typed
            elif "<" in (action := self._meant(typed)) and action != typed:
                print(f"write {action} with your own words in place of <...>")
            else:
                return f"<think></think><action>{action}</action>"

    def ask_for_another(self) -> bool:
        """Whether the person wants the next task: yes unless they stop."""
        try:
            return self._read("Enter plays the next task, :quit stops> ") not in (":quit", ":q")
        except Leave:
            return False

    def _meant(self, typed: str) -> str:
        """The action of a number in the list; a text as it is."""
        admissible = self.admissible or ()
        word = typed.strip()
        if word.isascii() and word.isdigit() and word not in admissible and 1 <= int(word[:9]) <= len(admissible):
            return admissible[int(word) - 1]
        return typed

    def _show_prompt(self, prompt: str, num_tokens: int) -> None:
        print(f"\n===== prompt, {num_tokens} tokens of at most {self._max_prompt_tokens} =====")
        print(f"{prompt}\n===== end of the prompt =====")

    def _show_expert(self) -> None:
        assert self._task is not None
        turns = self._environment.demonstrate(self._task, 0)
        print("\n".join(f"{k}. {turn.action}" for k, turn in enumerate(turns, 1)) or "there is no demonstration")

    def _read(self, question: str) -> str:
        """A line. The end of the input, like :quit, means to leave."""
        try:
            typed = input(question)
        except EOFError:
            print()
            raise Leave from None
        if not sys.stdin.isatty():
            print(typed)
        return typed


@dataclass(frozen=True, slots=True)
class Person:
    """An engine whose samples are typed."""

    tokenizer: PreTrainedTokenizerFast
    renderer: ChatRenderer
    grammar: Grammar
    screen: Screen

    async def sample(self, prompt_ids: Ids, sampling: Sampling, seed: int) -> Completion:
        """What the person types, as the ids that a policy would have sampled for it."""
        prompt = self.tokenizer.decode(prompt_ids.tolist(), skip_special_tokens=False)
        response = self.screen.response(str(prompt), len(prompt_ids))
        opening = self.renderer.opening
        whole = response if response.startswith(opening.rstrip()) else opening + response
        action_ids = self.renderer.response_ids(whole)
        action = self.grammar.parse(self.renderer.decode(action_ids), self.screen.admissible, cut=False)
        self.screen.show_judgement(action)
        return Completion(action_ids, np.zeros(len(action_ids), dtype=np.float32), Finish.STOP, 0)


class ShownEnv:
    """An environment that shows what it does."""

    def __init__(self, env: Env, screen: Screen) -> None:
        self._env = env
        self._screen = screen

    def reset(self, task: Task, seed: int) -> Observation:
        observation = self._env.reset(task, seed)
        self._screen.show(observation)
        return observation

    def step(self, action: str) -> Step:
        step = self._env.step(action)
        self._screen.show_step(step)
        return step

    def snapshot(self) -> object:
        return self._env.snapshot()

    def restore(self, snapshot: object) -> None:
        self._env.restore(snapshot)


def _tell_end(trajectory: Trajectory) -> None:
    parts = ", ".join(f"{name} {value:g}" for name, value in trajectory.parts().items()) or "none"
    ends = {
        End.TERMINATED: "the environment ended the episode",
        End.TURN_LIMIT: "the limit of turns is reached",
        End.TOKEN_LIMIT: "the budget of sampled tokens is spent",
        End.PROMPT_OVERFLOW: "the prompt does not fit prompt.max_prompt_tokens",
        End.ERROR: "the environment failed",
    }
    print(
        f"\n{'SUCCESS' if trajectory.success else 'no success'}: {ends[trajectory.end]} after {number_of(len(trajectory.turns), 'turn')}"
    )
    print(f"rewards of the episode: {parts}")
    if trajectory.error:
        print(trajectory.error)
