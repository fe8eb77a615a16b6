"""Does progress-aware shaping help? GRPO, GiGPO and SAMPO, each with and without ProAS, on laptop-size Sokoban and ALFWorld.

    python benchmarks/proas.py --out runs/proas                       everything: 2 environments, 11 arms, 5 seeds
    python benchmarks/proas.py --envs sokoban --seeds 8 --steps 80    a part of it

One behaviour clone per environment and seed; every arm starts from it and gets the same number of training steps, groups and siblings.
Ablations are of one base: no MUI, no APR, no evolution, an empty initial graph, a noisy one. Two runs at a time, one thread each. A run that is
complete is not run again, so the command can be stopped and repeated. Writes study.json and study.md into the folder.

Success is on fixed held-out tasks, after training. Intervals are 95 % t-intervals over seeds; differences are paired by seed. Steps to target: the
first evaluation with a success of at least the base method's mean final one (or --target).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from keel.credit.proas import ProAS, with_proas
from keel.credit.seed import with_random_edges, without_edges
from keel.credit.store import GraphStore
from keel.envs.base import Environment
from keel.metrics import Metric
from keel.objective.method import Method, resolve
from keel.run import toml
from keel.run.job import load_settings
from keel.run.presets import LAPTOP_SAMPO
from keel.train.checkpoint import checkpoints
from keel.types import Task

BASES = {
    "grpo": "grpo(kl=0, entropy=0.003)",
    "gigpo": "gigpo(kl=0, entropy=0.003)",
    "sampo": LAPTOP_SAMPO,
}
CHANGES = ("full", "no_mui", "no_apr", "no_evolution", "empty_graph", "noisy_graph")
LEFT_OUT = 0.3
"""Share of a noisy initial graph's verified edges that are missing."""
RANDOM_EPISODES = 3
"""Random episodes whose forward transitions a noisy initial graph takes for verified."""
STEPS = {"sokoban": 100, "alfworld": 60}
"""The laptop recipes' own."""


class NoisyStart(ProAS):
    """ProAS whose new graphs lack true edges and hold false ones. Still a ProAS, since that is what the training loop prepares."""

    __slots__ = ()

    def prepare(
        self, environment: Environment, tasks: Sequence[Task], state: object
    ) -> tuple[GraphStore, dict[str, Metric]]:
        """The initial graphs, spoiled once, when a task is first met."""
        store, metrics = ProAS.prepare(self, environment, tasks, state)
        known = state.graphs if isinstance(state, GraphStore) else {}
        new = {task.id: task for task in tasks if task.id in store.graphs and task.id not in known}
        own = dataclasses.replace(store, graphs={task: store.graphs[task] for task in new})
        thinned = without_edges(own, LEFT_OUT, seed=0)
        noisy = with_random_edges(thinned, self.adapter, environment, new.values(), episodes=RANDOM_EPISODES, seed=0)
        return store.with_graphs(noisy.graphs), metrics


