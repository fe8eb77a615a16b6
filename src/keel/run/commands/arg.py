"""`keel arg show RUN [TASK]`, `keel arg init ENV`: action reference graphs, drawn and exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from keel.credit.adapters.select import adapter_for
from keel.credit.draw import as_html, as_text
from keel.credit.seed import seed_from_demonstrations
from keel.credit.serialise import graph_to_graphml, store_to_json
from keel.credit.store import GraphStore
from keel.errors import DataError, SettingError, unknown_name
from keel.report.words import number_of
from keel.run.commands.arguments import environment_of, refuse_unused, settings_of, take_options
from keel.run.environments import find_environment
from keel.run.graphs import run_graphs

HELP = """keel arg show RUN [TASK] [--html FILE] [--json FILE] [--graphml FILE] [--most N]
keel arg init ENV [--task NUMBER] [--demonstrations N] [--html FILE] [--json FILE] [--graphml FILE] [--any.setting VALUE]

Draw action reference graphs: sub-goals as columns, every verified edge with how many verified successes went through it, and
the verified paths. `show` reads the last checkpoint of a run whose method has them (`gigpo+proas`): a list of its tasks, or
one task (a part of its id that no other has is enough). `init` builds the graph of a training task from demonstrations, as a
run does when it first meets the task. Without TASK, `--json` writes the graphs of all tasks.

    keel arg show runs/sokoban-grpo+proas-0001
    keel arg show runs/sokoban-grpo+proas-0001 4f1c --html graph.html
    keel arg init alfworld --task 3 --demonstrations 4"""

_FILES = ("--html", "--json", "--graphml")
_MOST = 20


def main(arguments: list[str]) -> int:
    """Print or write the graphs."""
    if not arguments or any(a in ("-h", "--help") for a in arguments):
        print(HELP)
        return 0
    verbs = {"show": _show, "init": _init}
    if arguments[0] not in verbs:
        raise unknown_name("arg command", arguments[0], verbs)
    verbs[arguments[0]](arguments[1:])
    return 0


def _show(arguments: list[str]) -> None:
    line = take_options(arguments, (*_FILES, "--most"))
    if not 1 <= len(line.rest) <= 2 or any(a.startswith("-") for a in line.rest):
        raise SettingError(
            f"`keel arg show` takes a run and perhaps a task, got {' '.join(line.rest) or 'nothing'!r}. "
            "Example: keel arg show runs/sokoban-grpo+proas-0001"
        )
    run = Path(line.rest[0])
    graphs = run_graphs(run)
    if graphs.store is None:
        raise DataError(
            f"{run} (method {graphs.method}, step {graphs.step}) has no reference graphs: a method learns them with `+proas`, "
            "from its first step on. For the graph that demonstrations give: keel arg init ENV"
        )
    if len(line.rest) == 2:
        if "--most" in line.options:
            raise SettingError("--most is of the list of tasks; leave it out, or leave the task out.")
        task = task_named(graphs.store, line.rest[1])
        print(as_text(graphs.store.graphs[task], task))
        _write(graphs.store, task, line.options)
        return
    for option in ("--html", "--graphml"):
        if option in line.options:
            raise SettingError(f"{option} draws one task; name it: keel arg show {run} TASK {option} FILE")
    print(f"{run}, step {graphs.step}, {graphs.method}")
    print(listing(graphs.store, _count(line.options, "--most", _MOST)))
    if "--json" in line.options:
        _save(line.options["--json"], store_to_json(graphs.store))
    if graphs.store.graphs:
        print(f"next    keel arg show {run} {most_verified(graphs.store)[0]}")


def _init(arguments: list[str]) -> None:
    line = take_options(arguments, (*_FILES, "--task", "--demonstrations"))
    environment_type, rest = environment_of(line.rest, "arg init")
    settings = settings_of(environment_type, rest, None, "arg init")
    refuse_unused(rest, ("env.",), "keel arg init")
    environment = find_environment(settings.env_name).load(settings.env)
    task = environment.sample_task(environment.splits[0], _count(line.options, "--task", 0, least=0))
    adapter = adapter_for(environment)
    seeds = range(_count(line.options, "--demonstrations", 1))
    empty = GraphStore(environment=adapter.environment, version=adapter.version)
    seeded = seed_from_demonstrations(empty, adapter, environment, [task], seeds)
    for _, why in seeded.failed:
        print(f"left out: {why}")
    if not seeded.won:
        raise DataError(
            f"no demonstration of task {task.id!r} wins, so it has no graph. Ask for more with --demonstrations, or for another --task"
        )
    print(as_text(seeded.store.graphs[task.id], task.id))
    _write(seeded.store, task.id, line.options)


def listing(store: GraphStore, most: int) -> str:
    """Totals, and the tasks with most verified successes.

    Args:
        store: graphs.
        most: tasks to list.
    """
    order = most_verified(store)
    width = max((len(task) for task in order[:most]), default=4)
    lines = [
        f"environment {store.environment}: {number_of(len(order), 'task')}, {number_of(store.num_vertices, 'vertex', 'vertices')}, "
        f"{number_of(store.num_edges, 'verified edge')}",
        f"{'task':<{width}}  vertices  edges  verified successes",
    ]
    for task in order[:most]:
        graph = store.graphs[task]
        lines.append(f"{task:<{width}}  {graph.num_vertices:>8}  {graph.num_edges:>5}  {graph.num_paths:>18}")
    if len(order) > most:
        lines.append(f"... and {number_of(len(order) - most, 'more task')} (--most {len(order)} lists all)")
    return "\n".join(lines)


def most_verified(store: GraphStore) -> list[str]:
    """Task ids, those with most verified successes first."""
    return sorted(store.graphs, key=lambda task: (-store.graphs[task].num_paths, task))


def task_named(store: GraphStore, text: str) -> str:
    """The task with this id, or the only one whose id contains the text; raises and names a near one."""
    found = [task for task in store.graphs if text in task]
    if text in store.graphs or len(found) != 1:
        store.find(text)
        return text
    return found[0]


def _write(store: GraphStore, task: str, options: Mapping[str, str]) -> None:
    graph = store.graphs[task]
    if "--html" in options:
        _save(options["--html"], as_html(graph, task))
    if "--json" in options:
        _save(options["--json"], store_to_json(replace(store, graphs={task: graph})))
    if "--graphml" in options:
        _save(options["--graphml"], graph_to_graphml(graph))


def _save(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
    print(f"written {name}")


def _count(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < least:
        raise SettingError(f"{name} is {text!r}; expected a whole number of at least {least}.")
    return int(text)
