"""How many threads a tensor operation should use, measured: on a busy machine two are far slower than one."""

from __future__ import annotations

import os
import time

import torch

from keel.report.words import number_of

_ROWS, _WIDTH, _REPEATS = 4096, 64, 12


def choose_threads(wanted: int) -> tuple[int, str]:
    """Set the number of intra-op threads.

    Args:
        wanted: a number, or 0 to measure products of the tiny policy's size with one thread and with all cores.

    Returns:
        The number, and a line for the log.
    """
    if wanted:
        torch.set_num_threads(wanted)
        return wanted, f"{number_of(wanted, 'thread')}, as set"
    cores = num_cores()
    if cores == 1:
        torch.set_num_threads(1)
        return 1, "1 thread: the machine has one core"
    times = {n: _seconds(n) for n in (1, cores)}
    best = cores if times[cores] < 0.8 * times[1] else 1
    torch.set_num_threads(best)
    return (
        best,
        f"{best} thread{'s' if best > 1 else ''} ({cores} measured {times[1] / times[cores]:.2f}x as fast as one just now)",
    )


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seconds(threads: int) -> float:
    """Best of several timings of a product, an activation and a product."""
    torch.set_num_threads(threads)
    x = torch.ones(_ROWS, _WIDTH)
    w = torch.ones(3 * _WIDTH, _WIDTH)
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(4):
            torch.matmul(torch.nn.functional.silu(torch.matmul(x, w.T)), w)
        best = min(best, time.perf_counter() - start)
    return best
