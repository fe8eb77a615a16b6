"""`keel train` from start to end: clone, evaluate, train, evaluate, report. Every stage leaves files that a resume can use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keel.envs.base import Environment
from keel.errors import DataError, SettingError
from keel.objective.method import Method, describe, resolve
from keel.report.html import write_report
from keel.report.words import number_of
from keel.rollout.collect import EnvPool
from keel.run import loop, toml
from keel.run.clock import COMMAND
from keel.run.cloning import clone
from keel.run.console import Console
from keel.run.crediting import bound, state_from_text
from keel.run.environments import find_environment
from keel.run.evaluate import Evaluation
from keel.run.folder import RunFolder, machine, make_run_path, new_run_path, read_events, require_run, run_name
from keel.run.interrupts import finish_first, terminate_as_interrupt
from keel.run.presets import default_settings
from keel.run.selftest import self_test
from keel.run.session import Agent, Session, build_agent, build_trainer
from keel.run.settings import Settings
from keel.run.threads import choose_threads, num_cores
from keel.train.checkpoint import (
    Progress,
    checkpoints,
    cloning_checkpoint,
    load_checkpoint,
    read_cloning,
    read_progress,
)

_NO_PROGRESS = Progress(
    step=0, num_updates=0, env_steps=0, sampled_tokens=0, seconds=0.0, empty_in_a_row=0, credit_state=""
)


def start(settings: Settings[Any]) -> Path:
    """A new run; returns its folder, which is made only when everything that the settings name has been found."""
    environment_type = find_environment(settings.env_name)
    environment = environment_type.load(settings.env)
    method = bound(resolve(settings.method), environment)
    _check_evaluations(settings, environment)
    name = run_name(environment_type.name, method.name)
    new_run_path(name, settings.run.out)  # refused now rather than after the policy has been loaded
    threads, why = choose_threads(settings.run.threads)
    agent = build_agent(settings, environment)
    path = make_run_path(name, settings.run.out)
    folder, console = RunFolder(path, COMMAND.seconds()), Console(settings.train.steps)
    folder.write("config.toml", toml.dump(settings))
    folder.write_json(
        "manifest.json",
        {
            **machine(),
            "threads": threads,
            "seed": settings.run.seed,
            "method": method.name,
            "describe": describe(method),
        },
    )
    folder.event("start", 0, env=settings.env_name, method=method.name)
    console.note(f"run {path}: {settings.env_name}, {settings.method}, seed {settings.run.seed}; {why}")
    console.note(environment.check_splits())
    return _from_its_start(settings, environment, method, agent, folder, console)


def _from_its_start(
    settings: Settings[Any], environment: Environment, method: Method, agent: Agent, folder: RunFolder, console: Console
) -> Path:
    """Clone, from where cloning was stopped if it was, then train."""
    pool = EnvPool(environment)
    with _left_in_order(folder, console):
        if settings.clone.max_updates:
            clone(settings, agent, environment, pool, folder, console)
        with finish_first():
            trainer = build_trainer(settings, agent, method)
            session = Session(settings, environment, method, agent, pool, trainer, folder, console)
            agent.engine.load(trainer.weights(), version=0)
            loop.save(session, _NO_PROGRESS)
        return _train(session, _NO_PROGRESS)


def resume(path: Path, changed: dict[str, Any]) -> Path:
    """Go on with a run from its last checkpoint; from where cloning was stopped, if it has none yet.

    Args:
        path: the run folder.
        changed: settings given again; only how long and how often (train.steps, eval, run) may change.
    """
    require_run(path)
    settings = load_settings(path)
    settings = _extended(settings, changed)
    found = checkpoints(path / "checkpoints")
    cloning = cloning_checkpoint(path / "checkpoints")
    if not found and not cloning.exists():
        raise DataError(
            f"{path} has no checkpoint to go on from; it ended before one was saved. Start again with `keel train`."
        )
    if found and _is_done(path, read_progress(found[-1]).step, settings.train.steps):
        return path
    environment = find_environment(settings.env_name).load(settings.env)
    method = bound(resolve(settings.method), environment)
    _check_evaluations(settings, environment)
    choose_threads(settings.run.threads or _threads_before(path))
    if not found:
        stopped, agent = read_cloning(cloning), build_agent(settings, environment)
        folder = RunFolder(path, seconds_before=stopped.run_seconds + COMMAND.seconds())
        folder.write("config.toml", toml.dump(settings))
        return _from_its_start(settings, environment, method, agent, folder, Console(settings.train.steps))
    agent = build_agent(settings, environment, checkpoint=str(found[-1]))
    trainer = build_trainer(settings, agent, method)
    progress = load_checkpoint(found[-1], trainer)
    method, state = state_from_text(method, progress.credit_state)
    folder = RunFolder(path, seconds_before=progress.seconds + COMMAND.seconds())
    folder.drop_events_after(progress.step)
    folder.write("config.toml", toml.dump(settings))
    console = Console(settings.train.steps)
    session = Session(settings, environment, method, agent, EnvPool(environment), trainer, folder, console, state)
    agent.engine.load(trainer.weights(), version=progress.step)
    console.note(f"going on with {path} at step {progress.step} of {settings.train.steps}")
    with _left_in_order(folder, console):
        return _train(session, progress)


def _is_done(path: Path, step: int, num_steps: int) -> bool:
    """Whether a run has made its steps and written its results, in which case that is said and nothing is left to do.

    Raises:
        SettingError: it has made more steps than are asked for.
    """
    if num_steps < step:
        raise SettingError(
            f"train.steps is {num_steps}, but {path} has made {number_of(step, 'step')} already; expected {step} or more. To see an earlier "
            f"policy, use keel eval {path} --checkpoint FOLDER."
        )
    if step < num_steps or not any(event.get("kind") == "end" for event in read_events(path)):
        return False
    Console(num_steps).note(
        f"{path} is finished: {step} of {number_of(num_steps, 'step')} done, and its results are written. To train on, use "
        f"keel train --resume {path} --steps {2 * step or 100}"
    )
    return True


def load_settings(path: Path) -> Settings[Any]:
    """The settings of a run folder."""
    values = toml.read(path / "config.toml")
    name = values.get("env_name")
    if not isinstance(name, str):
        raise DataError(f"{path / 'config.toml'} has no env_name, so it is not a whole run configuration.")
    model_path = toml.model_path(values, path / "config.toml")
    return toml.overlay(default_settings(find_environment(name), model_path), values)


def _extended(settings: Settings[Any], changed: dict[str, Any]) -> Settings[Any]:
    allowed = {
        "train": {"steps"},
        "eval": {"every", "tasks_on_the_way"},
        "run": {"checkpoint_every", "keep_checkpoints", "threads"},
    }
    extended = toml.overlay(settings, changed)
    for section, value in changed.items():
        keys = set(value) if isinstance(value, dict) else set()
        if section not in allowed or not keys <= allowed[section]:
            named = [f"{section}.{key}" for key in sorted(keys)] or [section]
            raise SettingError(
                f"a resume cannot change {', '.join(named)}: the continuation would not be the same run. "
                "It may change train.steps, eval.every, eval.tasks_on_the_way and run.checkpoint_every, run.keep_checkpoints, "
                "run.threads; for anything else start a new run with --model CHECKPOINT."
            )
    return extended


def _check_evaluations(settings: Settings[Any], environment: Environment) -> None:
    """Raise now, not when the evaluation comes, where the held-out split has fewer tasks than one asks for."""
    on_the_way = settings.eval.tasks_on_the_way if settings.eval.every else 0
    environment.fixed_tasks(environment.splits[1], max(settings.eval.tasks, on_the_way))


def _threads_before(path: Path) -> int:
    """The threads that the run measured at its start, since another number gives other last bits; 0 (measure again) when it
    does not say, or has more than this machine."""
    try:
        threads = json.loads((path / "manifest.json").read_text()).get("threads")
    except (OSError, ValueError):
        return 0
    return threads if isinstance(threads, int) and 0 < threads <= num_cores() else 0


@contextmanager
def _left_in_order(folder: RunFolder, console: Console) -> Iterator[None]:
    """Whatever stops the block, the terminal is left in order; Ctrl-C and SIGTERM say what is saved and how to go on."""
    try:
        with terminate_as_interrupt():
            yield
    except KeyboardInterrupt:
        console.close()
        cloning = cloning_checkpoint(folder.checkpoints)
        saved = [path.name for path in (cloning, *checkpoints(folder.checkpoints)) if path.exists()]
        console.note(
            f"\nstopped; saved as {saved[-1]}. Go on with: keel train --resume {folder.path}"
            if saved
            else "\nstopped before there was anything to save. Start again with `keel train` and another --out."
        )
        raise
    finally:
        console.close()


def _train(session: Session, progress: Progress) -> Path:
    """What comes before the first step, the loop, and what comes after it."""
    if not any(event["kind"] == "eval" for event in session.folder.events()):
        session.console.note(self_test(session))
        loop.evaluate_now(session, progress.step, session.settings.eval.tasks)
    outcome = loop.train(session, progress)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return _finish(session, outcome.progress)


def _finish(session: Session, progress: Progress) -> Path:
    """Final evaluation, results, report, and words about where they are."""
    folder, console, settings = session.folder, session.console, session.settings
    final = _evaluated(session, progress.step) or loop.evaluate_now(session, progress.step, settings.eval.tasks)
    console.close()
    results = _results(session, progress, final)
    folder.write_json("results.json", results)
    folder.event("end", progress.step, success=final.success)
    report = write_report(folder.path)
    before: dict[str, Any] = results["before"]  # type: ignore[assignment]
    console.note(
        f"held-out success {before['success']:.3f} [{before['low']:.3f}, {before['high']:.3f}] after cloning -> {final.words()} "
        f"after {number_of(progress.step, 'step')} of {settings.method}; {number_of(progress.env_steps, 'environment step')}, "
        f"{number_of(progress.sampled_tokens, 'sampled token')}, {number_of(progress.num_updates, 'update')}, {folder.seconds:.0f} s "
        f"(first metric after {results['first_metric_seconds']:.0f} s)"
    )
    console.note(
        f'run folder  {folder.path}\nreport      {report}\nnext        keel eval {folder.path}    keel describe "{settings.method}"'
    )
    return folder.path


def _evaluated(session: Session, step: int) -> Evaluation | None:
    """The whole evaluation of a step that was made already: before training, or by a run that was stopped right after it."""
    logged = [
        event
        for event in session.folder.events()
        if event["kind"] == "eval" and event["step"] == step and event["count"] == session.settings.eval.tasks
    ]
    return Evaluation.of_record(logged[-1]) if logged else None


def _results(session: Session, progress: Progress, final: Evaluation) -> dict[str, object]:
    events = session.folder.events()
    evaluations = [e for e in events if e["kind"] == "eval"]
    first_metric = next((e["seconds"] for e in events if e["kind"] in ("clone", "eval", "step")), 0.0)
    keys = ("success", "low", "high", "successes", "count", "return", "turns", "valid_format", "families", "errors")
    return {
        "environment": session.settings.env_name,
        "method": session.method.name,
        "method_expression": session.settings.method,
        "split": final.split,
        "before": {k: evaluations[0][k] for k in keys},
        "after": {k: v for k, v in final.record().items() if k in keys},
        "first_metric_seconds": first_metric,
        "seconds": session.folder.seconds,
        "steps": progress.step,
        "updates": progress.num_updates,
        "env_steps": progress.env_steps,
        "sampled_tokens": progress.sampled_tokens,
        "seeds": {"run": session.settings.run.seed},
        "versions": machine(),
    }
