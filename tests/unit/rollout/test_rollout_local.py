"""The local engine: exact log-probabilities, and results that depend on the request alone."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from keel.errors import KeelError
from keel.rollout.drafts import Drafts
from keel.rollout.engine import Completion, Sampling
from keel.rollout.local import LocalEngine
from keel.rollout.sampling import RowCache
from keel.types import Finish
from policies import ARCHITECTURES, Ids, engine_of, fused, hub_logprobs, random_model, random_rows, sample_all

TURN = Sampling(max_new_tokens=8, stop_ids=(3, 11))


def requests(count: int, seed: int = 0, vocab: int = 61) -> tuple[list[Ids], list[int]]:
    """Prompts that share prefixes and repeat; a seed of its own for each."""
    prompts, _ = random_rows(np.random.default_rng(seed), count, vocab, longest=20)
    return prompts, list(range(1000, 1000 + count))


def result(completion: Completion) -> tuple[list[int], Finish]:
    return completion.action_ids.tolist(), completion.finish


def assert_same(got: list[Completion], expected: list[Completion]) -> None:
    assert [result(c) for c in got] == [result(c) for c in expected]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.logprobs, b.logprobs, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_the_hugging_face_model(architecture: str, temperature: float) -> None:
    model = random_model(architecture)
    prompts, seeds = requests(12)
    turn = Sampling(max_new_tokens=8, stop_ids=(3, 11), temperature=temperature)
    for prompt, done in zip(prompts, sample_all(engine_of(model), prompts, [turn] * 12, seeds), strict=True):
        with torch.no_grad():
            expected = hub_logprobs(model, prompt, done.action_ids, temperature)
        np.testing.assert_allclose(done.logprobs, expected.numpy(), atol=3e-5)


@pytest.mark.parametrize("architecture", ["qwen3", "qwen2"])
def test_tokens_are_those_of_plain_inverse_cdf_sampling(architecture: str) -> None:
    """A loop without batch, tree or cache draws the same tokens."""
    from keel.rollout.sampling import uniform_at

    model = random_model(architecture)
    prompts, seeds = requests(6)
    for prompt, seed, done in zip(
        prompts, seeds, sample_all(engine_of(model), prompts, [TURN] * 6, seeds), strict=True
    ):
        ids, tokens = prompt.astype(np.int64).tolist(), []
        while len(tokens) < TURN.max_new_tokens and (not tokens or tokens[-1] not in TURN.stop_ids):
            with torch.no_grad():
                logits = model(torch.tensor([ids + tokens])).logits[0, -1].double()
            cumulative = torch.softmax(logits, -1).cumsum(-1)
            tokens.append(int(torch.searchsorted(cumulative, uniform_at(seed, len(tokens)), right=True)))
        assert done.action_ids.tolist() == tokens


def test_a_result_depends_on_its_seed_and_prompt_alone() -> None:
    model = random_model("qwen3")
    prompts, seeds = requests(40)
    together = sample_all(engine_of(model), prompts, [TURN] * 40, seeds)
    assert len({tuple(c.action_ids.tolist()) for c in together}) > 20
    backwards = sample_all(engine_of(model), prompts[::-1], [TURN] * 40, seeds[::-1])[::-1]
    assert_same(backwards, together)
    alone = [sample_all(engine_of(model), [p], [TURN], [s])[0] for p, s in zip(prompts, seeds, strict=True)]
    assert_same(alone, together)
    engine = engine_of(model)
    one_after_another = [sample_all(engine, [p], [TURN], [s])[0] for p, s in zip(prompts, seeds, strict=True)]
    assert_same(one_after_another, together)


def test_staggered_arrivals_give_the_same_results() -> None:
    model = random_model("qwen3")
    prompts, seeds = requests(12)
    together = sample_all(engine_of(model), prompts, [TURN] * 12, seeds)
    engine = engine_of(model)

    async def late(i: int) -> Completion:
        for _ in range(i * 2):
            await asyncio.sleep(0)
        return await engine.sample(prompts[i], TURN, seeds[i])

    async def staggered() -> list[Completion]:
        return await asyncio.gather(*(late(i) for i in range(12)))

    assert_same(asyncio.run(staggered()), together)


@pytest.mark.parametrize(
    "bounds", [{"max_slots": 30}, {"max_forward_tokens": 1}, {"max_slots": 30, "max_forward_tokens": 7}]
)
def test_memory_bounds_change_nothing(bounds: dict[str, int]) -> None:
    model = random_model("qwen3")
    prompts, seeds = requests(25)
    expected = sample_all(engine_of(model), prompts, [TURN] * 25, seeds)
    engine = engine_of(model, **bounds)
    got = [c for i in range(0, 25, 5) for c in sample_all(engine, prompts[i : i + 5], [TURN] * 5, seeds[i : i + 5])]
    assert_same(got, expected)
    assert_same(sample_all(engine, prompts, [TURN] * 25, seeds), expected)


def test_large_vocabulary_path_equals_the_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("qwen3")
    prompts, seeds = requests(20)
    samplings = [TURN, Sampling(max_new_tokens=5, stop_ids=(3,), temperature=0.5)] * 10
    small = sample_all(engine_of(model), prompts, samplings, seeds)
    monkeypatch.setattr(RowCache, "largest_vocab", 10)
    assert_same(sample_all(engine_of(model), prompts, samplings, seeds), small)


def test_drafts_save_passes_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("qwen3")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()  # the next token depends on the last one alone, so chains repeat
    rng = np.random.default_rng(0)
    rounds = [[rng.integers(0, 61, 9).astype(np.int32) for _ in range(8)] for _ in range(8)]
    turn = Sampling(max_new_tokens=12, stop_ids=(), temperature=0.1)

    def play(engine: LocalEngine) -> list[Completion]:
        return [c for i, prompts in enumerate(rounds) for c in sample_all(engine, prompts, [turn] * 8, [i] * 8)]

    drafting = engine_of(model)
    got = play(drafting)
    monkeypatch.setattr(Drafts, "predict", lambda self, recent: None)
    plain = engine_of(model)
    assert_same(got, play(plain))
    assert plain.statistics.forward_passes == 8 * 12
    assert drafting.statistics.forward_passes < 70


@pytest.mark.parametrize("room", [32, 2])
@pytest.mark.parametrize("longest_message", [1, 5])
def test_conversations_that_decode_side_by_side_are_exact(
    room: int, longest_message: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of rows that go on are kept from pass to pass, over prompts of several tokens and of different lengths."""
    monkeypatch.setattr("keel.rollout.tree._Rows._room", room)
    model = random_model("qwen3")
    engine = engine_of(model)
    rng = np.random.default_rng(longest_message)
    prompts = [rng.integers(0, 61, 6).astype(np.int32) for _ in range(5)]
    turn = Sampling(max_new_tokens=4, stop_ids=(3,))
    for round_number in range(4):
        done = sample_all(engine, prompts, [turn] * 5, [100 * round_number + i for i in range(5)])
        for prompt, completion in zip(prompts, done, strict=True):
            with torch.no_grad():
                expected = hub_logprobs(model, prompt, completion.action_ids, 1.0)
            np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=3e-5)
        messages = [rng.integers(0, 61, rng.integers(1, longest_message + 1)).astype(np.int32) for _ in prompts]
        prompts = [np.concatenate([p, c.action_ids, m]) for p, c, m in zip(prompts, done, messages, strict=True)]


