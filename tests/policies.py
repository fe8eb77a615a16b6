"""Small policies and players for tests, built from the real parts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from corridor import CorridorSettings, load
from keel.envs.base import Environment
from keel.models.tiny import TinyModel, build_tiny
from keel.models.tokenizer import build_tokenizer
from keel.models.weights import DecoderWeights, weights_of
from keel.objective.method import resolve
from keel.prompt.context import Context, Window
from keel.prompt.parse import ThinkAction
from keel.prompt.render import ChatRenderer
from keel.rollout.collect import EnvPool, collect
from keel.rollout.engine import Completion, Sampling
from keel.rollout.episode import Player
from keel.rollout.local import LocalEngine
from keel.train.clone import Cloner, demonstration_examples
from keel.train.trainer import Update
from keel.types import Group

Ids = NDArray[np.int32]

ARCHITECTURES = ("qwen3", "qwen2", "llama", "qwen3_untied")


def random_model(architecture: str, vocab_size: int = 61, seed: int = 0, num_layers: int = 3) -> PreTrainedModel:
    """A random Hugging Face model with grouped queries; norms and biases are random too, so that none can be left out."""
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": architecture != "qwen3_untied",
    }
    if architecture == "qwen2":
        model: PreTrainedModel = Qwen2ForCausalLM(Qwen2Config(**sizes))
    elif architecture == "llama":
        model = LlamaForCausalLM(LlamaConfig(**sizes))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=16))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0.0, 0.5, generator=generator)
            elif weight.dim() == 1:
                weight.uniform_(0.5, 1.5, generator=generator)
            else:
                weight.normal_(0.0, 0.3, generator=generator)
    return model.float().eval()


def random_rows(
    rng: np.random.Generator, count: int, vocab_size: int, longest: int = 12
) -> tuple[list[Ids], list[Ids]]:
    """Ragged prompts and actions in which prompts repeat, nest and branch."""
    prompts: list[Ids] = []
    actions: list[Ids] = []
    for i in range(count):
        if i and rng.random() < 0.6:
            base = prompts[int(rng.integers(i))]
            kept = base[: int(rng.integers(1, len(base) + 1))]
            tail = rng.integers(0, vocab_size, int(rng.integers(0, 4)))
            prompt = np.concatenate([kept, tail]).astype(np.int32)
        else:
            prompt = rng.integers(0, vocab_size, int(rng.integers(1, longest))).astype(np.int32)
        prompts.append(prompt)
        actions.append(rng.integers(0, vocab_size, int(rng.integers(1, 7))).astype(np.int32))
    return prompts, actions


def hub_logprobs(model: PreTrainedModel, prompt: Ids, action: Ids, temperature: float = 1.0) -> torch.Tensor:
    """The reference: one unpadded row through the Hugging Face forward pass."""
    ids = torch.from_numpy(np.concatenate([prompt, action]).astype(np.int64))[None]
    logits = model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.from_numpy(action.astype(np.int64))[:, None])[:, 0]


def engine_of(model: torch.nn.Module, **bounds: int) -> LocalEngine:
    return LocalEngine(fused(model), **bounds)


def fused(model: torch.nn.Module) -> DecoderWeights:
    return weights_of(model, torch.float32, fused=True)


def sample_all(
    engine: LocalEngine, prompts: Sequence[Ids], samplings: Sequence[Sampling], seeds: Sequence[int]
) -> list[Completion]:
    """All requests at once."""

    async def together() -> list[Completion]:
        requests = [engine.sample(p, s, seed) for p, s, seed in zip(prompts, samplings, seeds, strict=True)]
        return await asyncio.gather(*requests)

    return asyncio.run(together())


@dataclass(frozen=True, slots=True, eq=False)
class SmallAgent:
    """A tiny policy on the corridor."""

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerFast
    environment: Environment
    player: Player

    @property
    def engine(self) -> LocalEngine:
        engine = self.player.engine
        assert isinstance(engine, LocalEngine)
        return engine


SMALL = TinyModel(num_layers=1, hidden_size=32, intermediate_size=64, num_heads=2, num_key_value_heads=2)


def small_agent(
    settings: CorridorSettings | None = None,
    *,
    cloned: int = 0,
    max_prompt_tokens: int = 200,
    max_new_tokens: int = 10,
    max_episode_tokens: int = 1000,
) -> SmallAgent:
    """A tiny policy that can play the corridor, cloned for some updates."""
    environment = load(settings or CorridorSettings())
    tokenizer = build_tokenizer(environment.corpus(), None)
    model = build_tiny(SMALL, tokenizer, seed=1)
    renderer = ChatRenderer(tokenizer)
    text = environment.prompt_text("terse")
    if cloned:
        model.load_state_dict(_cloned_weights(cloned))
    context: Context = Window(renderer, text, 1, max_prompt_tokens)
    player = Player(
        engine=engine_of(model),
        renderer=renderer,
        context=context,
        grammar=ThinkAction(),
        sampling=Sampling(max_new_tokens=max_new_tokens, stop_ids=renderer.stop_ids),
        format_penalty=0.1,
        max_episode_tokens=max_episode_tokens,
    )
    return SmallAgent(model, tokenizer, environment, player)


UPDATE = Update(
    learning_rate=1e-3,
    warmup_updates=0,
    betas=(0.9, 0.99),
    epsilon=1e-8,
    weight_decay=0.0,
    max_grad_norm=1e9,
    minibatches=1,
    epochs=1,
    micro_batch_tokens=1 << 20,
    recompute_old=False,
    temperature=1.0,
    save_memory=False,
    dtype=torch.float32,
    seed=0,
)
"""One optimizer step over everything, gradients as they are."""


def informative_groups(
    agent: SmallAgent, method: str, *, groups: int = 5, size: int = 4, seed: int = 7
) -> tuple[Group, ...]:
    """What a training step keeps."""
    rollout = collect(
        agent.player,
        EnvPool(agent.environment),
        agent.environment,
        resolve(method),
        num_groups=groups,
        group_size=size,
        step=1,
        seed=seed,
    )
    return rollout.kept


@cache
def _cloned_weights(updates: int) -> dict[str, torch.Tensor]:
    agent = small_agent()
    examples = demonstration_examples(
        agent.environment, agent.player.context, agent.environment.prompt_text("terse"), agent.player.renderer, seed=3
    )
    cloner = Cloner(agent.model, examples, batch_turns=64, learning_rate=1e-2, warmup_updates=5, weight_decay=0.0)
    for _ in range(updates):
        cloner.update(cloner.draw())
    return {name: tensor.clone() for name, tensor in agent.model.state_dict().items()}
