"""Checkpoints: whole or not there; broken and foreign ones are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from keel.errors import DataError
from keel.models.load import load_policy
from keel.objective.method import assign_credit, resolve
from keel.train.checkpoint import Progress, checkpoints, load_checkpoint, restore_state, save_checkpoint
from keel.train.trainer import Trainer
from keel.types import TurnIndex
from policies import UPDATE, SmallAgent, informative_groups, small_agent

PROGRESS = Progress(
    step=3, num_updates=1, env_steps=40, sampled_tokens=500, seconds=1.5, empty_in_a_row=2, credit_state=""
)
METHOD = "grpo(kl=0.1)"


def trained(updates: int = 1) -> tuple[SmallAgent, Trainer]:
    agent = small_agent(cloned=40)
    trainer = Trainer(agent.model, UPDATE, needs_reference=True)
    for step in range(1, updates + 1):
        train(agent, trainer, step)
    return agent, trainer


def train(agent: SmallAgent, trainer: Trainer, step: int) -> None:
    method, groups = resolve(METHOD), informative_groups(agent, METHOD, seed=step)
    scores = trainer.score(groups, method.needs)
    trainer.update(groups, assign_credit(method, TurnIndex.of(groups), scores), scores, method, step)


def save(folder: Path, agent: SmallAgent, trainer: Trainer, step: int = 3, keep: int = 2) -> Path:
    return save_checkpoint(folder, trainer, agent.tokenizer, replace(PROGRESS, step=step), keep)


def test_loading_gives_back_weights_optimizer_reference_and_progress(tmp_path: Path) -> None:
    agent, trainer = trained()
    path = save(tmp_path, agent, trainer)
    fresh = small_agent()
    other = Trainer(fresh.model, UPDATE, needs_reference=True)
    assert load_checkpoint(path, other) == replace(PROGRESS, step=3)
    assert other.num_updates == 1
    assert trainer.reference is not None and other.reference is not None
    for mine, theirs in ((agent.model, fresh.model), (trainer.reference, other.reference)):
        expected = dict(mine.named_parameters())
        assert all(torch.equal(p, expected[n]) for n, p in theirs.named_parameters())
    assert not torch.equal(
        dict(trainer.reference.named_parameters())["model.embed_tokens.weight"],
        dict(agent.model.named_parameters())["model.embed_tokens.weight"],
    )
    for p, q in zip(agent.model.parameters(), fresh.model.parameters(), strict=True):
        assert trainer.optimizer.state[p].keys() == other.optimizer.state[q].keys() == {"step", "exp_avg", "exp_avg_sq"}
        for key, value in trainer.optimizer.state[p].items():
            assert torch.equal(value, other.optimizer.state[q][key])


def test_the_next_update_after_loading_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    agent, trainer = trained()
    path = save(tmp_path, agent, trainer)
    fresh = small_agent(cloned=40)
    other = Trainer(fresh.model, UPDATE, needs_reference=True)
    load_checkpoint(path, other)
    agent.engine.load(trainer.weights(), 1)
    fresh.engine.load(other.weights(), 1)
    train(agent, trainer, 2)
    train(fresh, other, 2)
    expected = dict(agent.model.named_parameters())
    assert all(torch.equal(p, expected[n]) for n, p in fresh.model.named_parameters())


def test_the_optimizer_s_state_is_where_a_fused_step_keeps_it(tmp_path: Path) -> None:
    """All of it beside the parameter: a fused step on a GPU reads its step count there, too."""
    weight = torch.nn.Parameter(torch.zeros(2, 3, device="meta"))
    optimizer = torch.optim.AdamW([weight], fused=True)
    saved = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2, 3), "exp_avg_sq": torch.ones(2, 3)}
    restore_state(tmp_path, optimizer, {"weight": weight}, {f"weight/{key}": value for key, value in saved.items()})
    assert {key: value.device.type for key, value in optimizer.state[weight].items()} == dict.fromkeys(saved, "meta")


def test_a_checkpoint_is_a_hugging_face_folder(tmp_path: Path) -> None:
    agent, trainer = trained(0)
    policy = load_policy(str(save(tmp_path, agent, trainer)), torch.device("cpu"))
    expected = dict(agent.model.named_parameters())
    assert all(torch.equal(p, expected[n]) for n, p in policy.model.named_parameters())
    assert policy.tokenizer.chat_template == agent.tokenizer.chat_template


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    agent, trainer = trained(0)
    for step in (1, 2, 10):
        save(tmp_path, agent, trainer, step)
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000002", "step_000010"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_000002", "step_000010"]


def test_what_a_killed_process_left_behind_is_removed(tmp_path: Path) -> None:
    agent, trainer = trained()
    left = tmp_path / ".partial_000002"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    saved = save(tmp_path, agent, trainer)
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    agent, trainer = trained(0)
    save(tmp_path, agent, trainer)
    with torch.no_grad():
        agent.model.get_parameter("model.norm.weight").fill_(3.0)
    path = save(tmp_path, agent, trainer)
    assert float(load_file(path / "model.safetensors")["model.norm.weight"][0]) == 3.0
    assert [p.name for p in tmp_path.iterdir()] == ["step_000003"]


def test_there_is_a_whole_checkpoint_at_every_moment_of_saving_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed between any two steps of the replacement leaves something to resume from."""
    import os
    import shutil

    agent, trainer = trained(0)
    save(tmp_path, agent, trainer, keep=1)
    seen: list[int] = []

    def watched(original):  # type: ignore[no-untyped-def]
        def call(*arguments, **named):  # type: ignore[no-untyped-def]
            result = original(*arguments, **named)
            seen.append(len(checkpoints(tmp_path)))
            return result

        return call

    monkeypatch.setattr(os, "replace", watched(os.replace))
    monkeypatch.setattr(os, "rename", watched(os.rename))
    monkeypatch.setattr(shutil, "rmtree", watched(shutil.rmtree))
    save(tmp_path, agent, trainer, keep=1)
    assert seen and min(seen) >= 1
    assert [p.name for p in tmp_path.iterdir()] == ["step_000003"]


