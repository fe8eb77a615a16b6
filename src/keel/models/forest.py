"""Prefix forests: rows of tokens that share prefixes, computed once.

Sibling trajectories, repeated states and growing histories repeat most of their tokens. A forest gives every distinct
prefix one node, so a forward pass costs distinct tokens, and no padding is stored. `AttentionBlock`s say which nodes
attend to which; the same blocks serve training (nodes of one batch) and sampling (slots of a cache).

Shape suffixes: `_M` nodes, `_S` rows of a block, `_Q` queries of a row, `_P` keys of a row (its whole path).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_MAX_PADDING = 1.2
"""A block may hold this much more attention area than its rows need; beyond it a new block is cheaper."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionBlock:
    """Rows of similar length whose queries attend to their own path."""

    query_SQ: Ints
    """Where each query comes from: an index into the query rows; padding repeats index 0."""
    key_SP: Ints
    """Slot of each key; padding repeats slot 0 and is masked."""
    mask_SQP: NDArray[np.bool_] | None
    """True where a query may look. None: plain causal, queries are the last Q of the P keys of each row."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPlan:
    """Blocks and where to find each query's output: row `inverse_M[m]` of the concatenated padded block outputs."""

    blocks: tuple[AttentionBlock, ...]
    inverse_M: Ints


def plan_attention(paths: Sequence[Ints], query_positions: Sequence[Ints], max_area: int = 1 << 22) -> AttentionPlan:
    """Group rows into blocks.

    Args:
        paths: per row the slots of its path, from the root on.
        query_positions: per row the positions on the path that ask; increasing. Queries are numbered row by row.
        max_area: most `rows * queries * keys` of a block (memory bound).
    """
    num_queries = np.array([len(q) for q in query_positions], dtype=np.int64)
    lengths = np.array([int(q[-1]) + 1 if len(q) else 0 for q in query_positions], dtype=np.int64)
    first_query = np.cumsum(num_queries) - num_queries
    order = np.lexsort((lengths, num_queries))
    order = order[num_queries[order] > 0]
    inverse_M = np.empty(int(num_queries.sum()), dtype=np.int64)
    blocks: list[AttentionBlock] = []
    offset = 0
    for rows in _buckets(order, num_queries, lengths, max_area):
        block, is_query_SQ = _block(rows, paths, query_positions, num_queries, lengths, first_query)
        inverse_M[block.query_SQ[is_query_SQ]] = offset + np.flatnonzero(is_query_SQ)
        offset += block.query_SQ.size
        blocks.append(block)
    return AttentionPlan(tuple(blocks), inverse_M)


def _buckets(order: Ints, num_queries: Ints, lengths: Ints, max_area: int) -> list[Ints]:
    """Cut the sorted rows where padding or size would grow too much."""
    cuts = [0]
    real = width = height = 0
    sizes = zip(num_queries[order].tolist(), lengths[order].tolist(), strict=True)
    for i, (q, p) in enumerate(sizes):
        new_width, new_height, new_real = max(width, q), max(height, p), real + q * p
        padded = new_width * new_height * (i + 1 - cuts[-1])
        if i > cuts[-1] and (padded > max_area or padded > _MAX_PADDING * new_real + 4096):
            cuts.append(i)
            new_width, new_height, new_real = q, p, q * p
        real, width, height = new_real, new_width, new_height
    return [rows for rows in np.split(order, cuts[1:]) if len(rows)]


