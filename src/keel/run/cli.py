"""The `keel` command: a table of subcommands, each in its own file."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from keel import __version__
from keel.errors import KeelError, unknown_name
from keel.run.clock import COMMAND

COMMANDS = {
    "train": ("keel.run.commands.train", "clone, train, evaluate on held-out tasks, write a report"),
    "clone": ("keel.run.commands.clone", "behaviour cloning alone, from demonstrations or from a run's successes"),
    "eval": ("keel.run.commands.evaluate", "evaluate a run or a checkpoint on fixed held-out tasks"),
    "describe": ("keel.run.commands.describe", "a method in the paper's terms, or what differs between two"),
    "play": ("keel.run.commands.play", "be the agent: play an environment in the terminal"),
    "check-env": ("keel.run.commands.check_env", "find what is wrong with an environment"),
    "data": ("keel.run.commands.data", "get and pack the official benchmark files"),
    "verify": ("keel.run.commands.verify", "the proof: every formula against golden numbers and references"),
    "report": ("keel.run.commands.report", "write report.html of one run, or compare several"),
    "arg": ("keel.run.commands.arg", "action reference graphs: draw and export what ProAS has learned"),
    "probe": (
        "keel.run.commands.probe",
        "causal probes: context noise, action suppression, and the audit by training step",
    ),
    "doctor": ("keel.run.commands.doctor", "what this machine can run, what is missing, how to get it"),
}

_INTERRUPTED = 130

_HELP = """keel {version}: train LLM agents with multi-turn reinforcement learning, stably, on a laptop or a cluster.

    keel train sokoban                          a tiny policy learns in minutes: no GPU, no download, no key
    keel train sokoban --method "gigpo(kl=0)"   another method, same everything else
    keel train sokoban --model Qwen/Qwen3-0.6B  the same code path on a language model
    keel describe --diff sampo gspo             what differs between two methods

commands:
{commands}

`keel COMMAND --help` explains a command with an example. `--debug` shows tracebacks."""


def main() -> None:
    """Entry point: exits 0 only on success; wrong input is one message, not a traceback."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    status = run([a for a in arguments if a != "--debug"], debug)
    if status == _INTERRUPTED:
        # Ctrl-C arrives anywhere, inside libraries too. What they leave half made has sent the interpreter's last garbage
        # collection into an endless loop, after everything was saved and said: leave without it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run(arguments: Sequence[str], debug: bool = False) -> int:
    """Run a command line; returns the exit status."""
    COMMAND.restart()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(len(name) for name in COMMANDS)
        listed = "\n".join(f"    {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items())
        print(_HELP.format(version=__version__, commands=listed))
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    try:
        if arguments[0] not in COMMANDS:
            raise unknown_name("command", arguments[0], COMMANDS)
        module = importlib.import_module(COMMANDS[arguments[0]][0])
        return int(module.main(list(arguments[1:])))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return 141
    except KeelError as error:
        if debug:
            traceback.print_exc()
        print(f"keel: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if debug:
            traceback.print_exc()
        print(f"keel: {error}. Check the path, its permissions and the free space on the disk.", file=sys.stderr)
        return 1
