"""Sample trajectories of a training step, for reading: what was seen, said and done, and which credit it got, and why.

Shape suffixes: `_N` sampled tokens, `_K` turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from keel.credit.evolve import read
from keel.credit.graph import Graph
from keel.credit.proas import ProAS
from keel.credit.progress import Progress, Vertex
from keel.credit.pushes import PushGraph
from keel.credit.store import GraphStore
from keel.credit.subgoals import SubGoalGraph
from keel.objective.method import Credit, CreditState, Method, Scores
from keel.objective.mismatch import Bypass, MismatchInput
from keel.objective.scores import Needs
from keel.objective.segments import Segments
from keel.objective.surrogate import LossInput
from keel.run.folder import RunFolder
from keel.train.trainer import Trainer
from keel.types import FloatArray, Group, Trajectory, Turn, TurnIndex

NUM_GROUPS = 4
"""Groups kept of a step: the report shows the credit of three, and links to a page of its own for more."""


@dataclass(frozen=True, slots=True)
class GraphLabel:
    """What the reference graph of its task says about a turn, after the step's own successes joined it."""

    subgoal: str
    """What is to be reached next."""
    reasonable: bool
    advances: bool
    drift: int


@dataclass(frozen=True, slots=True, eq=False)
class Movement:
    """How far the update moved the policy on some turns."""

    ratio_K: FloatArray
    """Mean importance ratio of a turn's tokens, current over old policy, after the update."""
    clipped_K: FloatArray
    """Share of a turn's tokens whose ratio has left the surrogate's range."""


def save_samples(
    folder: RunFolder,
    step: int,
    groups: Sequence[Group],
    method: Method,
    credit: Credit,
    scores: Scores,
    trainer: Trainer,
) -> None:
    """Write the first groups of a step with the credit of every turn.

    Args:
        folder: of the run.
        step: training step, whose update was made.
        groups: all that were trained on, in the order of `credit`.
        method: that the step used.
        credit: of those groups.
        scores: of those groups, before the update.
        trainer: holds the policy after the update; the kept turns are scored once more.
    """
    chosen = groups[:NUM_GROUPS]
    index = TurnIndex.of(chosen)
    if not index.num_turns:
        return
    labels = graph_labels(method, index, credit.state)
    moved = movement(trainer, method, chosen, credit, scores)
    masked = masked_turns(method, chosen, credit, scores)
    rows: list[Mapping[str, object]] = []
    k = 0
    for g, group in enumerate(chosen):
        for trajectory in group.trajectories:
            if not trajectory.turns:
                continue
            turns: list[dict[str, object]] = []
            for turn in trajectory.turns:
                label = labels[k]
                turns.append(
                    _turn_row(turn)
                    | {"advantage": float(credit.advantage_K[k]), "raw_advantage": float(credit.raw_K[k])}
                    | {"ratio": float(moved.ratio_K[k]), "clipped": float(moved.clipped_K[k]), "masked": masked[k]}
                    | ({} if label is None else _label_row(label))
                )
                k += 1
            rows.append(_trajectory_row(trajectory, g, turns))
    folder.write_trajectories(step, rows)


def graph_labels(method: Method, index: TurnIndex, state: CreditState) -> list[GraphLabel | None]:
    """The labels of every turn under the method's reference graphs.

    Args:
        method: whose shapers.
        index: some groups.
        state: of the shapers, after the step.

    Returns:
        One entry a turn; None where the method has no reference graph, or this task has none.
    """
    for shaper, memory in zip(method.shapers, state.shapers, strict=True):
        if isinstance(shaper, ProAS) and isinstance(memory, GraphStore):
            return _labels_of(shaper, memory, index)
    return [None] * index.num_turns


def _labels_of(shaper: ProAS, store: GraphStore, index: TurnIndex) -> list[GraphLabel | None]:
    found = shaper.labels(index, store)
    reading = read(index, shaper.adapter)
    first_K = np.searchsorted(index.trajectory_K, np.arange(index.num_trajectories))
    labels: list[GraphLabel | None] = [None] * index.num_turns
    for j, trace in reading.steps.items():
        if not found.known_G[index.group_J[j]]:
            continue
        graph = store.graphs[reading.episodes[j].task_id]
        for k, step in enumerate(trace, start=int(first_K[j])):
            labels[k] = GraphLabel(
                subgoal=next_goal(graph, step.source),
                reasonable=bool(found.reasonable_K[k]),
                advances=bool(found.advancing_K[k]),
                drift=int(found.drift_K[k]),
            )
    return labels


