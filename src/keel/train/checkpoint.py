"""Checkpoints: a Hugging Face folder (model, tokenizer, chat template) with the optimizer and the loop's counters beside it.

Written to a temporary folder, flushed, then renamed: a full disk or a killed process leaves the previous one whole.
Sampling needs no generator state, because every draw is a pure function of seed, step and position.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as hub_logging

from keel.errors import DataError, KeelError
from keel.train.clone import Cloner
from keel.train.critic import ValueModel
from keel.train.trainer import Trainer

_STATE = "keel_state.json"
_CLONING = "keel_cloning.json"
_OPTIMIZER = "keel_optimizer.safetensors"
_REFERENCE = "keel_reference.safetensors"
_CRITIC = "keel_critic.safetensors"
_PARTS = ("weight/", "state/")
_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
"""What AdamW keeps for a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands."""

    step: int
    """Training steps done."""
    num_updates: int
    """Optimizer steps done."""
    env_steps: int
    sampled_tokens: int
    seconds: float
    """Spent so far, over all parts of the run."""
    empty_in_a_row: int
    """Steps without an informative group, up to now."""
    solved_in_a_row: int = 0
    """Those of them in which every group was solved by all siblings."""
    credit_state: str
    """The shapers' memory, serialised; empty when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneProgress:
    """Where cloning stands."""

    num_updates: int
    """Optimizer steps done."""
    num_turns: int
    """Demonstrated turns that they took."""
    loss: float | None
    """Of the last update, in nats per token; None before the first."""
    seconds: float
    """Spent cloning so far."""
    run_seconds: float
    """Spent on the run so far."""


def save_checkpoint(
    folder: Path, trainer: Trainer, tokenizer: PreTrainedTokenizerBase, progress: Progress, keep: int
) -> Path:
    """Save `folder/step_000012` and delete all but the newest `keep`.

    Raises:
        KeelError: the disk is full or not writable; earlier checkpoints are untouched.
    """

    def write(partial: Path) -> None:
        _save_policy(trainer.model, tokenizer, trainer.optimizer, partial)
        if trainer.reference is not None:
            tensors = {n: p.detach().contiguous().clone() for n, p in trainer.reference.named_parameters()}
            save_file(tensors, partial / _REFERENCE)
        if trainer.critic is not None:
            save_file(_critic_tensors(trainer.critic), partial / _CRITIC)
        (partial / _STATE).write_text(json.dumps(asdict(progress)))

    remedy = f"Earlier checkpoints in {folder} are untouched; free some space and go on with `keel train --resume RUN`."
    target = _save_whole(folder / f"step_{progress.step:06d}", write, remedy)
    shutil.rmtree(cloning_checkpoint(folder), ignore_errors=True)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def save_cloning(
    folder: Path, cloner: Cloner, tokenizer: PreTrainedTokenizerBase, seconds: float, run_seconds: float
) -> Path:
    """Save `folder/cloning`, from which cloning goes on; the first checkpoint of training replaces it.

    Args:
        folder: of the run's checkpoints.
        cloner: between two updates.
        tokenizer: of the policy.
        seconds: spent cloning so far.
        run_seconds: spent on the run so far.

    Raises:
        KeelError: the disk is full or not writable.
    """
    progress = CloneProgress(
        num_updates=cloner.num_updates,
        num_turns=cloner.num_turns,
        loss=cloner.loss,
        seconds=seconds,
        run_seconds=run_seconds,
    )

    def write(partial: Path) -> None:
        _save_policy(cloner.model, tokenizer, cloner.optimizer, partial)
        (partial / _CLONING).write_text(json.dumps(asdict(progress)))

    return _save_whole(cloning_checkpoint(folder), write, "Free some space and start again with `keel train`.")


def _save_policy(
    model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, optimizer: torch.optim.Optimizer, folder: Path
) -> None:
    """A checkpoint that any tool loads, and the optimizer beside it."""
    _save_model(model, folder)
    _save_tokenizer(tokenizer, folder)
    save_file(_state_tensors(optimizer, dict(model.named_parameters())), folder / _OPTIMIZER)


