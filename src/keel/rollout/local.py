"""The local engine: continuous batching over a prefix tree, on CPU or GPU.

Every prefix that any request has visited under the current weights is one node of a tree with its keys, values and
final hidden state. Requests walk the tree: where the next node exists, a token costs no forward pass at all (siblings,
repeated states, growing histories); where it does not, the nodes that all waiting requests miss are computed in one
pass. Frequent continuations (the fixed tokens of a response grammar) are computed ahead as drafts; a draft never changes
what is sampled, because each token is drawn from the exact distribution at its own node.

One coroutine per trajectory awaits `sample`; a finished episode costs nothing. Each request draws with a counter-based
generator, so its result depends on its seed, not on scheduling.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keel.errors import KeelError
from keel.models.attention import DevicePlan
from keel.models.decoder import forward
from keel.models.forest import plan_attention
from keel.models.weights import DecoderWeights
from keel.rollout.drafts import Drafts
from keel.rollout.engine import Completion, Sampling
from keel.rollout.sampling import Distribution, RowCache, distribution, draw, uniform, uniform_at
from keel.rollout.tree import PrefixTree, Segment, SlotStore
from keel.types import Finish

_PREPARED = 32
"""Uniform numbers of a request that are made at once, for all new requests together."""


@dataclass(slots=True, eq=False)
class _Request:
    """A turn being sampled: where it stands in the tree and what it drew."""

    path: NDArray[np.int64]
    """Slots from the root on; room for every token of the turn."""
    length: int
    node: int
    """Where it stands: the last slot."""
    context: int
    """The last tokens, which select drafts."""
    sampling: Sampling
    seed: int
    future: asyncio.Future[Completion]
    uniforms: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])

    def uniform(self) -> float:
        """The number that draws the next token."""
        position = len(self.tokens)
        return self.uniforms[position] if position < len(self.uniforms) else uniform_at(self.seed, position)


@dataclass(slots=True)
class EngineStatistics:
    """Work done since the last `load`: how much the tree saved."""

    sampled_tokens: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    forward_passes: int = 0


class LocalEngine:
    """Samples from decoder weights on their own device.

    Args:
        weights: fused decoder weights (`decoder.weights_of(model, fused=True)`).
        max_slots: most nodes kept; beyond it, nodes that no request stands on are dropped.
        max_forward_tokens: most nodes of one forward pass (memory bound).
    """

    def __init__(self, weights: DecoderWeights, *, max_slots: int = 1 << 20, max_forward_tokens: int = 16384) -> None:
        self._device = weights.embedding.device
        self._max_slots = max_slots
        self._max_forward_tokens = max_forward_tokens
        self._requests: list[_Request] = []
        self._driver: asyncio.Task[None] | None = None
        self.statistics = EngineStatistics()
        self.load(weights, version=0)

    def load(self, weights: DecoderWeights, version: int) -> None:
        """Take new weights; everything computed with the old ones is forgotten."""
        self._requests = [r for r in self._requests if not r.future.done()]
        if self._requests:
            raise KeelError(f"{len(self._requests)} requests are in flight; load weights between rollouts.")
        self._weights = weights
        self._version = version
        self.forget()
        self.statistics = EngineStatistics()

    def forget(self) -> None:
        """Drop everything computed so far, drafts included.

        Cached numbers are right but their last bits depend on which requests were computed together; a rollout that starts
        from nothing gives the same bits after a resume.
        """
        self._drafts = Drafts(self._weights.shape.vocab_size)
        self._tree = PrefixTree(self._weights.shape.vocab_size)
        self._store = SlotStore(self._weights)
        self._rows = RowCache()

    async def sample(self, prompt_ids: NDArray[np.int32], sampling: Sampling, seed: int) -> Completion:
        """Sample one turn.

        Args:
            prompt_ids: [P] token ids, at least one.
            sampling: limits, stop tokens, temperature.
            seed: the request's own; the same seed gives the same turn.
        """
        if len(prompt_ids) == 0:
            raise ValueError("prompt has no tokens; expected at least one")
        loop = asyncio.get_running_loop()
        prompt_path = self._tree.prompt_path(prompt_ids)
        path = np.empty(len(prompt_path) + sampling.max_new_tokens, dtype=np.int64)
        path[: len(prompt_path)] = prompt_path
        context = self._drafts.context(prompt_ids[-Drafts.order :].tolist())
        request = _Request(path, len(prompt_path), int(prompt_path[-1]), context, sampling, seed, loop.create_future())
        self.statistics.prompt_tokens += len(prompt_ids)
        self._requests.append(request)
        if self._driver is None or self._driver.done():
            self._driver = loop.create_task(self._drive())
            self._driver.add_done_callback(_look_at)
        return await request.future

    async def _drive(self) -> None:
        """Serve until nobody waits. Yielding once lets every coroutine whose turn ended ask for its next one.

        After a failure nothing in the tree can be trusted: nodes that were queued would be waited for without end.
        """
        try:
            while self._requests:
                await asyncio.sleep(0)
                self._advance()
        except BaseException as error:
            failed, self._requests = self._requests, []
            self.forget()
            if not isinstance(error, Exception):
                raise
            for request in failed:
                if not request.future.done():
                    request.future.set_exception(error)

    @torch.inference_mode()
    def _advance(self) -> None:
        """One forward pass for the missing nodes, then draw tokens until every request misses a node or is done."""
        self._requests = [r for r in self._requests if not r.future.done()]
        _prepare([r for r in self._requests if not r.uniforms])
        if self._tree.num_slots > self._max_slots:
            self._forget_unused()
        self._compute([s for r in self._requests if (s := self._missing(r)) is not None])
        ready = self._requests
        while ready:
            present = self._tree.has_hidden[[r.node for r in ready]]
            ready = self._draw_tokens([r for r, p in zip(ready, present, strict=True) if p])
        self._requests = [r for r in self._requests if not r.future.done()]

    def _missing(self, request: _Request) -> Segment | None:
        """What must be computed for a request, with likely continuations; None when nothing (or already queued)."""
        node, tree, drafts = request.node, self._tree, self._drafts
        if tree.has_hidden[node] or tree.queued[node]:
            return None
        path = request.path[: request.length]
        num_new = 1
        if not request.tokens:
            num_new = max(1, int(np.count_nonzero(~(tree.has_keys[path] | tree.queued[path]))))
        chain: list[int] = []
        context, room = request.context, request.sampling.max_new_tokens - len(request.tokens) - 1
        while len(chain) < min(Drafts.most, room):
            token = drafts.predict(context)
            if token is None or token in request.sampling.stop_ids or tree.child(node, token) is not None:
                break
            node = tree.add(node, token)
            chain.append(node)
            context = drafts.after(context, token)
        full = np.concatenate([path, np.array(chain, dtype=np.int64)]) if chain else path.copy()
        tree.queued[full[len(path) - num_new :]] = True
        return Segment(full, num_new + len(chain), 1 + len(chain))

    def _compute(self, segments: list[Segment]) -> None:
        """Forward passes over segments, ancestors first, each of bounded size."""
        batch: list[Segment] = []
        size = 0
        for segment in segments:
            if batch and size + segment.num_new > self._max_forward_tokens:
                self._forward(batch)
                batch, size = [], 0
            batch.append(segment)
            size += segment.num_new
        if batch:
            self._forward(batch)

    def _forward(self, segments: list[Segment]) -> None:
        tree, device = self._tree, self._device
        paths = [s.path for s in segments]
        new = [np.arange(len(s.path) - s.num_new, len(s.path)) for s in segments]
        hidden = [q[len(q) - s.num_hidden :] for q, s in zip(new, segments, strict=True)]
        slots = np.concatenate([p[q] for p, q in zip(paths, new, strict=True)])
        positions = np.concatenate(new)
        starts = np.cumsum([0, *(s.num_new for s in segments[:-1])])
        needed = np.concatenate(
            [start + np.arange(s.num_new - s.num_hidden, s.num_new) for start, s in zip(starts, segments, strict=True)]
        )
        self._store.begin(slots, tree.num_slots)
        all_needed = len(needed) == len(slots)
        plan = DevicePlan.of(plan_attention(paths, new), device)
        result = forward(
            self._weights,
            torch.from_numpy(tree.token[slots]).to(device),
            torch.from_numpy(positions).to(device),
            plan,
            self._store,
            None if all_needed else torch.from_numpy(needed).to(device),
            plan if all_needed else DevicePlan.of(plan_attention(paths, hidden), device),
        )
        self._store.keep_hidden(slots[needed], result)
        if self._small_vocabulary:
            # All at once: request by request, the same rows would cost many small products.
            sampling = self._requests[0].sampling
            self._rows.begin(sampling)
            self._rows.add(slots[needed].tolist(), self._distribution(result, sampling))
        tree.has_keys[slots] = True
        tree.queued[slots] = False
        tree.has_hidden[slots[needed]] = True
        self.statistics.computed_tokens += len(slots)
        self.statistics.forward_passes += 1

    def _draw_tokens(self, ready: list[_Request]) -> list[_Request]:
        """At least one token for each ready request; returns those that go on."""
        going: list[_Request] = []
        for sampling in dict.fromkeys(r.sampling for r in ready):
            requests = [r for r in ready if r.sampling is sampling or r.sampling == sampling]
            going += (self._walk if self._small_vocabulary else self._draw_together)(requests, sampling)
        return going

    @property
    def _small_vocabulary(self) -> bool:
        return self._weights.shape.vocab_size <= RowCache.largest_vocab

    def _chances(self, slots: NDArray[np.int64], sampling: Sampling) -> Distribution:
        return self._distribution(self._store.hidden_of(slots), sampling)

    def _distribution(self, hidden: Tensor, sampling: Sampling) -> Distribution:
        return distribution(torch.matmul(hidden, self._weights.head.T).float(), sampling)

    def _walk(self, requests: list[_Request], sampling: Sampling) -> list[_Request]:
        """Small vocabulary: every request walks on through known rows until it misses one or ends."""
        rows = self._rows
        rows.begin(sampling)
        missing = [slot for slot in dict.fromkeys(r.node for r in requests) if slot not in rows]
        if missing:
            rows.add(missing, self._chances(np.array(missing, dtype=np.int64), sampling))
        going: list[_Request] = []
        for request in requests:
            while (drawn := rows.draw(request.node, request.uniform())) is not None:
                if not self._take(request, *drawn):
                    break
            else:
                going.append(request)
        return going

    def _draw_together(self, requests: list[_Request], sampling: Sampling) -> list[_Request]:
        """Large vocabulary: one token for all requests in one go."""
        unique, row_R = np.unique([r.node for r in requests], return_inverse=True)
        uniform_R = np.array([r.uniform() for r in requests])
        drawn = draw(self._chances(unique, sampling), row_R, uniform_R)
        taken = zip(requests, drawn.tokens, drawn.logprobs, strict=True)
        return [request for request, token, logprob in taken if self._take(request, token, logprob)]

    def _take(self, request: _Request, token: int, logprob: float) -> bool:
        """Record a token; True when the request goes on."""
        if token < 0:
            self._finish(request, Finish.NONFINITE)
            return False
        request.tokens.append(token)
        request.logprobs.append(logprob)
        drafts, sampling = self._drafts, request.sampling
        drafts.observe(request.context, token)
        if token in sampling.stop_ids:
            self._finish(request, Finish.STOP)
            return False
        if len(request.tokens) == sampling.max_new_tokens:
            self._finish(request, Finish.LENGTH)
            return False
        request.node = request.path[request.length] = self._tree.extend(request.node, token)
        request.length += 1
        request.context = drafts.after(request.context, token)
        return True

    def _finish(self, request: _Request, finish: Finish) -> None:
        self.statistics.sampled_tokens += len(request.tokens)
        if not request.future.done():
            ids, logprobs = np.array(request.tokens, dtype=np.int32), np.array(request.logprobs, dtype=np.float32)
            request.future.set_result(Completion(ids, logprobs, finish, self._version))

    def _forget_unused(self) -> None:
        """Keep only the nodes that requests stand on."""
        kept, renamed = self._tree.compact([r.path[: r.length] for r in self._requests])
        self._store.compact(kept)
        self._rows = RowCache()
        for request in self._requests:
            request.path[: request.length] = renamed[request.path[: request.length]]
            request.node = int(request.path[request.length - 1])


def _prepare(requests: list[_Request]) -> None:
    """The first uniform numbers of new requests, in one go."""
    if not requests:
        return
    seeds = np.array([r.seed % 2**64 for r in requests], dtype=np.uint64)
    numbers = uniform(seeds[:, None], np.arange(_PREPARED, dtype=np.uint64))
    for request, row in zip(requests, numbers.tolist(), strict=True):
        request.uniforms = row


def _look_at(task: asyncio.Task[None]) -> None:
    """An interrupt reaches the caller by itself; unread, the task would print it once more."""
    if not task.cancelled():
        task.exception()
