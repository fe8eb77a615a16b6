"""From a verified success to a pure path: no invalid steps, no self-loops, no loops."""

from __future__ import annotations

from collections.abc import Sequence

from keel.credit.progress import AbstractStep, Vertex
from keel.errors import DataError


def purify(steps: Sequence[AbstractStep], *, connected: bool = True) -> list[AbstractStep]:
    """The reference edges inside a verified successful trajectory.

    Self-loops are dropped, then chronological loop erasure (returning to a vertex deletes everything since it was left), then
    edges of invalid turns (a malformed response whose action was carried out all the same).

    Args:
        steps: the trajectory's abstract steps in time order.
        connected: whether each starts where the one before ended; not so when invalid steps were cut out before.

    Returns:
        Valid steps with distinct sources, in time order; each target is the next source except where an invalid step was cut out.

    Raises:
        DataError: a step of a connected trajectory does not start where the one before ended (the annotations contradict each
            other).

    Source: ProAS, "Construction and Formalization" (graph purity); loop erasure is our reading.
    """
    path: list[AbstractStep] = []
    if not steps:
        return path
    here = steps[0].source
    depth: dict[Vertex, int] = {here: 0}
    """Steps of the path before each vertex on it."""
    for number, step in enumerate(steps):
        if step.source != here:
            if connected:
                raise DataError(
                    f"contradictory annotations: step {number} ({step.action!r}) starts in {step.source}, but the step before ended "
                    f"in {here}; expected one connected trajectory. Check the adapter and the recorded states"
                )
            _arrive(step.source, None, path, depth)
        _arrive(step.target, step, path, depth)
        here = step.target
    return [step for step in path if step.valid]


def _arrive(vertex: Vertex, step: AbstractStep | None, path: list[AbstractStep], depth: dict[Vertex, int]) -> None:
    """Extend the path to a vertex by a step, or by one that was not seen; a loop that closes there is erased."""
    if vertex not in depth:
        path.extend([] if step is None else [step])
        depth[vertex] = len(path)
        return
    kept = depth[vertex]
    for gone in [v for v, before in depth.items() if before > kept]:
        del depth[gone]
    del path[kept:]
