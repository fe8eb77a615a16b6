"""The reference graph of a Sokoban level: verified pushes, and every shortest walk to them.

Only pushes change anything, so pushes are verified; how the player walked to one does not matter. For each verified push there is a chain of
vertices "this many steps from the place to push from", and a room belongs to one vertex of each chain. A move is an edge when it goes down
one of the chains, or is a verified push. The chains are computed when asked for, never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from keel.credit.graph import Edge, Growth, Path, shortest_paths
from keel.credit.progress import AbstractStep, Vertex
from keel.credit.purify import purify
from keel.credit.states import SUCCESS, StateGraph
from keel.errors import DataError

_WITHOUT_PLAYER = bytes.maketrans(b"@+", b" .")


class Parts(NamedTuple):
    """A room, taken apart."""

    boxes: str
    """Where the boxes are, as a vertex: the room without its player, or success when every box is on a target."""
    player: int
    """Index of the player in the room's bytes."""


@lru_cache(maxsize=1 << 14)
def parts(room: bytes) -> Parts:
    """Boxes and player of a room.

    Raises:
        DataError: there is no player.
    """
    player = max(room.find(b"@"), room.find(b"+"))
    if player < 0:
        raise DataError(f"a Sokoban room without a player:\n{room.decode('ascii', 'replace')}\nexpected one @ or +")
    return Parts(SUCCESS if b"$" not in room else room.translate(_WITHOUT_PLAYER).decode("ascii"), player)


@lru_cache(maxsize=2048)
def walking_distance(boxes: str, goal: int) -> Mapping[int, int]:
    """Fewest steps from every cell to a goal cell, past walls and boxes; treat as read-only."""
    stride = boxes.index("\n") + 1
    steps = {goal: 0}
    frontier = [goal]
    while frontier:
        found: list[int] = []
        for cell in frontier:
            for near in (cell - 1, cell + 1, cell - stride, cell + stride):
                if 0 <= near < len(boxes) and near not in steps and boxes[near] in " .":
                    steps[near] = steps[cell] + 1
                    found.append(near)
        frontier = found
    return steps


Place = tuple[tuple[str, int], int]
"""((arrangement of boxes, cell to push from), steps to walk there)."""


@lru_cache(maxsize=1 << 14)
def _places(boxes: str, cells: tuple[int, ...], here: int) -> tuple[Place, ...]:
    chains = ((cell, walking_distance(boxes, cell)) for cell in cells)
    return tuple(((boxes, cell), chain[here]) for cell, chain in chains if here in chain)


@dataclass(frozen=True, slots=True)
class PushGraph:
    """A reference graph over rooms (bytes)."""

    pushes: StateGraph = field(default_factory=StateGraph)
    """Vertices: where the boxes are. Actions: `CELL:DIRECTION`, the player's cell before the push."""
    paths: tuple[Path, ...] = ()
    """Whole move sequences of verified paths."""
    _cells: Mapping[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cells: dict[str, set[int]] = {}
        for edge in self.pushes.counts:
            cells.setdefault(str(edge.source), set()).add(int(edge.action.partition(":")[0]))
        object.__setattr__(self, "_cells", {boxes: tuple(sorted(found)) for boxes, found in cells.items()})

    @property
    def num_vertices(self) -> int:
        """Verified arrangements of boxes."""
        return self.pushes.num_vertices

    @property
    def num_edges(self) -> int:
        """Verified pushes."""
        return self.pushes.num_edges

    @property
    def num_paths(self) -> int:
        return self.pushes.num_paths

    def has_vertex(self, vertex: Vertex) -> bool:
        """Whether the room is solved and known, or a verified push can be walked to from here."""
        return bool(self.positions(vertex))

    def has_edge(self, step: AbstractStep) -> bool:
        return bool(self.reached(step))

    def reached(self, step: AbstractStep) -> tuple[Vertex, ...]:
        """The chains that the move goes down, each with the new distance; after a verified push, where it leads."""
        if not isinstance(step.source, bytes) or not isinstance(step.target, bytes):
            return ()
        if parts(step.source).boxes != parts(step.target).boxes:
            return self.positions(step.target) if self.pushes.has_edge(_push(step)) else ()
        before = dict(self.positions(step.source))
        return tuple((chain, steps) for chain, steps in self.positions(step.target) if steps < before.get(chain, 0))

    def positions(self, vertex: Vertex) -> tuple[Place, ...]:
        """A place on the chain of every verified push that can be walked to."""
        if not isinstance(vertex, bytes):
            return ()
        boxes, here = parts(vertex)
        if boxes == SUCCESS:
            return (((SUCCESS, 0), 0),) if self.pushes.has_vertex(SUCCESS) else ()
        return _places(boxes, self._cells.get(boxes, ()), here)

    def repeats(self, step: AbstractStep) -> bool:
        """Never: in Sokoban a move that changes nothing ran into something."""
        return False

    def rank(self, vertex: Vertex) -> tuple[int, ...]:
        """Minus the pushes to success; equal along a walk, whose chains have an order of their own."""
        assert isinstance(vertex, bytes)
        return self.pushes.rank(parts(vertex).boxes)

    def union(self, path: Sequence[AbstractStep]) -> tuple[PushGraph, Growth]:
        """The graph with the pushes of a verified success added; boxes pushed forth and back are erased.

        A push of an invalid turn was cut out of the path before: the pushes around it stay.

        Raises:
            DataError: the path does not end with every box on a target.
        """
        pushes, growth = self.pushes.union(purify(box_moves(path), connected=False))
        paths = shortest_paths(self.paths, [tuple(step.action for step in path)])
        return replace(self, pushes=pushes, paths=paths), growth

    def merge(self, other: PushGraph) -> PushGraph:
        return replace(self, pushes=self.pushes.merge(other.pushes), paths=shortest_paths(self.paths, other.paths))

    def edges(self) -> Iterator[tuple[Edge, int]]:
        """Verified pushes; sources and targets are arrangements of boxes."""
        return self.pushes.edges()

    def columns(self) -> tuple[str, ...]:
        longest = max(self.pushes.distance.values(), default=0)
        return (*(f"{n} push{'' if n == 1 else 'es'} to go" for n in range(longest, 0, -1)), SUCCESS)

    def column(self, vertex: Vertex) -> int:
        return self.pushes.column(vertex)


def box_moves(steps: Sequence[AbstractStep]) -> list[AbstractStep]:
    """The steps between rooms that push a box, as steps between arrangements of boxes."""
    return [
        _push(step)
        for step in steps
        if isinstance(step.source, bytes)
        and isinstance(step.target, bytes)
        and parts(step.source).boxes != parts(step.target).boxes
    ]


def _push(step: AbstractStep) -> AbstractStep:
    assert isinstance(step.source, bytes) and isinstance(step.target, bytes)
    boxes, player = parts(step.source)
    return AbstractStep(boxes, f"{player}:{step.action}", parts(step.target).boxes, step.valid)
