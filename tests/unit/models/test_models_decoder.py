"""The decoder over a forest computes what the Hugging Face model computes, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2Config, LlamaConfig, Qwen2Config

import keel.train.scoring as scoring
from keel.errors import SettingError
from keel.models.weights import shape_of, weights_of
from keel.train.scoring import score_rows
from policies import ARCHITECTURES, fused, hub_logprobs, random_model, random_rows


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logprobs_and_gradients_equal_hugging_face(architecture: str) -> None:
    model = random_model(architecture)
    rng = np.random.default_rng(2)
    prompts, actions = random_rows(rng, 9, 61, longest=30)
    prompts.append(prompts[0])
    actions.append(actions[0])
    scored = score_rows(weights_of(model, torch.float32), prompts, actions)
    expected = torch.cat([hub_logprobs(model, p, a) for p, a in zip(prompts, actions, strict=True)])
    torch.testing.assert_close(scored.logprob_N, expected, rtol=1e-4, atol=2e-5)
    factor = torch.from_numpy(rng.normal(size=len(expected))).float()
    got = gradients(model, (scored.logprob_N * factor).sum())
    wanted = gradients(model, (expected * factor).sum())
    assert got.keys() == wanted.keys()
    for name, gradient in wanted.items():
        scale = float(gradient.abs().max())
        assert scale > 0, name
        assert float((got[name] - gradient).abs().max()) < 1e-4 * scale, name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fused_weights_compute_the_same(architecture: str) -> None:
    model = random_model(architecture)
    prompts, actions = random_rows(np.random.default_rng(3), 6, 61)
    plain = score_rows(weights_of(model, torch.float32), prompts, actions).logprob_N
    torch.testing.assert_close(score_rows(fused(model), prompts, actions).logprob_N, plain, rtol=1e-5, atol=1e-5)


def test_fused_weights_are_a_copy_without_gradient() -> None:
    model = random_model("qwen3")
    weights = fused(model)
    before = weights.embedding.clone()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    assert torch.equal(weights.embedding, before)
    assert not any(t.requires_grad for t in (weights.embedding, weights.head, weights.final_norm))


def test_a_single_token_prompt_and_action() -> None:
    model = random_model("qwen3")
    prompt, action = np.array([5], dtype=np.int32), np.array([7], dtype=np.int32)
    scored = score_rows(weights_of(model, torch.float32), [prompt], [action])
    assert scored.computed_tokens == 1
    torch.testing.assert_close(scored.logprob_N, hub_logprobs(model, prompt, action), rtol=1e-5, atol=1e-5)


def test_one_layer_model_is_trimmed_correctly() -> None:
    model = random_model("qwen3", num_layers=1)
    prompts, actions = random_rows(np.random.default_rng(4), 7, 61)
    scored = score_rows(weights_of(model, torch.float32), prompts, actions)
    expected = torch.cat([hub_logprobs(model, p, a) for p, a in zip(prompts, actions, strict=True)])
    torch.testing.assert_close(scored.logprob_N, expected, rtol=1e-4, atol=2e-5)


def test_temperature_divides_the_logits_and_entropy_is_of_that_distribution() -> None:
    model = random_model("qwen3")
    prompt, action = np.array([1, 2, 3], dtype=np.int32), np.array([4, 5], dtype=np.int32)
    scored = score_rows(weights_of(model, torch.float32), [prompt], [action], temperature=0.7, entropy=True)
    torch.testing.assert_close(scored.logprob_N, hub_logprobs(model, prompt, action, 0.7), rtol=1e-4, atol=2e-5)
    logits = model(torch.tensor([[1, 2, 3, 4, 5]])).logits[0, 2:4].float() / 0.7
    expected = torch.distributions.Categorical(logits=logits).entropy()
    assert scored.entropy_N is not None
    torch.testing.assert_close(scored.entropy_N, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("save_memory", [False, True])
def test_chunked_head_equals_unchunked(monkeypatch: pytest.MonkeyPatch, save_memory: bool) -> None:
    model = random_model("qwen3")
    rng = np.random.default_rng(5)
    prompts, actions = random_rows(rng, 8, 61)
    num = sum(len(a) for a in actions)
    factor_N, share_N = (torch.from_numpy(rng.normal(size=num)).float() for _ in range(2))

    def run() -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        scored = score_rows(
            weights_of(model, torch.float32), prompts, actions, entropy=True, save_memory=save_memory, temperature=1.3
        )
        assert scored.entropy_N is not None
        loss = (scored.logprob_N * factor_N).sum() + (scored.entropy_N * share_N).sum()
        return scored.logprob_N.detach(), scored.entropy_N.detach(), gradients(model, loss)

    whole = run()
    monkeypatch.setattr(scoring, "_LOGITS_AT_ONCE", 3 * 61)
    logprob_N, entropy_N, got = run()
    torch.testing.assert_close(logprob_N, whole[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy_N, whole[1], rtol=1e-5, atol=1e-5)
    for name, gradient in whole[2].items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_chunks_bound_the_logits_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = torch.log_softmax

    def spy(logits: torch.Tensor, dim: int) -> torch.Tensor:
        sizes.append(logits.numel())
        return original(logits, dim=dim)

    monkeypatch.setattr(scoring, "_LOGITS_AT_ONCE", 5 * 61)
    monkeypatch.setattr(scoring.torch, "log_softmax", spy)
    prompts, actions = random_rows(np.random.default_rng(6), 12, 61)
    with torch.no_grad():
        score_rows(weights_of(random_model("qwen3"), torch.float32), prompts, actions)
    assert max(sizes) == 5 * 61
    assert len(sizes) > 2


def test_bfloat16_is_close_and_weights_stay_float32() -> None:
    model = random_model("qwen3")
    prompts, actions = random_rows(np.random.default_rng(7), 6, 61)
    exact = score_rows(weights_of(model, torch.float32), prompts, actions).logprob_N
    scored = score_rows(weights_of(model, torch.bfloat16), prompts, actions)
    assert scored.logprob_N.dtype == torch.float32
    gap = (scored.logprob_N - exact).detach().abs()
    assert 0 < float(gap.mean()) < 0.2
    got = gradients(model, scored.logprob_N.sum())
    assert all(g.dtype == torch.float32 and bool(torch.isfinite(g).all()) for g in got.values())


def test_unsupported_architecture_names_the_supported_ones() -> None:
    with pytest.raises(SettingError, match=r"'gpt2' is not supported; expected one of qwen3, qwen2, llama"):
        shape_of(GPT2Config())


def test_rotary_scaling_and_sliding_windows_are_refused() -> None:
    with pytest.raises(SettingError, match="rotary scaling 'linear'"):
        shape_of(LlamaConfig(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}))
    with pytest.raises(SettingError, match="sliding-window"):
        shape_of(Qwen2Config(use_sliding_window=True, sliding_window=8, max_window_layers=0))


def test_another_activation_is_refused() -> None:
    with pytest.raises(SettingError, match="activation 'gelu'"):
        shape_of(LlamaConfig(hidden_act="gelu"))