def _save_whole(target: Path, write: Callable[[Path], None], remedy: str) -> Path:
    """Let `write` fill a folder that appears as `target` when it is whole and on disk, or not at all."""
    folder = target.parent
    partial = folder / f".partial_{target.name.removeprefix('step_')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".partial_*"):  # of a process that was stopped while it saved
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir()
        write(partial)
        for path in partial.iterdir():
            _flush(path)
        _put_in_place(partial, target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise KeelError(f"cannot save checkpoint {target}: {error}. {remedy}") from error
    return target


def _save_model(model: torch.nn.Module, folder: Path) -> None:
    """Without progress bars, which would tear the live display."""
    shown = hub_logging.is_progress_bar_enabled()
    hub_logging.disable_progress_bar()
    try:
        model.save_pretrained(folder)  # type: ignore[operator]
    finally:
        if shown:
            hub_logging.enable_progress_bar()


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """The tokenizers library reports a full disk with a bare `Exception`."""
    try:
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:
        raise OSError(str(error)) from error


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename; a checkpoint of the same step steps aside under a name that is still listed, so that one is whole always."""
    aside = target.with_name(target.name + ".old")
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(target, aside)
    os.replace(partial, target)
    _flush(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(p for p in folder.glob("step_*") if is_checkpoint(p))


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder holds where a run stood, and not a model alone."""
    return (folder / _STATE).exists()


def cloning_checkpoint(folder: Path) -> Path:
    """Where cloning that was stopped is kept; it need not exist."""
    return folder / "cloning"


def _state_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    """The optimizer's tensors under the parameters' names."""
    named = {id(p): name for name, p in parameters.items()}
    return {
        f"{named[id(p)]}/{key}": value.detach().contiguous().clone()
        for p, values in optimizer.state.items()
        for key, value in values.items()
    }


def _critic_tensors(critic: ValueModel) -> dict[str, torch.Tensor]:
    """Weights under `weight/`, optimizer state under `state/`."""
    parameters = critic.named_parameters()
    weights = {f"weight/{name}": p.detach().contiguous().clone() for name, p in parameters.items()}
    state = {f"state/{name}": t for name, t in _state_tensors(critic.optimizer, parameters).items()}
    return weights | state


def read_progress(folder: Path) -> Progress:
    """Where the run stood at a checkpoint, without its weights.

    Raises:
        DataError: the file is missing, cut short or of another version.
    """
    try:
        return _read_state(folder)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{folder} is not a whole Keel checkpoint: {error}. Expected a readable {_STATE}.") from error


def _read_state(folder: Path) -> Progress:
    progress = Progress(**json.loads((folder / _STATE).read_text()))
    counts = (progress.step, progress.num_updates, progress.env_steps, progress.sampled_tokens, progress.empty_in_a_row)
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError(f"{_STATE} has counters {counts}; expected whole numbers of 0 or more")
    if not isinstance(progress.seconds, (int, float)) or not isinstance(progress.credit_state, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # read from a file
        raise ValueError(f"{_STATE} has seconds {progress.seconds!r}; expected a number, and a text as credit_state")
    return progress


def load_checkpoint(folder: Path, trainer: Trainer) -> Progress:
    """Put a checkpoint's weights, optimizer state and counters into a trainer.

    Raises:
        DataError: files missing, cut short or of another model.
    """
    try:
        progress = _read_state(folder)
        weights = load_file(folder / "model.safetensors")
        tensors = load_file(folder / _OPTIMIZER)
        reference = load_file(folder / _REFERENCE) if trainer.reference is not None else {}
        critic = load_file(folder / _CRITIC) if trainer.critic is not None else {}
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{folder} is not a whole Keel checkpoint: {error}. Expected {_STATE}, model.safetensors and {_OPTIMIZER}; "
            "resume from an older checkpoint by deleting this folder."
        ) from error
    _copy_parameters(folder, trainer.model, weights)
    if trainer.reference is not None:
        _copy_parameters(folder, trainer.reference, reference)
    restore_state(folder / _OPTIMIZER, trainer.optimizer, dict(trainer.model.named_parameters()), tensors)
    if trainer.critic is not None:
        _restore_critic(folder, trainer.critic, critic)
    trainer.num_updates = progress.num_updates
    return progress


def read_cloning(folder: Path) -> CloneProgress:
    """Where cloning stood when it was stopped, without its weights.

    Raises:
        DataError: the file is missing, cut short or of another version.
    """
    try:
        return CloneProgress(**json.loads((folder / _CLONING).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise _no_cloning(folder, error) from error


def load_cloning(folder: Path, cloner: Cloner) -> CloneProgress:
    """Put the weights, optimizer state and place in the examples of stopped cloning into a cloner.

    Raises:
        DataError: files missing, cut short or of another model.
    """
    progress = read_cloning(folder)
    try:
        weights, tensors = load_file(folder / "model.safetensors"), load_file(folder / _OPTIMIZER)
    except (OSError, SafetensorError) as error:
        raise _no_cloning(folder, error) from error
    _copy_parameters(folder, cloner.model, weights)
    restore_state(folder / _OPTIMIZER, cloner.optimizer, dict(cloner.model.named_parameters()), tensors)
    cloner.go_on_after(progress.num_updates, progress.num_turns, progress.loss)
    return progress


def _no_cloning(folder: Path, error: Exception) -> DataError:
    return DataError(
        f"{folder} is no whole checkpoint of cloning: {error}. Expected {_CLONING}, model.safetensors and {_OPTIMIZER}; "
        "start again with `keel train`."
    )


def _restore_critic(folder: Path, critic: ValueModel, tensors: dict[str, torch.Tensor]) -> None:
    parameters = critic.named_parameters()
    under = {part: {n.removeprefix(part): t for n, t in tensors.items() if n.startswith(part)} for part in _PARTS}
    _copy_named(folder, parameters, under["weight/"])
    restore_state(folder / _CRITIC, critic.optimizer, parameters, under["state/"])


def restore_state(
    file: Path,
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.nn.Parameter],
    tensors: dict[str, torch.Tensor],
) -> None:
    """Put saved state, named `parameter/key`, beside the parameters of a fused optimizer.

    Raises:
        DataError: of another model, or of another optimizer.
    """
    for name, state in _by_parameter(tensors).items():
        parameter = parameters.get(name)
        if parameter is None:
            raise DataError(f"{file} has state of {name!r}, which this model does not have.")
        if state.keys() != _MOMENTS or any(t.dim() and t.shape != parameter.shape for t in state.values()):
            got = {key: tuple(t.shape) for key, t in state.items()}
            raise DataError(
                f"{file} has {got} for {name}; expected {', '.join(sorted(_MOMENTS))} of shape "
                f"{tuple(parameter.shape)}. Resume from an older checkpoint by deleting this folder."
            )
        optimizer.state[parameter] = {k: t.to(parameter.device) for k, t in state.items()}


def _by_parameter(tensors: dict[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors named `parameter/key` as a dictionary for each parameter."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        parameter, _, key = name.rpartition("/")
        found.setdefault(parameter, {})[key] = tensor
    return found


def _copy_parameters(folder: Path, model: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    _copy_named(folder, dict(model.named_parameters()), tensors)


@torch.no_grad()
def _copy_named(folder: Path, parameters: Mapping[str, torch.nn.Parameter], tensors: dict[str, torch.Tensor]) -> None:
    for name, parameter in parameters.items():
        saved = tensors.get(name)
        if saved is None or saved.shape != parameter.shape:
            got = "nothing" if saved is None else f"shape {tuple(saved.shape)}"
            raise DataError(
                f"{folder} is a checkpoint of another model: {name} has {got}, expected {tuple(parameter.shape)}. "
                "Resume with the settings the run was started with."
            )
        parameter.copy_(saved)