def _block(
    rows: Ints,
    paths: Sequence[Ints],
    query_positions: Sequence[Ints],
    num_queries: Ints,
    lengths: Ints,
    first_query: Ints,
) -> tuple[AttentionBlock, NDArray[np.bool_]]:
    """A block, and which of its padded queries are real."""
    q_S, p_S = num_queries[rows], lengths[rows]
    width, height = int(q_S.max()), int(p_S.max())
    is_query_SQ = np.arange(width) < q_S[:, None]
    is_key_SP = np.arange(height) < p_S[:, None]
    query_SQ = np.where(is_query_SQ, first_query[rows][:, None] + np.arange(width), 0)
    key_SP = np.zeros((len(rows), height), dtype=np.int64)
    key_SP[is_key_SP] = np.concatenate([paths[r][:p] for r, p in zip(rows.tolist(), p_S.tolist(), strict=True)])
    limit_SQ = np.zeros((len(rows), width), dtype=np.int64)
    limit_SQ[is_query_SQ] = np.concatenate([query_positions[r] for r in rows.tolist()])
    last = is_query_SQ.all() and is_key_SP.all() and (limit_SQ[:, 0] == height - width).all()
    if last and width in (1, height):
        return AttentionBlock(query_SQ, key_SP, None), is_query_SQ
    mask_SQP = np.arange(height)[None, None, :] <= limit_SQ[:, :, None]
    return AttentionBlock(query_SQ, key_SP, mask_SQP), is_query_SQ


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The distinct prefixes of some (prompt, action) rows, ready for one forward pass.

    Example: prompts `[1 2]`, `[1 2]` with actions `[3 4]`, `[3 5]` have rows `1 2 3`, `1 2 3` (the last action token needs
    no forward): 3 nodes for 6 row tokens, and the scored pairs are (node 1, token 3), (node 2, 4), (node 1, 3), (node 2, 5).
    """

    token_M: Ints
    position_M: Ints
    attention: AttentionPlan
    """All nodes."""
    needed_U: Ints
    """Distinct nodes whose next-token distribution is asked for."""
    last_attention: AttentionPlan
    """Only the needed nodes, for the last layer."""
    source_N: Ints
    """Index into `needed_U` of each scored token, row by row."""
    target_N: Ints
    """The scored tokens."""
    num_row_tokens: int
    """Tokens that a padless batch without sharing would compute."""


def build_forest(prompts: Sequence[NDArray[np.int32]], actions: Sequence[NDArray[np.int32]]) -> Forest:
    """Merge the rows `prompt + action[:-1]` into a forest and locate every action token's predecessor.

    Args:
        prompts, actions: token ids per row; both at least one token long.
    """
    rows = [np.concatenate([p, a[:-1]]).astype(np.int64) for p, a in zip(prompts, actions, strict=True)]
    kept, path_of_row = _trie_paths(rows)
    token_M = np.concatenate([rows[b.row][b.new] for b in kept])
    position_M = np.concatenate([b.new for b in kept])
    starts = [len(p) - 1 for p in prompts]
    wanted_N = np.concatenate([path_of_row[r][starts[r] : starts[r] + len(a)] for r, a in enumerate(actions)])
    paths = [b.path for b in kept]
    attention = plan_attention(paths, [b.new for b in kept])
    is_needed = np.zeros(len(token_M), dtype=bool)
    is_needed[wanted_N] = True
    needed_positions = [b.new[is_needed[b.path[b.new]]] for b in kept]
    needed_U = np.concatenate([path[q] for q, path in zip(needed_positions, paths, strict=True)])
    rank_M = np.zeros(len(token_M), dtype=np.int64)
    rank_M[needed_U] = np.arange(len(needed_U))
    return Forest(
        token_M=token_M,
        position_M=position_M,
        attention=attention,
        needed_U=needed_U,
        last_attention=plan_attention(paths, needed_positions),
        source_N=rank_M[wanted_N],
        target_N=np.concatenate([a.astype(np.int64) for a in actions]),
        num_row_tokens=sum(len(r) for r in rows),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Branch:
    """A row that is no prefix of its successor in sorted order."""

    row: int
    new: Ints
    """Positions whose nodes this row adds; nodes are numbered branch by branch."""
    path: Ints


def _trie_paths(rows: list[Ints]) -> tuple[list[_Branch], list[Ints]]:
    """Branches, and the path of each row: in sorted order a row adds the nodes past its common prefix with the one before."""
    order = sorted(range(len(rows)), key=lambda r: rows[r].astype(">i4").tobytes())
    branches: list[_Branch] = []
    path_of_row: list[Ints] = [np.zeros(0, dtype=np.int64)] * len(rows)
    before_path = before_row = np.zeros(0, dtype=np.int64)
    num_nodes = 0
    pending: list[int] = []
    for rank, r in enumerate(order):
        row = rows[r]
        pending.append(r)
        if rank + 1 < len(order) and _common_prefix(row, rows[order[rank + 1]]) == len(row):
            continue
        shared = _common_prefix(before_row, row)
        new = np.arange(shared, len(row))
        path = np.concatenate([before_path[:shared], np.arange(num_nodes, num_nodes + len(new))])
        num_nodes += len(new)
        for p in pending:
            path_of_row[p] = path[: len(rows[p])]
        pending = []
        branches.append(_Branch(r, new, path))
        before_path, before_row = path, row
    return branches, path_of_row


def _common_prefix(a: Ints, b: Ints) -> int:
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