def test_shared_prefixes_are_computed_once() -> None:
    engine = engine_of(random_model("qwen3"))
    prompt = np.arange(20, dtype=np.int32)
    one = Sampling(max_new_tokens=1, stop_ids=(3,))
    sample_all(engine, [prompt] * 16, [one] * 16, list(range(16)))
    assert engine.statistics.computed_tokens == 20
    longer = np.arange(25, dtype=np.int32)
    sample_all(engine, [longer] * 4, [one] * 4, list(range(4)))
    assert engine.statistics.computed_tokens == 25
    assert engine.statistics.prompt_tokens == 16 * 20 + 4 * 25
    assert engine.statistics.sampled_tokens == 20


def test_stop_token_is_kept_and_length_is_another_reason() -> None:
    model = random_model("qwen3")
    prompts, seeds = requests(60)
    turn = Sampling(max_new_tokens=15, stop_ids=TURN.stop_ids, temperature=3.0)
    done = sample_all(engine_of(model), prompts, [turn] * 60, seeds)
    stopped = [c for c in done if c.finish is Finish.STOP]
    cut = [c for c in done if c.finish is Finish.LENGTH]
    assert len(stopped) > 3 and len(cut) > 3 and len(stopped) + len(cut) == 60
    for c in stopped:
        assert c.action_ids[-1] in TURN.stop_ids
        assert not set(c.action_ids[:-1].tolist()) & set(TURN.stop_ids)
    for c in cut:
        assert len(c.action_ids) == turn.max_new_tokens
        assert not set(c.action_ids.tolist()) & set(TURN.stop_ids)
    assert all(len(c.logprobs) == len(c.action_ids) for c in done)


