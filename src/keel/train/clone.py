"""Behaviour cloning: one example a turn, with exactly the prompt that RL will show.

`loss = - mean over tokens of log pi(a | prompt, a_<)`; the stop token is cloned too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import torch
from numpy.typing import NDArray

from keel.envs.base import Environment, PromptText
from keel.errors import DataError, KeelError, TrainingError
from keel.models.weights import weights_of
from keel.prompt.context import Context, PastTurn
from keel.prompt.render import ChatRenderer
from keel.rollout.episode import derive_seed
from keel.train.scoring import score_rows
from keel.types import Task, Trajectory

_SHUFFLED_TURNS = 1024
"""Turns of many episodes are mixed before they are cut into batches; neighbours look alike."""

_BARREN_EPISODES = 200
"""So many demonstrations in a row without a turn are a fault, not chance; without a bound the search has no end."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One demonstrated turn."""

    prompt_ids: NDArray[np.int32]
    action_ids: NDArray[np.int32]


def demonstration_examples(
    environment: Environment, context: Context, text: PromptText, renderer: ChatRenderer, seed: int
) -> Iterator[Example]:
    """Examples from fresh demonstrations of training tasks, without end; turns of several episodes are mixed.

    Raises:
        DataError: demonstrations have no turns, their prompts do not fit, or the environment fails.
    """
    rng = np.random.default_rng(derive_seed(seed, "clone order"))
    numbers = count()
    barren = 0
    while True:
        examples: list[Example] = []
        while len(examples) < _SHUFFLED_TURNS:
            task_seed = derive_seed(seed, "clone", next(numbers))
            task = environment.sample_task(environment.splits[0], task_seed)
            before = len(examples)
            try:
                examples.extend(_episode_examples(environment, context, text, renderer, task, task_seed))
            except KeelError:
                raise
            except Exception as error:
                raise DataError(
                    f"the demonstration of task {task.id!r} failed: {type(error).__name__}: {error}. Mend the environment, or "
                    "skip cloning with clone.max_updates = 0; --debug shows where it happened."
                ) from error
            barren = barren + 1 if len(examples) == before else 0
            if barren == _BARREN_EPISODES:
                raise DataError(
                    f"{barren} demonstrations in a row are without a turn: either the first prompt never fits the context, "
                    "or the demonstrator gives up. Raise prompt.max_prompt_tokens, or check the environment's `demonstrate`."
                )
        for i in rng.permutation(len(examples)):
            yield examples[i]


def _episode_examples(
    environment: Environment, context: Context, text: PromptText, renderer: ChatRenderer, task: Task, seed: int
) -> Iterator[Example]:
    """The demonstrator's turns, replayed in the environment so that every prompt is the one RL would show."""
    env = environment.make_env()
    observation = env.reset(task, seed)
    past: list[PastTurn] = []
    for turn, demo in enumerate(environment.demonstrate(task, seed)):
        prompt_ids = context.prompt(past, observation, turn)
        if prompt_ids is None:
            return
        action_ids = renderer.response_ids(text.response(demo))
        yield Example(prompt_ids, action_ids)
        past.append(PastTurn(prompt_ids, action_ids, observation.text, demo.action))
        step = env.step(demo.action)
        if step.terminated or step.truncated:
            return
        observation = step.observation


def rollout_examples(trajectories: Sequence[Trajectory], seed: int) -> Iterator[Example]:
    """Examples from the successful ones of some trajectories (any policy's), over and over in new order."""
    examples = [
        Example(t.prompt_ids, t.action_ids) for j in trajectories if j.success for t in j.turns if t.action.valid
    ]
    if not examples:
        raise DataError(
            f"none of {len(trajectories)} trajectories succeeded, so there is nothing to clone. "
            "Sample more of them, or from a better policy."
        )
    rng = np.random.default_rng(derive_seed(seed, "clone order"))
    while True:
        for i in rng.permutation(len(examples)):
            yield examples[i]


class Cloner:
    """Supervised updates of a model in place."""

    def __init__(
        self,
        model: torch.nn.Module,
        examples: Iterable[Example],
        *,
        batch_turns: int,
        learning_rate: float,
        warmup_updates: int,
        weight_decay: float,
        max_grad_norm: float = 1.0,
    ) -> None:
        self.model = model
        self._examples = iter(examples)
        self._batch_turns = batch_turns
        self._learning_rate = learning_rate
        self._warmup_updates = warmup_updates
        self._max_grad_norm = max_grad_norm
        parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            parameters, lr=learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay, fused=True
        )
        self.num_updates = 0
        self.num_turns = 0
        self.loss: float | None = None
        """Of the last update; None before the first."""

    def go_on_after(self, num_updates: int, num_turns: int, loss: float | None) -> None:
        """Take the place of a cloner of the same examples that has made so many updates from so many turns."""
        self.num_updates, self.num_turns, self.loss = num_updates, num_turns, loss
        next(islice(self._examples, num_turns, num_turns), None)

    def draw(self) -> list[Example]:
        """The turns of the next update; drawn and not used, they are drawn again by whoever goes on."""
        return list(islice(self._examples, self._batch_turns))

    def update(self, batch: Sequence[Example]) -> float:
        """One optimizer step; returns the mean negative log-likelihood per token, in nats."""
        warm = min(1.0, (self.num_updates + 1) / max(1, self._warmup_updates))
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate * warm
        scores = score_rows(
            weights_of(self.model, torch.float32), [e.prompt_ids for e in batch], [e.action_ids for e in batch]
        )
        loss = -scores.logprob_N.mean()
        if not bool(torch.isfinite(loss)):
            raise TrainingError(
                f"the cloning loss is {loss.item()} at update {self.num_updates}; lower clone.learning_rate"
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._max_grad_norm)
        self.optimizer.step()
        self.num_updates += 1
        self.num_turns += len(batch)
        self.loss = float(loss.detach())
        return self.loss