def shaped(base: str, change: str = "full") -> Method:
    """A base with ProAS, or with one of its ablations; `FILE:shaped(base='grpo', change='no_mui')` on the command line."""
    method = with_proas(resolve(BASES[base]))
    proas = method.shapers[-1]
    assert isinstance(proas, ProAS)
    fields = {field.name: getattr(proas, field.name) for field in dataclasses.fields(proas)}
    changed = {
        "full": proas,
        "no_mui": dataclasses.replace(proas, shaping=dataclasses.replace(proas.shaping, mui=False)),
        "no_apr": dataclasses.replace(proas, shaping=dataclasses.replace(proas.shaping, apr=False)),
        "no_evolution": dataclasses.replace(proas, evolve=False),
        "empty_graph": dataclasses.replace(proas, initial="none"),
        "noisy_graph": NoisyStart(**fields),
    }
    name = method.name if change == "full" else f"{method.name} {change.replace('_', ' ')}"
    return dataclasses.replace(method, name=name, shapers=(*method.shapers[:-1], changed[change]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One method on one environment."""

    env: str
    base: str
    change: str
    """"none" for the base alone."""

    @property
    def label(self) -> str:
        words = {"none": "", "full": " + ProAS", "no_mui": " + ProAS, no MUI", "no_apr": " + ProAS, no APR"}
        return self.base + words.get(self.change, f" + ProAS, {self.change.replace('_', ' ')}")

    @property
    def method(self) -> str:
        if self.change == "none":
            return BASES[self.base]
        return f"{Path(__file__).resolve()}:shaped(base={self.base!r}, change={self.change!r})"

    def folder(self, out: Path, seed: int) -> Path:
        return out / self.env / f"{self.base}-{self.change}" / f"seed{seed}"


def arms_of(options: argparse.Namespace) -> list[Arm]:
    """Every base without and with ProAS, then the ablations of one base."""
    listed: list[Arm] = []
    for env in options.envs:
        listed += [Arm(env=env, base=base, change=change) for base in options.bases for change in ("none", "full")]
        listed += [Arm(env=env, base=base, change=change) for base in options.ablations for change in CHANGES[1:]]
    return listed


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    arms = arms_of(options)
    seeds = range(options.seeds)
    with ThreadPoolExecutor(options.jobs) as pool:
        clones = [(env, seed) for seed in seeds for env in options.envs]
        list(pool.map(lambda job: clone(options, *job), clones))
        runs = [(arm, seed) for seed in seeds for arm in arms]
        list(pool.map(lambda job: train(options, *job), runs))
    study = summarise(options, arms)
    (options.out / "study.json").write_text(json.dumps(study, indent=2) + "\n")
    (options.out / "study.md").write_text(as_markdown(study))
    print(as_markdown(study))
    print(f"written {options.out / 'study.json'} and {options.out / 'study.md'}")


def clone(options: argparse.Namespace, env: str, seed: int) -> None:
    """The common start of all arms of an environment and seed."""
    folder = _clone_folder(options, env, seed)
    settings = ["--seed", str(seed), "--run.threads", "1", "--eval.tasks", str(options.eval_tasks), *options.clone]
    _keel(folder, ["clone", env, "--out", str(folder), *settings])


def train(options: argparse.Namespace, arm: Arm, seed: int) -> None:
    """One run from the common clone, with the laptop recipe."""
    folder = arm.folder(options.out, seed)
    if (folder / "results.json").exists():
        return
    start = _clone_folder(options, arm.env, seed)
    recipe: Any = load_settings(start)
    steps = options.steps or STEPS[arm.env]
    recipe = dataclasses.replace(
        recipe,
        method=arm.method,
        model=dataclasses.replace(recipe.model, path=str(checkpoints(start / "checkpoints")[-1])),
        clone=dataclasses.replace(recipe.clone, max_updates=0),
        rollout=dataclasses.replace(recipe.rollout, groups=options.groups, group_size=options.group_size),
        train=dataclasses.replace(recipe.train, steps=steps),
        eval=dataclasses.replace(
            recipe.eval,
            tasks=options.eval_tasks,
            every=options.eval_every,
            tasks_on_the_way=options.eval_tasks_on_the_way,
        ),
        run=dataclasses.replace(recipe.run, out=folder, checkpoint_every=max(steps, 1), keep_checkpoints=1),
    )
    config = folder.parent / f"seed{seed}.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(toml.dump(recipe))
    _keel(folder, ["train", arm.env, "--config", str(config)])


def _keel(folder: Path, arguments: Sequence[str]) -> None:
    """Run the command unless its result exists. What an interrupted run left is started again from nothing, since its start is cheap to redo."""
    if (folder / "results.json").exists():
        return
    if folder.exists():
        _put_aside(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    code = "import sys; from keel.run.cli import main; sys.argv[0] = 'keel'; main()"
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    if done.returncode:
        raise RuntimeError(
            f"`keel {' '.join(arguments)}` failed with status {done.returncode}:\n{log.read_text()[-2000:]}"
        )
    print(f"done {folder}", flush=True)


def _put_aside(folder: Path) -> None:
    """Keep what is there under another name."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.interrupted{number}")).exists():
        number += 1
    folder.rename(aside)


def _clone_folder(options: argparse.Namespace, env: str, seed: int) -> Path:
    return Path(options.out) / env / "clone" / f"seed{seed}"


def summarise(options: argparse.Namespace, arms: Sequence[Arm]) -> dict[str, Any]:
    """Every arm's numbers by seed, with intervals."""
    runs = {arm: [_read(arm.folder(options.out, seed)) for seed in range(options.seeds)] for arm in arms}
    rows: list[dict[str, Any]] = []
    for arm in arms:
        base = runs[Arm(env=arm.env, base=arm.base, change="none")]
        target = options.target or statistics.fmean(run["final"] for run in base)
        final = [run["final"] for run in runs[arm]]
        steps = [steps_to(run["curve"], target) for run in runs[arm]]
        base_steps = [steps_to(run["curve"], target) for run in base]
        gain = [mine - other["final"] for mine, other in zip(final, base, strict=True)]
        rows.append(
            {
                "env": arm.env,
                "arm": arm.label,
                "base": arm.base,
                "change": arm.change,
                "final": interval(final),
                "gain": None if arm.change == "none" else interval(gain),
                "target": target,
                "steps_to_target": steps,
                "reached": sum(step is not None for step in steps),
                "speed_up": None if arm.change == "none" else speed_up(base_steps, steps),
                "start": statistics.fmean(run["start"] for run in runs[arm]),
                "env_steps": statistics.fmean(run["env_steps"] for run in runs[arm]),
                "by_seed": runs[arm],
            }
        )
    budget = {name: getattr(options, name) for name in ("seeds", "groups", "group_size", "eval_tasks", "eval_every")}
    return {"budget": budget | {"steps": {env: options.steps or STEPS[env] for env in options.envs}}, "rows": rows}