def test_a_stop_token_at_the_limit_is_a_stop() -> None:
    model = random_model("qwen3")
    prompt = np.array([1, 2], dtype=np.int32)
    greedy = Sampling(max_new_tokens=1, stop_ids=(), temperature=0)
    token = int(sample_all(engine_of(model), [prompt], [greedy], [0])[0].action_ids[0])
    stopping = Sampling(max_new_tokens=1, stop_ids=(token,), temperature=0)
    assert sample_all(engine_of(model), [prompt], [stopping], [0])[0].finish is Finish.STOP


def test_greedy_equals_the_largest_logits_of_the_hugging_face_model() -> None:
    model = random_model("llama")
    prompts, seeds = requests(6)
    greedy = Sampling(max_new_tokens=6, stop_ids=(), temperature=0)
    for prompt, done in zip(prompts, sample_all(engine_of(model), prompts, [greedy] * 6, seeds), strict=True):
        ids = prompt.astype(np.int64).tolist()
        for token in done.action_ids.tolist():
            with torch.no_grad():
                assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)


@pytest.mark.parametrize("largest_vocab", [10, 4096])
def test_truncated_sampling_stays_inside_its_tokens(largest_vocab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowCache, "largest_vocab", largest_vocab)
    model = random_model("qwen3")
    prompt = np.array([1, 2, 3], dtype=np.int32)
    with torch.no_grad():
        best = set(model(torch.tensor([[1, 2, 3]])).logits[0, -1].topk(3).indices.tolist())
    turn = Sampling(max_new_tokens=1, stop_ids=(), temperature=5.0, top_k=3)
    done = sample_all(engine_of(model), [prompt] * 200, [turn] * 200, list(range(200)))
    assert {int(c.action_ids[0]) for c in done} == best


def test_frequencies_match_the_model() -> None:
    model = random_model("qwen3", vocab_size=12)
    prompt = np.array([1, 2, 3], dtype=np.int32)
    with torch.no_grad():
        p = torch.softmax(model(torch.tensor([[1, 2, 3]])).logits[0, -1].double() / 3, -1).numpy()
    turn = Sampling(max_new_tokens=1, stop_ids=(), temperature=3.0)
    count = 4000
    done = sample_all(engine_of(model), [prompt] * count, [turn] * count, list(range(count)))
    seen = np.bincount([int(c.action_ids[0]) for c in done], minlength=12)
    assert float(((seen - count * p) ** 2 / (count * p)).sum()) < 37  # 11 degrees of freedom, p = 1e-4


@pytest.mark.parametrize("largest_vocab", [10, 4096])
def test_weights_that_are_not_finite_end_the_turn(largest_vocab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowCache, "largest_vocab", largest_vocab)
    model = random_model("qwen3")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    done = sample_all(engine_of(model), [np.array([1, 2], dtype=np.int32)] * 3, [TURN] * 3, [1, 2, 3])
    assert [c.finish for c in done] == [Finish.NONFINITE] * 3


