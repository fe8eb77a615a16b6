"""Loading a policy: a Hugging Face checkpoint from a folder or the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from keel.errors import DataError, SettingError
from keel.models.weights import shape_of


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A model with the tokenizer it speaks."""

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerFast
    stop_ids: tuple[int, ...]
    """End-of-turn ids of the checkpoint's generation config, beside the tokenizer's own."""


def load_policy(path: str, device: torch.device) -> Policy:
    """Load a checkpoint with its tokenizer and chat template.

    Args:
        path: a folder, or a hub name such as `Qwen/Qwen3-0.6B`.
        device: of the weights, which are float32 whatever the checkpoint stores: small updates vanish in bfloat16.

    Raises:
        SettingError: no such folder or name, an architecture that is not supported, no chat template.
        DataError: a folder that is no checkpoint, or a file in it that is cut short.
    """
    folder = Path(path)
    if folder.exists() and not (folder / "config.json").exists():
        raise DataError(
            f"{path} is no checkpoint: it has no config.json. Expected a folder saved by `save_pretrained`."
        )
    try:
        shape = shape_of(AutoConfig.from_pretrained(path))
        tokenizer = AutoTokenizer.from_pretrained(path)
        loaded: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True)
        model, loading = loaded
    except SettingError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise _load_error(path, folder, error) from error
    missing = sorted(loading["missing_keys"])
    if missing:
        raise DataError(
            f"checkpoint {path} lacks {len(missing)} of the weights that its config.json asks for, such as {missing[0]}; "
            "they would be random. Its files belong to different models, or one is missing: copy or save it again."
        )
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise SettingError(
            f"{path} has a slow tokenizer ({type(tokenizer).__name__}); a fast one (tokenizer.json) is expected."
        )
    if len(tokenizer) > shape.vocab_size:
        raise DataError(
            f"checkpoint {path} has a tokenizer of {len(tokenizer)} tokens and a model of {shape.vocab_size}; expected at least "
            "as many in the model. They belong to different checkpoints, or tokens were added without resizing the embeddings."
        )
    generation = getattr(model, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    stop_ids = tuple(ends) if isinstance(ends, list) else (ends,) if isinstance(ends, int) else ()
    _own_memory(model, device)
    return Policy(model, tokenizer, stop_ids)


@torch.no_grad()
def _own_memory(model: torch.nn.Module, device: torch.device) -> None:
    """Copy the parameters out of the mapped file, where they lie at any address: matrix products of the same numbers at another
    alignment differ in their last bits, and a resumed run would not be the same run."""
    torch.nn.Module.to(model, device)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def _load_error(path: str, folder: Path, error: Exception) -> SettingError | DataError:
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if folder.exists():
        return DataError(
            f"checkpoint {path} cannot be read: {first_line}. A file may be missing or cut short; "
            "copy or save the checkpoint again."
        )
    return SettingError(
        f"no checkpoint {path!r}: there is no such folder, and the hub did not answer with it ({first_line}). "
        "Give a folder, or a hub name while online."
    )


def choose_device(name: str) -> torch.device:
    """`"auto"` takes a GPU when there is one; asking for one that is not there raises."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("model.device is 'cuda', but torch sees no GPU here. Use 'cpu', or run `keel doctor`.")
    return torch.device(name)
