"""The reference graphs that a run has learned, from one of its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from keel.credit.store import GraphStore
from keel.errors import DataError
from keel.objective.method import resolve
from keel.run.crediting import state_from_text
from keel.run.folder import require_run
from keel.run.job import load_settings
from keel.train.checkpoint import checkpoints, read_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGraphs:
    """Graphs and where they are from."""

    step: int
    """Training step of the checkpoint."""
    method: str
    """Method expression of the run."""
    store: GraphStore | None
    """None when the method has no reference graphs, or has not trained a step yet."""


def last_checkpoint(run: Path) -> Path:
    """The newest checkpoint of a run.

    Raises:
        DataError: no run folder, or one without a checkpoint.
    """
    found = checkpoints(require_run(run) / "checkpoints")
    if not found:
        raise DataError(f"{run} has no checkpoint yet; it stopped before cloning ended.")
    return found[-1]


def run_graphs(run: Path, checkpoint: Path | None = None) -> RunGraphs:
    """Read the graphs that a run had learned at a checkpoint; neither weights nor environment are loaded.

    Args:
        run: the run folder.
        checkpoint: a checkpoint with the loop's counters; None for the last one of the run.
    """
    progress = read_progress(checkpoint or last_checkpoint(run))
    expression = load_settings(run).method
    _, state = state_from_text(resolve(expression), progress.credit_state)
    memories = () if state is None else state.shapers
    store = next((memory for memory in memories if isinstance(memory, GraphStore)), None)
    return RunGraphs(step=progress.step, method=expression, store=store)