def test_an_unfinished_checkpoint_is_not_listed(tmp_path: Path) -> None:
    agent, trainer = trained(0)
    save(tmp_path, agent, trainer)
    (tmp_path / ".partial_000004").mkdir()
    (tmp_path / "step_000009").mkdir()
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000003"]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "keel_optimizer.safetensors", "keel_reference.safetensors", "keel_state.json"]
)
@pytest.mark.parametrize("damage", ["cut", "missing", "empty"])
def test_broken_files_are_named(tmp_path: Path, name: str, damage: str) -> None:
    agent, trainer = trained()
    path = save(tmp_path, agent, trainer)
    whole = (path / name).read_bytes()
    if damage == "missing":
        (path / name).unlink()
    else:
        (path / name).write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
    before = {n: p.clone() for n, p in agent.model.named_parameters()}
    with pytest.raises(DataError, match="is not a whole Keel checkpoint"):
        load_checkpoint(path, trainer)
    assert all(torch.equal(p, before[n]) for n, p in agent.model.named_parameters())


def test_a_state_with_other_fields_is_no_checkpoint(tmp_path: Path) -> None:
    agent, trainer = trained(0)
    path = save(tmp_path, agent, trainer)
    state = json.loads((path / "keel_state.json").read_text())
    (path / "keel_state.json").write_text(json.dumps({**state, "mystery": 1}))
    with pytest.raises(DataError, match="is not a whole Keel checkpoint"):
        load_checkpoint(path, trainer)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    agent, trainer = trained(0)
    path = save(tmp_path, agent, trainer)
    weights = load_file(path / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"] = torch.zeros(8, 32)
    save_file(weights, path / "model.safetensors")
    with pytest.raises(DataError, match=r"another model: model.layers.0.mlp.up_proj.weight has shape \(8, 32\)"):
        load_checkpoint(path, trainer)


def test_optimizer_state_of_another_model_is_refused(tmp_path: Path) -> None:
    agent, trainer = trained()
    path = save(tmp_path, agent, trainer)
    state = load_file(path / "keel_optimizer.safetensors")
    state["model.layers.7.mlp.up_proj.weight/exp_avg"] = torch.zeros(2)
    save_file(state, path / "keel_optimizer.safetensors")
    with pytest.raises(DataError, match="which this model does not have"):
        load_checkpoint(path, trainer)


def test_optimizer_state_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    agent, trainer = trained()
    path = save(tmp_path, agent, trainer)
    state = load_file(path / "keel_optimizer.safetensors")
    del state["model.norm.weight/exp_avg"]
    save_file(state, path / "keel_optimizer.safetensors")
    with pytest.raises(DataError, match=r"model.norm.weight"):
        load_checkpoint(path, trainer)


def test_optimizer_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    agent, trainer = trained()
    path = save(tmp_path, agent, trainer)
    state = load_file(path / "keel_optimizer.safetensors")
    state["model.norm.weight/exp_avg"] = torch.zeros(2)
    save_file(state, path / "keel_optimizer.safetensors")
    with pytest.raises(DataError, match=r"model.norm.weight"):
        load_checkpoint(path, trainer)