def test_new_weights_forget_the_old_ones_and_name_their_version() -> None:
    engine = engine_of(random_model("qwen3", seed=0))
    prompts, seeds = requests(10)
    first = sample_all(engine, prompts, [TURN] * 10, seeds)
    other = random_model("qwen3", seed=1)
    engine.load(fused(other), version=7)
    second = sample_all(engine, prompts, [TURN] * 10, seeds)
    assert_same(second, sample_all(engine_of(other), prompts, [TURN] * 10, seeds))
    assert [result(c) for c in second] != [result(c) for c in first]
    assert {c.version for c in first} == {0} and {c.version for c in second} == {7}


def broken_once(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next forward pass fails as one without memory does; later ones work."""
    import keel.rollout.local as local

    original = local.forward

    def fail(*args: object, **kwargs: object) -> torch.Tensor:
        monkeypatch.setattr(local, "forward", original)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(local, "forward", fail)


def test_an_exception_reaches_every_waiting_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(random_model("qwen3"))
    prompts, seeds = requests(5)
    broken_once(engine, monkeypatch)

    async def gather() -> list[Completion | BaseException]:
        return await asyncio.gather(
            *(engine.sample(p, TURN, s) for p, s in zip(prompts, seeds, strict=True)), return_exceptions=True
        )

    done = asyncio.run(asyncio.wait_for(gather(), timeout=20))
    assert [str(e) for e in done] == ["out of memory"] * 5


def test_the_engine_works_again_after_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("qwen3")
    engine = engine_of(model)
    prompts, seeds = requests(5)
    broken_once(engine, monkeypatch)

    async def run(expect_failure: bool) -> list[Completion | BaseException]:
        waiting = asyncio.gather(
            *(engine.sample(p, TURN, s) for p, s in zip(prompts, seeds, strict=True)), return_exceptions=True
        )
        async with asyncio.timeout(20):
            done = await waiting
        assert all(isinstance(d, RuntimeError) for d in done) == expect_failure
        return list(done)

    asyncio.run(run(True))
    second = asyncio.run(run(False))
    assert_same(
        [c for c in second if isinstance(c, Completion)], sample_all(engine_of(model), prompts, [TURN] * 5, seeds)
    )


def test_a_cancelled_request_is_forgotten() -> None:
    engine = engine_of(random_model("qwen3"))
    prompt = np.array([1, 2], dtype=np.int32)

    async def cancel_one() -> Completion:
        gone = asyncio.ensure_future(engine.sample(prompt, TURN, 1))
        kept = asyncio.ensure_future(engine.sample(prompt, TURN, 2))
        await asyncio.sleep(0)
        gone.cancel()
        return await kept

    done = asyncio.run(cancel_one())
    assert_same([done], sample_all(engine_of(random_model("qwen3")), [prompt], [TURN], [2]))
    engine.load(fused(random_model("qwen3")), version=1)


def test_weights_cannot_change_under_a_request() -> None:
    model = random_model("qwen3")
    engine = engine_of(model)

    async def load_in_between() -> None:
        waiting = asyncio.ensure_future(engine.sample(np.array([1], dtype=np.int32), TURN, 1))
        await asyncio.sleep(0)
        with pytest.raises(KeelError, match="1 requests are in flight"):
            engine.load(fused(model), version=1)
        await waiting

    asyncio.run(load_in_between())


def test_an_empty_prompt_is_refused() -> None:
    engine = engine_of(random_model("qwen3"))
    with pytest.raises(ValueError, match="prompt has no tokens"):
        sample_all(engine, [np.zeros(0, dtype=np.int32)], [TURN], [0])


def test_memory_stays_within_the_slots() -> None:
    """Many different prompts: the tree is cut back instead of growing without end."""
    model = random_model("qwen3")
    engine = engine_of(model, max_slots=400)
    rng = np.random.default_rng(0)
    most = 0
    for i in range(60):
        prompts = [rng.integers(0, 61, 15).astype(np.int32) for _ in range(8)]
        sample_all(engine, prompts, [TURN] * 8, list(range(i * 8, i * 8 + 8)))
        most = max(most, engine._tree.num_slots)
    assert most < 400 + 8 * (15 + 8 + Drafts.most) + 1
    assert engine._store._hidden.shape[0] == 8192
