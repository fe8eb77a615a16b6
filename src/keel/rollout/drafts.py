"""Which token usually follows: a table that lets the engine compute likely nodes ahead of time."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_TOTAL = 4
_LEAST_SHARE = 0.8


class Drafts:
    """Counts what follows the last `order` tokens. A draft only moves work into a larger batch; it never changes a sample.

    A context is those tokens as the digits of one number, with the vocabulary as base.
    """

    order = 3
    most = 6
    """Longest chain of drafted tokens."""

    def __init__(self, vocab_size: int) -> None:
        self._base = vocab_size
        self._contexts = vocab_size**self.order
        self._seen: dict[int, list[int]] = {}

    def context(self, tokens: Sequence[int]) -> int:
        """The context behind some tokens."""
        number = 0
        for token in tokens[-self.order :]:
            number = number * self._base + token
        return number

    def after(self, context: int, token: int) -> int:
        """The context one token later."""
        return (context * self._base + token) % self._contexts

    def observe(self, context: int, token: int) -> None:
        """Count one sampled token after its context."""
        entry = self._seen.get(context)
        if entry is None:
            self._seen[context] = [token, 1, 1]
            return
        entry[2] += 1
        if entry[0] == token:
            entry[1] += 1
        elif entry[2] > 2 * entry[1]:
            entry[:] = [token, 1, 1]

    def predict(self, context: int) -> int | None:
        """The token that follows in at least four of five cases, or None."""
        entry = self._seen.get(context)
        if entry is None or entry[2] < _LEAST_TOTAL or entry[1] < _LEAST_SHARE * entry[2]:
            return None
        return entry[0]
