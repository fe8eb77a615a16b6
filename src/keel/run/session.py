"""Building a run from its settings: environment, policy, prompt, engine, trainer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from keel.envs.base import Environment, PromptText
from keel.errors import SettingError
from keel.models.load import choose_device, load_policy
from keel.models.tiny import build_tiny
from keel.models.tokenizer import build_tokenizer
from keel.models.weights import weights_of
from keel.objective.method import CreditState, Method
from keel.prompt.context import Context, FullHistory, Window
from keel.prompt.parse import ThinkAction
from keel.prompt.render import ChatRenderer
from keel.rollout.collect import EnvPool
from keel.rollout.engine import Sampling
from keel.rollout.episode import Player, derive_seed
from keel.rollout.local import LocalEngine
from keel.run.console import Console
from keel.run.folder import RunFolder
from keel.run.settings import Settings
from keel.train.trainer import Trainer, Update


@dataclass(slots=True, eq=False)
class Agent:
    """A policy with everything that turns observations into actions."""

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerFast
    renderer: ChatRenderer
    text: PromptText
    context: Context
    engine: LocalEngine
    dtype: torch.dtype
    player: Player
    """Samples as training does."""
    eval_player: Player
    """Samples as evaluation does."""


@dataclass(slots=True, eq=False)
class Session:
    """A run in memory."""

    settings: Settings[Any]
    environment: Environment
    method: Method
    agent: Agent
    pool: EnvPool
    trainer: Trainer
    folder: RunFolder
    console: Console
    credit_state: CreditState | None = None
    """What shapers remember; None before the first step."""

    @property
    def engine(self) -> LocalEngine:
        return self.agent.engine

    @property
    def player(self) -> Player:
        return self.agent.player

    @property
    def eval_player(self) -> Player:
        return self.agent.eval_player

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return self.agent.tokenizer


def build_agent(settings: Settings[Any], environment: Environment, checkpoint: str | None = None) -> Agent:
    """The policy of a run.

    Args:
        settings: of the run.
        environment: its words make the tiny policy's vocabulary.
        checkpoint: load this folder instead of what the settings start from (evaluation, resume).
    """
    transformers_logging.disable_progress_bar()
    device = choose_device(settings.model.device)
    path = checkpoint or settings.model.path
    if path is None:
        tokenizer = build_tokenizer(environment.corpus(), None)
        model = build_tiny(settings.model.tiny, tokenizer, derive_seed(settings.run.seed, "weights"))
        torch.nn.Module.to(model, device)
        stop_ids: tuple[int, ...] = ()
    else:
        policy = load_policy(path, device)
        model, tokenizer, stop_ids = policy.model, policy.tokenizer, policy.stop_ids
    _check_positions(model, settings)
    model.eval()
    dtype = _dtype(settings.model.dtype, device)
    renderer = ChatRenderer(tokenizer, stop_ids)
    text = environment.prompt_text(settings.prompt.style)
    context: Context
    if settings.prompt.context == "window":
        context = Window(renderer, text, settings.prompt.history, settings.prompt.max_prompt_tokens)
    else:
        context = FullHistory(renderer, text, settings.prompt.max_prompt_tokens)
    engine = LocalEngine(weights_of(model, dtype, fused=True))
    player = Player(
        engine=engine,
        renderer=renderer,
        context=context,
        grammar=ThinkAction(),
        sampling=Sampling(
            max_new_tokens=settings.prompt.max_new_tokens,
            stop_ids=renderer.stop_ids,
            temperature=settings.rollout.temperature,
        ),
        format_penalty=settings.rollout.format_penalty,
        max_episode_tokens=settings.prompt.max_episode_tokens,
    )
    sampling = Sampling(
        max_new_tokens=settings.prompt.max_new_tokens,
        stop_ids=renderer.stop_ids,
        temperature=settings.eval.temperature,
        top_p=settings.eval.top_p,
        top_k=settings.eval.top_k,
    )
    eval_player = dataclasses.replace(player, sampling=sampling)
    return Agent(model, tokenizer, renderer, text, context, engine, dtype, player, eval_player)


def _check_positions(model: Any, settings: Settings[Any]) -> None:
    """Raise when a turn can be longer than the positions that the model knows: it would answer from untrained ones."""
    prompt, new, most = (
        settings.prompt.max_prompt_tokens,
        settings.prompt.max_new_tokens,
        model.config.max_position_embeddings,
    )
    if prompt + new > most:
        raise SettingError(
            f"prompt.max_prompt_tokens {prompt} and prompt.max_new_tokens {new} are {prompt + new} together, but the model has "
            f"{most} positions. Lower one of them, or raise model.tiny.max_positions for the tiny policy."
        )


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def build_trainer(settings: Settings[Any], agent: Agent, method: Method) -> Trainer:
    """The trainer; its reference policy, when the method asks for one, is the policy as it is now."""
    train = settings.train
    update = Update(
        learning_rate=train.learning_rate,
        warmup_updates=train.warmup_updates,
        betas=(train.beta1, train.beta2),
        epsilon=train.epsilon,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        minibatches=train.minibatches,
        epochs=train.epochs,
        micro_batch_tokens=train.micro_batch_tokens,
        recompute_old=train.old_logprobs == "recomputed",
        temperature=settings.rollout.temperature,
        save_memory=settings.model.save_memory,
        dtype=agent.dtype,
        seed=settings.run.seed,
    )
    agent.player.keep_final_prompt = method.needs.values
    return Trainer(agent.model, update, needs_reference=method.needs.reference, critic=method.critic)
