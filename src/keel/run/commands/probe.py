"""`keel probe RUN`: the two causal experiments of ProAS, and the audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from keel.errors import DataError, SettingError
from keel.objective.method import resolve
from keel.run.auditing import audit_run
from keel.run.commands.arguments import take_options
from keel.run.environments import find_environment
from keel.run.folder import RunFolder, require_run
from keel.run.graphs import last_checkpoint, run_graphs
from keel.run.job import load_settings
from keel.run.probe_page import as_json, as_text, write_probe_page
from keel.run.probing import ProbeSettings, probe, shaper_of
from keel.run.session import build_agent
from keel.run.threads import choose_threads
from keel.train.checkpoint import is_checkpoint

HELP = """keel probe RUN [--trials N] [--tasks N] [--siblings N] [--noise-points N] [--noise-turns N] [--where latest|earliest]
               [--failures N] [--points N] [--seed S] [--checkpoint FOLDER] [--out FOLDER]

What do unreasonable turns cost, and which actions lose a task? The run's policy plays training tasks, then plays on from exact
snapshots of those episodes, many times from each point and all at once:

  context noise   with the true history, and with unreasonable turns added to what the policy is shown (the state is the same)
  suppression     with one action of a failed episode forbidden, at several Future-Drifts, and with nothing forbidden
  audit           share of unreasonable turns in successes and of non-advancing ones in failures, by training step

Reference graphs come from the checkpoint that is probed when the run's method has them (`+proas`), from demonstrations and the
probed successes in any case; a run of any method can be probed, and a --checkpoint that is a plain model has no graphs of its
own. Writes probe.html and probe.json.

    keel probe runs/alfworld-grpo-0001
    keel probe runs/alfworld-grpo-0001 --trials 200 --checkpoint runs/alfworld-grpo-0001/checkpoints/step_000020

Defaults:
"""

_NUMBERS = {
    "--trials": "trials",
    "--tasks": "tasks",
    "--siblings": "siblings",
    "--noise-points": "noise_points",
    "--noise-turns": "noise_turns",
    "--failures": "failures",
    "--points": "points",
    "--seed": "seed",
}


def main(arguments: list[str]) -> int:
    """Probe, print the tables and write the page."""
    if not arguments or any(a in ("-h", "--help") for a in arguments):
        defaults = ProbeSettings()
        print(HELP + "".join(f"    {option} {getattr(defaults, name)}\n" for option, name in _NUMBERS.items()))
        return 0
    line = take_options(arguments, (*_NUMBERS, "--where", "--checkpoint", "--out"))
    if len(line.rest) != 1 or line.rest[0].startswith("-"):
        known = ", ".join((*_NUMBERS, "--where", "--checkpoint", "--out"))
        raise SettingError(f"`keel probe` takes one run and {known}; got {' '.join(line.rest) or 'nothing'!r}.")
    run = require_run(Path(line.rest[0]))
    chosen = _settings(line.options)
    out = Path(line.options.get("--out", run))
    if not out.is_dir():
        raise SettingError(f"--out is {out}, which is no folder; create it first.")
    settings = load_settings(run)
    choose_threads(settings.run.threads)
    environment = find_environment(settings.env_name).load(settings.env)
    checkpoint = Path(line.options["--checkpoint"]) if "--checkpoint" in line.options else last_checkpoint(run)
    if not checkpoint.is_dir():
        raise DataError(f"checkpoint {checkpoint} does not exist; the last one of the run is {last_checkpoint(run)}.")
    agent = build_agent(settings, environment, str(checkpoint))
    shaper = shaper_of(resolve(settings.method), environment)
    store = run_graphs(run, checkpoint).store if is_checkpoint(checkpoint) else None
    probed = probe(agent, environment, shaper, store, chosen)
    audited = audit_run(run, environment, shaper, store, chosen.seed)
    print(as_text(probed, audited))
    folder = RunFolder(out)
    folder.write_json("probe.json", as_json(probed, audited))
    page = write_probe_page(out / "probe.html", f"{run.name}, {checkpoint.name}", probed, audited)
    print(f"page    {page}\nnumbers {out / 'probe.json'}\nnext    keel arg show {run}")
    return 0


def _settings(options: Mapping[str, str]) -> ProbeSettings:
    numbers = {_NUMBERS[name]: _number(name, text) for name, text in options.items() if name in _NUMBERS}
    where = options.get("--where", "latest")
    if where not in ("latest", "earliest"):
        raise SettingError(f"--where is {where!r}; expected latest or earliest.")
    return dataclasses.replace(ProbeSettings(where=where), **numbers)


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise SettingError(f"{name} is {text!r}; expected a whole number.")
    return int(text)