def next_goal(graph: Graph, vertex: Vertex) -> str:
    """What is to be reached from a vertex, in a few words."""
    if isinstance(graph, SubGoalGraph) and isinstance(vertex, Progress):
        goal = graph.subgoals[min(vertex.subgoal, len(graph.subgoals) - 1)]
        done = f" ({len(vertex.met)} of {len(goal.requirements)} met)" if vertex.met else ""
        return goal.name + done
    if not graph.has_vertex(vertex):
        return "off every verified path"
    left = -graph.rank(vertex)[0]
    unit = "push" if isinstance(graph, PushGraph) else "step"
    return f"{left} {unit if left == 1 else {'push': 'pushes', 'step': 'steps'}[unit]} to go"


@torch.no_grad()
def movement(trainer: Trainer, method: Method, groups: Sequence[Group], credit: Credit, scores: Scores) -> Movement:
    """Ratios of the policy as it is now over the old policy, on the first groups of a step.

    Args:
        trainer: holds the current policy.
        method: whose ratio and surrogate.
        groups: the first of those that `credit` and `scores` are of.
        credit: for the advantages and weights.
        scores: for the old log-probabilities.
    """
    index = TurnIndex.of(groups)
    num = index.num_tokens
    current_N = _column(trainer.score(groups, Needs(old=True)).old_N, num)
    old_N = _behaviour(groups) if isinstance(method.mismatch, Bypass) else _column(scores.old_N, num)
    turns = Segments.of(torch.from_numpy(index.turn_N), torch.float64)
    trajectories = Segments.of(torch.from_numpy(index.trajectory_N), torch.float64)
    units = {"token": None, "turn": turns, "trajectory": trajectories}[method.ratio.unit]
    ratio_N = method.ratio(current_N, old_N, units)
    tokens = LossInput(
        ratio_N=ratio_N,
        advantage_N=torch.from_numpy(credit.advantage_N[:num]),
        weight_N=torch.from_numpy(credit.weight_N[:num]),
        current_N=current_N,
        old_N=old_N,
        reference_N=None,
        entropy_N=None,
        turns=turns,
        trajectories=trajectories,
    )
    outside_N = method.surrogate(tokens).outside_N
    return Movement(turns.mean(ratio_N).numpy(), turns.mean(outside_N.double()).numpy())


def masked_turns(method: Method, groups: Sequence[Group], credit: Credit, scores: Scores) -> list[bool | None]:
    """Turns that the loss did not see at all: every token has weight 0, or was rejected for what the engine sampled it with.

    Args:
        method: whose mismatch correction and masks.
        groups: the first of those that `credit` and `scores` are of.
        credit: for the weights.
        scores: for the old log-probabilities.

    Returns:
        One entry a turn; None where the method has masks and the turn was not taken out before them: those decide inside
        the update, from the policy of that moment.
    """
    index = TurnIndex.of(groups)
    weight_N = torch.from_numpy(credit.weight_N[: index.num_tokens])
    turns = Segments.of(torch.from_numpy(index.turn_N), torch.float64)
    if method.mismatch is not None:
        trajectories = Segments.of(torch.from_numpy(index.trajectory_N), torch.float64)
        log_ratio_N = _column(scores.old_N, index.num_tokens) - _behaviour(groups)
        weight_N = weight_N * method.mismatch(MismatchInput(log_ratio_N, turns, trajectories))
    seen_K = (turns.mean((weight_N != 0).double()) > 0).tolist()
    return [None if seen and method.masks else not seen for seen in seen_K]


def _behaviour(groups: Sequence[Group]) -> torch.Tensor:
    """[N] log-probabilities that the engine sampled with."""
    turns = [turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns]
    return torch.from_numpy(np.concatenate([turn.logprobs for turn in turns]).astype(np.float64))


def _column(value_N: FloatArray | None, num: int) -> torch.Tensor:
    assert value_N is not None
    return torch.from_numpy(value_N[:num].astype(np.float64))


def _turn_row(turn: Turn) -> dict[str, object]:
    return {
        "observation": turn.observation,
        "response": turn.response,
        "action": turn.action.text,
        "valid": turn.action.valid,
        "why": turn.action.why,
        "finish": str(turn.finish),
        "rewards": dict(turn.rewards),
        "num_tokens": len(turn.action_ids),
        "logprob_mean": float(turn.logprobs.mean()),
        "version": turn.version,
    }


def _label_row(label: GraphLabel) -> dict[str, object]:
    return {"subgoal": label.subgoal, "rea": label.reasonable, "pa": label.advances, "drift": label.drift}


def _trajectory_row(trajectory: Trajectory, group: int, turns: list[dict[str, object]]) -> dict[str, object]:
    return {
        "task_id": trajectory.task_id,
        "family": trajectory.family,
        "success": trajectory.success,
        "end": str(trajectory.end),
        "seed": trajectory.seed,
        "parts": trajectory.parts(),
        "group": group,
        "turns": turns,
    }
