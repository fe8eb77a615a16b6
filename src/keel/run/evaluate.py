"""Evaluation on fixed tasks, by the same episodes that training samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from keel.metrics import wilson
from keel.report.words import number_of
from keel.rollout.collect import EnvPool, play_tasks
from keel.rollout.episode import Player
from keel.types import End, Task, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Success on a list of tasks, one episode each. Means are over trajectories, never over turns."""

    split: str
    successes: int
    count: int
    """Episodes; a failure of the environment counts here as not solved, and in `errors`."""
    success: float
    low: float
    """Lower end of the 95 % Wilson interval (evaluation noise only)."""
    high: float
    mean_return: float
    """Of reward part "env"."""
    turns: float
    valid_format: float
    """Share of turns with a valid response and action."""
    families: dict[str, tuple[int, int]]
    """Successes and episodes by sub-family."""
    ends: dict[str, int]
    """Episodes by the reason they ended."""
    errors: int
    causes: dict[str, int]
    """Failed episodes by the last line of their cause, the most frequent first."""
    sampled_tokens: int

    @property
    def num_turns(self) -> int:
        return round(self.turns * self.count)

    def record(self) -> dict[str, object]:
        """For `events.jsonl`."""
        kept = asdict(self)
        kept["return"] = kept.pop("mean_return")
        return kept

    @classmethod
    def of_record(cls, event: Mapping[str, Any]) -> Evaluation:
        """What `record` wrote, read from `events.jsonl`."""
        kept = {field.name: event["return" if field.name == "mean_return" else field.name] for field in fields(cls)}
        kept["families"] = {name: (won, played) for name, (won, played) in kept["families"].items()}
        return cls(**kept)

    def words(self) -> str:
        return f"{self.success:.3f} [{self.low:.3f}, {self.high:.3f}] ({self.successes}/{self.count})"

    def failures(self) -> str:
        """What went wrong in failed episodes; empty when none failed."""
        causes = "; ".join(f"{number_of(count, 'time')} {cause}" for cause, count in self.causes.items())
        return (
            f"{self.errors} of {number_of(self.count, 'episode')} failed, counted as not solved: {causes}"
            if self.errors
            else ""
        )


def evaluate(player: Player, pool: EnvPool, tasks: Sequence[Task], split: str, seed: int) -> Evaluation:
    """Play each task once.

    Args:
        player: with the sampling of the evaluation.
        tasks: of the split; fixed, so that two evaluations compare.
        seed: of the sampling.
    """
    return summarise(play_tasks(player, pool, tasks, seed), split)


def summarise(trajectories: Sequence[Trajectory], split: str) -> Evaluation:
    """Count successes, families and ends."""
    count = len(trajectories)
    successes = sum(t.success for t in trajectories)
    turns = [turn for t in trajectories for turn in t.turns]
    families: dict[str, tuple[int, int]] = {}
    for t in trajectories:
        if t.family:
            won, played = families.get(t.family, (0, 0))
            families[t.family] = (won + t.success, played + 1)
    causes = Counter(t.error.strip().splitlines()[-1] for t in trajectories if t.end is End.ERROR)
    low, high = wilson(successes, count)
    return Evaluation(
        split=split,
        successes=successes,
        count=count,
        success=successes / max(count, 1),
        low=low,
        high=high,
        mean_return=sum(t.parts().get("env", 0.0) for t in trajectories) / max(count, 1),
        turns=len(turns) / max(count, 1),
        valid_format=sum(turn.action.valid for turn in turns) / max(len(turns), 1),
        families=dict(sorted(families.items())),
        ends=dict(Counter(str(t.end) for t in trajectories)),
        errors=causes.total(),
        causes=dict(causes.most_common()),
        sampled_tokens=sum(t.num_tokens for t in trajectories),
    )
