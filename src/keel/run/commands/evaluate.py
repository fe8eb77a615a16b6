"""`keel eval RUN_OR_MODEL [ENV]`: success on fixed held-out tasks."""

from __future__ import annotations

import time
from pathlib import Path

from keel.errors import DataError, SettingError
from keel.rollout.collect import EnvPool
from keel.rollout.episode import derive_seed
from keel.run.commands.arguments import environment_of, parse_settings, refuse_unused, settings_of, take_options
from keel.run.environments import find_environment
from keel.run.evaluate import evaluate
from keel.run.job import load_settings
from keel.run.session import build_agent
from keel.run.threads import choose_threads
from keel.train.checkpoint import checkpoints

HELP = """keel eval RUN [--split SPLIT] [--checkpoint FOLDER] [--eval.tasks N] [--eval.temperature T] [--any.setting VALUE]
keel eval MODEL ENV [...]

Evaluate the last checkpoint of a run, or any Hugging Face checkpoint on an environment, on the fixed list of held-out tasks.

    keel eval runs/sokoban-sampo-0001
    keel eval runs/sokoban-sampo-0001 --eval.temperature 0
    keel eval Qwen/Qwen3-0.6B sokoban --eval.tasks 64"""

_USED = ("env.", "prompt.", "model.dtype", "model.device", "eval.tasks", "eval.temperature", "eval.top_p", "eval.top_k",
         "run.seed", "run.threads")  # fmt: skip


def main(arguments: list[str]) -> int:
    """Evaluate and print one line a split."""
    if not arguments or any(a in ("-h", "--help") for a in arguments):
        print(HELP)
        return 0
    line = take_options(arguments, ("--split", "--checkpoint"))
    if not line.rest or line.rest[0].startswith("-"):
        raise SettingError(
            "`keel eval` needs a run folder or a model first. Example: keel eval runs/sokoban-sampo-0001"
        )
    subject, rest = line.rest[0], line.rest[1:]
    if (Path(subject) / "config.toml").exists():
        stored = load_settings(Path(subject))
        settings = parse_settings(stored, find_environment(stored.env_name), rest, f"keel eval {subject}")
        checkpoint = line.options.get("--checkpoint") or _last_checkpoint(Path(subject))
    else:
        if not rest or rest[0].startswith("-"):
            raise SettingError(
                f"{subject} is no run folder (it has no config.toml); to evaluate a model, name the environment too: "
                f"keel eval {subject} sokoban"
            )
        environment_type, rest = environment_of(rest, "eval")
        settings = settings_of(environment_type, ["--model.path", subject, *rest], None, "eval")
        checkpoint = line.options.get("--checkpoint") or subject
    refuse_unused(rest, _USED, "keel eval", "; another model is evaluated with `keel eval MODEL ENV`")
    choose_threads(settings.run.threads)
    environment = find_environment(settings.env_name).load(settings.env)
    split = line.options.get("--split") or environment.splits[1]
    if split not in environment.splits:
        raise SettingError(f"split {split!r} does not exist here; expected one of {', '.join(environment.splits)}.")
    agent = build_agent(settings, environment, checkpoint)
    tasks = environment.fixed_tasks(split, settings.eval.tasks)
    start = time.perf_counter()
    result = evaluate(agent.eval_player, EnvPool(environment), tasks, split, derive_seed(settings.run.seed, "eval"))
    seconds = time.perf_counter() - start
    print(f"{checkpoint} on {settings.env_name}, {split}, temperature {settings.eval.temperature:g}")
    print(f"success       {result.words()}   95 % interval")
    print(f"return        {result.mean_return:.3f} an episode")
    print(f"turns         {result.turns:.1f} an episode, {result.valid_format:.3f} of them valid")
    print(f"ends          {', '.join(f'{count} {end}' for end, count in sorted(result.ends.items()))}")
    if result.errors:
        print(f"failures      {result.failures()}")
    for family, (won, played) in result.families.items():
        print(f"  {family:<12}{won / played:.3f} ({won}/{played})")
    print(f"took          {seconds:.1f} s, {result.num_turns / seconds:.0f} turns/s")
    return 0


def _last_checkpoint(run: Path) -> str:
    found = checkpoints(run / "checkpoints")
    if not found:
        raise DataError(f"{run} has no checkpoint yet; it stopped before cloning ended.")
    return str(found[-1])
