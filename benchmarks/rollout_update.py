"""One training step against TRL on the same work, in the same run.

Qwen3 architecture, 865 k parameters, 16 tasks x 8 siblings, 5 turns, 24 new tokens a turn, fp32, a number-guessing game, full
history. TRL runs in a virtual environment of its own (made on the first call; see `--peer-venv`), through its own `rollout_func`,
with its best micro-batch, twice: with its stock loop that prefills the whole history every turn, and with one key-value cache kept
through the episode. The two sides alternate, and the best step of each counts.

    python benchmarks/rollout_update.py --threads 1 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from peers.venv import DEFAULT_FOLDER, ensure_peer_venv

HERE = Path(__file__).parent


def run(command: list[str], out: Path) -> dict[str, Any]:
    """A side's script; its numbers are in `out`."""
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return json.loads(out.read_text())


def row(name: str, best: dict[str, Any]) -> str:
    return (
        f"| {name} | {best['trajectories_per_s']:.1f} | {best['generated_tokens_per_s']:,.0f} "
        f"| {best['update_tokens_per_s']:,.0f} |"
    )


def compare(threads: int, steps: int, peer: Path, checkpoint: Path, folder: Path) -> list[str]:
    """Markdown rows for one number of threads."""
    common = ["--checkpoint", str(checkpoint), "--threads", str(threads), "--steps", str(steps)]
    ours = [
        run([sys.executable, str(HERE / "keel_step.py"), *common], folder / f"keel-{threads}-{i}.json") for i in (0, 1)
    ]
    theirs = run([str(peer), str(HERE / "peers" / "trl_step.py"), *common], folder / f"trl-{threads}.json")
    ours.append(run([sys.executable, str(HERE / "keel_step.py"), *common], folder / f"keel-{threads}-2.json"))
    best = max((o["best"] for o in ours), key=lambda b: b["trajectories_per_s"])
    stock, cached = theirs["best_prefill"], theirs["best"]
    share = max(o["best"]["update_share_of_ceiling"] for o in ours)
    return [
        row(f"TRL 1.16, stock loop, {threads} thread(s)", stock),
        row(f"TRL 1.16, cache kept, {threads} thread(s)", cached),
        row(f"Keel, {threads} thread(s)", best),
        f"| Keel against TRL stock / cached | {best['trajectories_per_s'] / stock['trajectories_per_s']:.2f}x / "
        f"{best['trajectories_per_s'] / cached['trajectories_per_s']:.2f}x | "
        f"{best['generated_tokens_per_s'] / stock['generated_tokens_per_s']:.2f}x | "
        f"{best['update_tokens_per_s'] / stock['update_tokens_per_s']:.2f}x, {share:.0%} of the matrix-product ceiling |",
        f"| Keel's matrix products and attention kernels alone | {best['kernel_s']:.2f} s of a step; "
        f"3x TRL's stock loop would be {best['trajectories'] / stock['trajectories_per_s'] / 3:.2f} s | | |",
    ]


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--peer-venv", type=Path, default=DEFAULT_FOLDER, help="where TRL is, or is installed to")
    options = parser.parse_args()
    peer = ensure_peer_venv(options.peer_venv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = folder / "checkpoint"
        subprocess.run(
            [sys.executable, str(HERE / "peers" / "guess_checkpoint.py"), "--out", str(checkpoint)], check=True
        )
        print("| | trajectories/s | generated tokens/s | update tokens/s |\n|---|---|---|---|")
        for threads in options.threads:
            print("\n".join(compare(threads, options.steps, peer, checkpoint, folder)), flush=True)


if __name__ == "__main__":
    main()