def _read(folder: Path) -> dict[str, Any]:
    results = json.loads((folder / "results.json").read_text())
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    curve = {event["step"]: event["success"] for event in events if event["kind"] == "eval"}
    return {
        "start": results["before"]["success"],
        "final": results["after"]["success"],
        "env_steps": results["env_steps"],
        "seconds": results["seconds"],
        "curve": sorted(curve.items()),
    }


def steps_to(curve: Sequence[tuple[int, float]], target: float) -> int | None:
    """Training steps of the first evaluation that reaches a success; None when none does."""
    return next((step for step, success in curve if success >= target), None)


def speed_up(before: Sequence[int | None], after: Sequence[int | None]) -> float | None:
    """Ratio of the mean steps to the target, over seeds where both reach it; None when there is no such seed."""
    both = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b]
    return sum(a for a, _ in both) / sum(b for _, b in both) if both else None


T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip
"""Two-sided 95 % points of Student's t with 1, 2, ... degrees of freedom."""


def interval(value: Sequence[float]) -> dict[str, float | None]:
    """Mean with its 95 % t-interval over seeds; no interval for one seed."""
    mean, num = statistics.fmean(value), len(value)
    if num < 2:
        return {"mean": mean, "low": None, "high": None}
    half = T_95[min(num - 2, len(T_95) - 1)] * statistics.stdev(value) / math.sqrt(num)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def as_markdown(study: dict[str, Any]) -> str:
    """One table an environment."""
    lines: list[str] = []
    budget = study["budget"]
    for env, steps in budget["steps"].items():
        lines += [
            f"{env}: {budget['seeds']} seeds, {steps} training steps of {budget['groups']} groups of {budget['group_size']}, "
            f"{budget['eval_tasks']} held-out tasks",
            "",
            "| method | final success [95 %] | gain over the base, paired [95 %] | steps to target | speed-up | environment steps |",
            "|---|---|---|---|---|---|",
        ]
        for row in study["rows"]:
            if row["env"] == env:
                lines.append(_row(row, budget["seeds"]))
        lines.append("")
    return "\n".join(lines)


def _row(row: dict[str, Any], seeds: int) -> str:
    reached = [step for step in row["steps_to_target"] if step is not None]
    steps = f"{statistics.median(reached):g}" if reached else "–"
    speed = "" if row["speed_up"] is None else f"{row['speed_up']:.2f}x"
    gain = "" if row["gain"] is None else _said(row["gain"], "+.3f")
    target = f"{steps} ({row['reached']}/{seeds} reach {row['target']:.2f})"
    return f"| {row['arm']} | {_said(row['final'], '.3f')} | {gain} | {target} | {speed} | {row['env_steps']:,.0f} |"


def _said(value: dict[str, float | None], form: str) -> str:
    if value["low"] is None:
        return f"{value['mean']:{form}}"
    return f"{value['mean']:{form}} [{value['low']:{form}}, {value['high']:{form}}]"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/proas"))
    parser.add_argument("--envs", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--bases", nargs="+", choices=list(BASES), default=list(BASES))
    parser.add_argument("--ablations", nargs="*", choices=list(BASES), default=["grpo"], help="bases to ablate")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="training steps; 0: the laptop recipe's")
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--eval-tasks", type=int, default=256)
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--eval-tasks-on-the-way", type=int, default=128)
    parser.add_argument("--target", type=float, default=0.0, help="success to reach; 0: the base's mean final success")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument(
        "--clone", nargs="*", default=[], help="more settings of the clone, for smoke tests: name value ..."
    )
    options = parser.parse_args()
    options.clone = [word if i % 2 else f"--{word}" for i, word in enumerate(options.clone)]
    missing = set(options.ablations) - set(options.bases)
    if missing or options.seeds < 1:
        parser.error(f"ablated bases must be among --bases (missing: {sorted(missing)}), and --seeds at least 1")
    return options


if __name__ == "__main__":
    main()
