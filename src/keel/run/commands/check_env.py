"""`keel check-env ENV`: find what is wrong with an environment; or replay recordings of an original engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from keel.envs.alfworld import replay as alfworld
from keel.envs.check import Effort, check_environment, fingerprint
from keel.envs.webshop import replay as webshop
from keel.errors import SettingError
from keel.prompt.parse import ThinkAction
from keel.report.words import number_of
from keel.run.commands.arguments import CommandLine, environment_of, refuse_unused, settings_of, take_options

HELP = """keel check-env ENV [--tasks N] [--slow_ms MS] [--quick] [--env.setting VALUE]
keel check-env alfworld --traces FILE [--games FOLDER]
keel check-env webshop --traces FILE [--catalogue FOLDER]
keel check-env webshop --queries FILE [--catalogue FOLDER]

Play an environment at random, by its demonstrator and with malformed actions, and explain each fault: what, got, expected,
remedy. Exit status 0 when clean, 1 with faults. ENV is a name, BRIDGE:ID, or a file with `load` (or FILE:CLASS).

    keel check-env sokoban
    keel check-env my_env.py:MyEnv --env.size 5
    keel check-env gym:FrozenLake-v1 --tasks 10

--tasks N      tasks of each split that are played through (3)
--slow_ms MS   a median step above this is a fault (100)
--quick        without the comparison with a fresh process, which finds a dependence on PYTHONHASHSEED

With --traces or --queries, recorded episodes (or searches) of the original engine are played again, and every difference is
listed. FILE is .jsonl or .jsonl.xz; games or catalogue are looked for beside it, then in KEEL_DATA."""

_OPTIONS = ("--tasks", "--slow_ms", "--traces", "--queries", "--catalogue", "--games")
_CHILD_SEED = "1"
_CHILD = "import sys; from keel.run.commands.check_env import print_fingerprint as main; main(sys.argv[1:])"


def main(arguments: list[str]) -> int:
    """Check or replay; the exit status is 0 only when nothing was found."""
    if not arguments or any(a in ("-h", "--help") for a in arguments):
        print(HELP)
        return 0
    quick = "--quick" in arguments
    line = take_options([a for a in arguments if a != "--quick"], _OPTIONS)
    if "--traces" in line.options or "--queries" in line.options:
        return _replay(line)
    for name in ("--catalogue", "--games"):
        if name in line.options:
            raise SettingError(
                f"{name} belongs to --traces or --queries. Example: keel check-env webshop --traces FILE {name} DIR"
            )
    environment, settings = environment_of(line.rest, "check-env")
    effort = Effort(tasks=_number(line, "--tasks", 3), slow_ms=_number(line, "--slow_ms", 100))
    run = settings_of(environment, settings, None, "check-env")
    refuse_unused(settings, ("env.",), "keel check-env")
    loaded = environment.load(run.env)
    grammar = ThinkAction()
    report = check_environment(loaded, effort, lambda response, admissible: grammar.parse(response, admissible, False))
    faults = [str(fault) for fault in report.faults]
    checked = list(report.checked)
    if not quick and not faults:
        mine, theirs = fingerprint(loaded, effort.seed), _fingerprint_of_a_fresh_process(line.rest)
        checked.append("tasks and texts compared with those of a fresh process")
        if mine != theirs:
            faults.append(_PROCESS_FAULT)
    for text in checked:
        print(f"checked   {text}")
    for text in report.remarks:
        print(f"remark    {text}")
    for number, text in enumerate(faults, 1):
        print(f"\nfault {number}, {text}")
    print(
        f"\n{environment.name}: {len(faults) or 'no'} fault{'s' * (len(faults) != 1)}, {number_of(len(report.remarks), 'remark')}"
    )
    if not faults:
        print(f"next      keel play {environment.name}    keel train {environment.name}")
    return 1 if faults else 0


_PROCESS_FAULT = f"""determinism: tasks or texts differ in another process
  where     the first tasks of each split, {_CHILD_SEED} as PYTHONHASHSEED
  got       another digest of ids, texts, admissible actions and rewards
  expected  the same in every process: a run that is resumed, and every worker of a cluster, must meet the same tasks
  remedy    sort what comes from a set, seed with random.Random(f"{{split}}:{{seed}}") and never with hash(text), and use no clock"""


def print_fingerprint(arguments: list[str]) -> None:
    """What the fresh process does."""
    environment, settings = environment_of(arguments, "check-env")
    run = settings_of(environment, settings, None, "check-env")
    print(fingerprint(environment.load(run.env), Effort().seed))


def _fingerprint_of_a_fresh_process(arguments: Sequence[str]) -> str:
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, *arguments],
        env={**os.environ, "PYTHONHASHSEED": _CHILD_SEED},
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or ["no message"]
        return f"failed: {last[0]}"
    return child.stdout.strip().splitlines()[-1]


def _replay(line: CommandLine) -> int:
    """Recorded episodes or searches against the native engine."""
    name, *rest = line.rest or [""]
    traces, queries = line.options.get("--traces"), line.options.get("--queries")
    catalogue, games = line.options.get("--catalogue"), line.options.get("--games")
    if rest:
        raise SettingError(f"unexpected arguments {' '.join(rest)!r} with --traces or --queries.")
    if name == "alfworld" and traces and not queries and not catalogue:
        found = alfworld.replay_all(Path(traces), Path(games) if games else None)
        print(f"{number_of(found.num_states, 'recorded state')} of {number_of(found.num_games, 'game')} played again")
        differences = [
            f"game {d.game}, {d.episode} episode, step {d.step} ({d.command}): {d.what} is {d.native!r}, recorded was {d.recorded!r}"
            for d in found.differences
        ]
    elif name == "webshop" and bool(traces) != bool(queries) and not games:
        folder = Path(catalogue) if catalogue else None
        listed = webshop.replay(Path(traces), folder) if traces else webshop.replay_queries(Path(queries or ""), folder)
        differences = [str(d) for d in listed]
    else:
        raise SettingError(
            f"recordings can be replayed for alfworld (--traces FILE [--games DIR]) and webshop (--traces FILE or --queries FILE, "
            f"[--catalogue DIR]); got {name or 'no environment'} with {', '.join(line.options)}."
        )
    for text in differences:
        print(text)
    print(f"{len(differences) or 'no'} difference{'s' * (len(differences) != 1)}")
    return 1 if differences else 0


def _number(line: CommandLine, name: str, default: int) -> int:
    given = line.options.get(name, str(default))
    if not given.isdigit():
        raise SettingError(f"{name} is {given!r}; expected a whole number.")
    return int(given)
