"""Wrong input on the command line: one message with the remedy, exit status 2, no traceback, nothing left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from policies import small_agent
from runs import CORRIDOR, Refusals, keel, train_arguments


def last_checkpoint(run: Path) -> Path:
    return run / "checkpoints" / "step_000002"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["trian", "sokoban"], ["unknown command 'trian'", "Did you mean 'train'?", "clone, "]),
        (["train", "sokobann"], ["unknown environment 'sokobann'", "Did you mean 'sokoban'?", "webshop"]),
        (["train", "--steps", "3"], ["needs an environment first", "keel train sokoban"]),
        (["train", "nowhere.py"], ["environment file nowhere.py does not exist"]),
        (["train", CORRIDOR + ":nothing"], ["has no function 'nothing'"]),
        (["train", "sokoban", "--config", "nowhere.toml"], ["settings file nowhere.toml does not exist"]),
        (["train", "sokoban", "--config"], ["option --config needs a value"]),
        (["train", "sokoban", "--env.path", "/nowhere", "--env.family", "boxoban"], ["/nowhere"]),
        (["train", "sokoban", "--env.family", "tiny"], ["family", "tiny", "small"]),
        (["train", "sokoban", "--env.max_turns", "0"], ["max_turns is 0"]),
        (["describe", "sampoo"], ["unknown method 'sampoo'", "'sampo'"]),
        (["describe", "sampo(lo=1)"], ["lo", "low"]),
        (["describe", "--diff", "sampo"], ["--diff compares two methods, got 1"]),
        (["describe", "nowhere.py:mine"], ["nowhere.py"]),
        (["eval", "/nowhere"], ["is no run folder", "keel eval /nowhere sokoban"]),
        (["eval", "/nowhere", "sokoban"], ["no checkpoint '/nowhere'"]),
        (["eval"], []),
        (["report", "/nowhere"], ["/nowhere is no run folder", "keel train"]),
        (["train", "--resume", "/nowhere"], ["/nowhere is no run folder"]),
        (["train", "--resume"], ["option --resume needs a value"]),
        (["clone", "sokobann"], ["unknown environment 'sokobann'"]),
    ],
)
def test_unknown_names_and_files(arguments: list[str], parts: list[str], refused: Refusals) -> None:
    if arguments == ["eval"]:
        assert keel("eval") == 0  # prints its help
        return
    message = refused(*arguments)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--method", "sampoo"], ["unknown method 'sampoo'", "'sampo'"]),
        (["--method", "sampo(low=-1)"], ["-1"]),
        (["--train.stepz", "3"], ["unknown setting '--train.stepz'", "Did you mean '--train.steps'?"]),
        (["--rollout.group_siz", "3"], ["rollout.group_siz", "rollout.group_size"]),
        (["--steps", "three"], ["three"]),
        (["--rollout.group_size", "1"], ["keel: rollout.group_size is 1; expected 2 or more\n"]),
        (["--rollout.groups", "0"], ["rollout.groups is 0"]),
        (["--rollout.temperature", "0"], ["rollout.temperature is 0"]),
        (["--rollout.format_penalty", "-1"], ["rollout.format_penalty is -1"]),
        (["--train.learning_rate", "-1"], ["train.learning_rate is -1"]),
        (["--train.learning_rate", "nan"], ["train.learning_rate is nan"]),
        (["--train.beta1", "1.0"], ["train.beta1 is 1.0"]),
        (["--train.beta2", "-0.1"], ["train.beta2 is -0.1"]),
        (["--train.epsilon", "0"], ["train.epsilon is 0"]),
        (["--train.weight_decay", "-1"], ["train.weight_decay is -1"]),
        (["--train.max_grad_norm", "0"], ["train.max_grad_norm is 0"]),
        (["--train.minibatches", "0"], ["train.minibatches is 0"]),
        (["--train.epochs", "0"], ["train.epochs is 0"]),
        (["--train.steps", "-1"], ["train.steps is -1"]),
        (["--train.warmup_updates", "-1"], ["train.warmup_updates is -1"]),
        (["--train.micro_batch_tokens", "0"], ["train.micro_batch_tokens is 0"]),
        (["--train.old_logprobs", "guessed"], ["guessed", "sampled"]),
        (["--clone.learning_rate", "0"], ["clone.learning_rate is 0"]),
        (["--clone.batch_turns", "0"], ["clone.batch_turns is 0"]),
        (["--clone.check_every", "0"], ["clone.check_every is 0"]),
        (["--clone.check_tasks", "0"], ["clone.check_tasks is 0"]),
        (["--clone.target_success", "1.5"], ["clone.target_success is 1.5"]),
        (["--clone.max_updates", "-1"], ["clone.max_updates is -1"]),
        (["--clone.rollout_tasks", "0"], ["clone.rollout_tasks is 0"]),
        (["--run.checkpoint_every", "0"], ["run.checkpoint_every is 0"]),
        (["--run.keep_checkpoints", "0"], ["run.keep_checkpoints is 0"]),
        (["--run.trajectories_every", "0"], ["run.trajectories_every is 0"]),
        (["--run.empty_steps", "0"], ["run.empty_steps is 0"]),
        (["--run.threads", "-1"], ["run.threads is -1"]),
        (["--eval.tasks", "0"], ["eval.tasks is 0"]),
        (["--eval.every", "-1"], ["eval.every is -1"]),
        (["--eval.tasks_on_the_way", "0"], ["eval.tasks_on_the_way is 0"]),
        (["--eval.top_p", "0"], ["top_p is 0"]),
        (["--eval.top_k", "-1"], ["top_k is -1"]),
        (["--eval.temperature", "-1"], ["temperature is -1"]),
        (["--prompt.max_new_tokens", "0"], ["max_new_tokens is 0"]),
        (["--prompt.max_prompt_tokens", "0"], ["max_prompt_tokens is 0"]),
        (["--prompt.max_episode_tokens", "0"], ["max_episode_tokens is 0"]),
        (["--prompt.history", "-1"], ["prompt.history is -1"]),
        (["--prompt.style", "rich"], ["rich", "terse"]),
        (["--model.device", "cuda"], ["'cuda', but torch sees no GPU"]),
        (["--model.tiny.num_heads", "3"], ["num_heads"]),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(
    more: list[str], parts: list[str], refused: Refusals
) -> None:
    message = refused.train(*more)
    for part in parts:
        assert part in message
    assert not refused.out.exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[train]\nstepz = 3", ["unknown setting 'train.stepz'", "Did you mean 'train.steps'?"]),
        ("[trian]\nsteps = 3", ["unknown setting 'trian'", "Did you mean 'train'?"]),
        ("[train]\nsteps = 'three'", ["setting train.steps is 'three'"]),
        ("train = 3", ["setting train is a table"]),
        ("[env]\ndoor = 3", ["unknown setting 'env.door'", "'env.doors'"]),
        ("[train\nsteps = 3", ["is not valid TOML"]),
        ("env_name = 'sokoban'", ["is for environment 'sokoban'"]),
        ("[model.tiny]\nnum_layer = 1", ["'model.tiny.num_layer'", "'model.tiny.num_layers'"]),
    ],
)
def test_settings_files_are_checked_as_the_command_line_is(
    text: str, parts: list[str], refused: Refusals, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    message = refused.train("--config", str(file))
    for part in parts:
        assert part in message
    assert not refused.out.exists()


def test_a_prompt_that_cannot_fit(refused: Refusals) -> None:
    message = refused.train("--prompt.max_prompt_tokens", "3")
    assert "max_prompt_tokens" in message
    more = ["--clone.max_updates", "0", "--prompt.max_prompt_tokens", "3"]
    message = refused(*train_arguments(refused.out.parent / "b", *more))
    assert "the first prompt does not fit 3 tokens. Raise prompt.max_prompt_tokens" in message


def test_a_run_folder_that_is_not_empty(refused: Refusals) -> None:
    refused.out.mkdir()
    (refused.out / "thesis.txt").write_text("precious")
    message = refused.train()
    assert "is not empty" in message and "--resume" in message
    assert [p.name for p in refused.out.iterdir()] == ["thesis.txt"]


def test_an_environment_that_is_not_seeded(refused: Refusals) -> None:
    assert "the environment must be seeded per group" in refused.train("--env.unseeded", "True", "--steps", "1")


def test_an_environment_that_always_crashes(refused: Refusals) -> None:
    message = refused.train("--env.crash_every", "1", "--env.doors", "4", "--env.max_turns", "6")
    assert "RuntimeError: the corridor caved in" in message and "demonstration" in message
    folder = str(refused.out.parent / "b")
    message = refused(
        *train_arguments(Path(folder), "--env.crash_every", "1", "--env.doors", "4", "--clone.max_updates", "0")
    )
    assert "4 of 4 test episodes failed" in message and "RuntimeError: the corridor caved in" in message


def test_a_broken_level_file(refused: Refusals, tmp_path: Path) -> None:
    levels = tmp_path / "levels.txt"
    levels.write_text("; 0\n#####\n#@$.#\n#  ?#\n#####\n")
    message = refused(
        "train", "sokoban", "--env.family", "boxoban", "--env.path", str(levels), "--out", str(refused.out)
    )
    assert "levels.txt" in message and "'?'" in message and "row 3" in message


@pytest.mark.parametrize(
    "changed", [["--train.learning_rate", "0.1"], ["--method", "grpo"], ["--seed", "3"], ["--env.doors", "3"]]
)
def test_a_resume_with_changed_settings(changed: list[str], refused: Refusals, run_copy: Path) -> None:
    before = (run_copy / "events.jsonl").read_text()
    message = refused("train", "--resume", str(run_copy), *changed)
    assert "a resume cannot change" in message and "train.steps" in message
    assert (run_copy / "events.jsonl").read_text() == before


def test_a_resume_to_fewer_steps_than_were_made(refused: Refusals, run_copy: Path) -> None:
    before = {name: (run_copy / name).read_text() for name in ("config.toml", "events.jsonl")}
    message = refused("train", "--resume", str(run_copy), "--steps", "1")
    assert f"train.steps is 1, but {run_copy} has made 2 steps already; expected 2 or more" in message
    assert {name: (run_copy / name).read_text() for name in before} == before


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--steps", "many"], "train.steps is 'many'"),
        (["--steps", "true"], "train.steps is true"),
        (["--steps", "3.5"], "train.steps is 3.5"),
        (["--steps"], "train.steps"),
        (["steps"], "unexpected argument 'steps'"),
        (["--config", "x.toml"], "leave --config out"),
        (["--train.stepz", "4"], "train.stepz"),
    ],
)
def test_a_resume_with_wrong_arguments(more: list[str], part: str, refused: Refusals, run_copy: Path) -> None:
    assert part in refused("train", "--resume", str(run_copy), *more)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "keel_optimizer.safetensors", "keel_state.json", "tokenizer.json", "config.json"]
)
@pytest.mark.parametrize("command", ["resume", "eval"])
def test_a_checkpoint_that_is_cut_short(name: str, command: str, refused: Refusals, run_copy: Path) -> None:
    file = last_checkpoint(run_copy) / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    if command == "eval" and name.startswith("keel_"):
        assert keel("eval", str(run_copy)) == 0  # an evaluation reads neither
        return
    longer = ["train", "--resume", str(run_copy), "--steps", "3"]
    message = refused(*(longer if command == "resume" else ["eval", str(run_copy)]))
    assert "step_000002" in message
    shutil.rmtree(last_checkpoint(run_copy))
    assert keel("train", "--resume", str(run_copy)) == 0  # the one before it still works


def test_a_checkpoint_of_another_model(refused: Refusals, run_copy: Path) -> None:
    weights = load_file(last_checkpoint(run_copy) / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"] = weights["model.layers.0.mlp.up_proj.weight"][:8].clone()
    save_file(weights, last_checkpoint(run_copy) / "model.safetensors", {"format": "pt"})
    assert "step_000002" in refused("train", "--resume", str(run_copy), "--steps", "3")


def test_a_folder_that_is_no_checkpoint(refused: Refusals, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is no checkpoint: it has no config.json" in refused("eval", str(tmp_path / "empty"), "sokoban")
    assert "is no checkpoint" in refused(
        "train", "sokoban", "--model", str(tmp_path / "empty"), "--out", str(refused.out)
    )


def test_a_run_that_never_saved_a_checkpoint(refused: Refusals, run_copy: Path) -> None:
    shutil.rmtree(run_copy / "checkpoints")
    assert "has no checkpoint" in refused("train", "--resume", str(run_copy))
    assert "has no checkpoint" in refused("eval", str(run_copy))


def test_an_unknown_split(refused: Refusals, run_copy: Path) -> None:
    assert "split 'test' does not exist here; expected one of train, held_out" in refused(
        "eval", str(run_copy), "--split", "test"
    )


def model_folder(path: Path, template: str | None) -> Path:
    agent = small_agent()
    agent.model.save_pretrained(path)  # type: ignore[operator]
    agent.tokenizer.chat_template = template
    agent.tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("template", "part"),
    [(None, "chat template"), ("{{ messages | length }}", "template"), ("{% for %}", "template")],
)
def test_a_model_without_a_usable_chat_template(
    template: str | None, part: str, refused: Refusals, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "model", template)
    assert part in refused("train", CORRIDOR, "--model", str(folder), "--out", str(refused.out))
    assert not refused.out.exists()
    assert part in refused("eval", str(folder), CORRIDOR)


def test_a_model_of_another_architecture(refused: Refusals, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", None)
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=50)).save_pretrained(folder)
    message = refused("train", CORRIDOR, "--model", str(folder), "--out", str(refused.out))
    assert "'gpt2' is not supported; expected one of qwen3, qwen2, llama" in message


def test_turns_longer_than_the_model_has_positions(refused: Refusals) -> None:
    message = refused.train("--model.tiny.max_positions", "100", "--prompt.max_prompt_tokens", "90")
    assert (
        "max_prompt_tokens 90 and prompt.max_new_tokens 16 are 106 together, but the model has 100 positions" in message
    )
    assert not refused.out.exists()


def test_broken_run_configuration(refused: Refusals, run_copy: Path) -> None:
    (run_copy / "config.toml").write_text("[train]\nsteps = 3\n")
    assert "has no env_name" in refused("eval", str(run_copy))


def test_manifest_without_threads_does_not_stop_a_resume(run_copy: Path) -> None:
    (run_copy / "manifest.json").write_text(json.dumps({}))
    config = run_copy / "config.toml"
    config.write_text(config.read_text().replace("threads = 1", "threads = 0"))
    assert keel("train", "--resume", str(run_copy), "--steps", "3") == 0


def _change_state(run: Path, **changes: object) -> None:
    file = last_checkpoint(run) / "keel_state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"step": "two"}, "has counters ('two', "),
        ({"step": -5}, "expected whole numbers of 0 or more"),
        ({"credit_state": "{"}, "credit_state cannot be read"),
        ({"credit_state": "{}"}, "credit_state cannot be read"),
        ({"credit_state": 3}, "a text as credit_state"),
    ],
)
def test_a_checkpoint_state_edited_by_hand(
    changes: dict[str, object], part: str, refused: Refusals, run_copy: Path
) -> None:
    _change_state(run_copy, **changes)
    assert part in refused("train", "--resume", str(run_copy), "--steps", "3")


def test_events_that_are_no_events_are_dropped_by_a_resume(run_copy: Path) -> None:
    file = run_copy / "events.jsonl"
    file.write_bytes(file.read_bytes() + b'3\n[1]\nnull\n{"step": "x"}\n\xff\xfe\n')
    assert keel("train", "--resume", str(run_copy), "--steps", "3") == 0
    kinds = [json.loads(line)["kind"] for line in file.read_text().splitlines()]
    assert kinds[0] == "start" and kinds[-1] == "end"


def test_a_model_setting_that_is_no_table(refused: Refusals, run_copy: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("model = 3\n")
    assert "is a table of settings, got 3" in refused.train("--config", str(config))
    (run_copy / "config.toml").write_text(f"env_name = '{CORRIDOR}'\nmodel = 3\n")
    assert "is a table of settings, got 3" in refused("train", "--resume", str(run_copy))


def test_a_method_that_fails_when_it_is_called(refused: Refusals, tmp_path: Path) -> None:
    assert "low of sampo is 'x'" in refused.train("--method", "sampo(low='x')")
    file = tmp_path / "mine.py"
    file.write_text("def mine():\n    raise KeyError('k')\n")
    assert "failed: KeyError: 'k'" in refused.train("--method", f"{file}:mine")


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    from keel.run.cli import run

    assert run(["train", "sokobann"], debug=True) == 2
    assert "Traceback" in capsys.readouterr().err
