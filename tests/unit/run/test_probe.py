"""`keel probe`: continuations by the real policy, engine and prompts, from exact snapshots."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corridor import CorridorSettings
from keel.credit.proas import ProAS
from keel.credit.store import GraphStore
from keel.envs.base import Env, Environment, Record
from keel.errors import DataError, SettingError
from keel.objective.method import resolve
from keel.prompt.context import FullHistory, PastTurn, Window
from keel.rollout.collect import EnvPool, play_tasks
from keel.rollout.episode import play
from keel.run.auditing import audit_run
from keel.run.commands import probe as command
from keel.run.continuing import Job, Remembering, Start, in_one_go, play_on
from keel.run.graphs import run_graphs
from keel.run.probing import ProbeSettings, pooled, probe, shaper_of
from keel.run.session import Agent
from keel.study.probe import Estimate, NoiseResult, Rate, context_noise, replay
from keel.types import Observation, Step, Task, Trajectory
from policies import SmallAgent, small_agent
from runs import keel, train_arguments

LONG = CorridorSettings(doors=3, max_turns=12)


def start_at(agent: SmallAgent, task: Task, actions: list[str], step: int) -> Start:
    return Start(task, replay(agent.environment.make_env(), task, 0, actions)[step - 1])


def played(agent: SmallAgent, starts: list[Start], jobs: list[Job]):  # type: ignore[no-untyped-def]
    return play_on(agent.player, agent.environment.prompt_text("terse"), agent.environment, starts, jobs)


def test_playing_on_from_the_start_is_the_rollout_itself() -> None:
    agent = small_agent(CorridorSettings(doors=3, max_turns=5), cloned=30)
    task = agent.environment.sample_task("train", 1)
    start = start_at(agent, task, ["left"], 1)
    jobs = [Job(start.decision.snapshot, (), None, seed) for seed in range(24)]
    env = agent.environment.make_env()
    ours = played(agent, [start], jobs)
    expected = [_rollout(agent, env, task, seed) for seed in range(24)]
    assert ours.won == tuple(t.success for t in expected)
    assert ours.num_turns == sum(len(t.turns) for t in expected)
    assert 0 < sum(ours.won) < 24 and not ours.errors and ours.forced == 0


def _rollout(agent: SmallAgent, env: object, task: Task, seed: int) -> Trajectory:
    return asyncio.run(play(agent.player, env, task, 0, seed))  # type: ignore[arg-type]


def test_the_state_is_the_snapshots_and_time_goes_on() -> None:
    agent = small_agent(CorridorSettings(doors=2, max_turns=2), cloned=30)
    task = agent.environment.sample_task("train", 1)
    right = str(task.data).split()
    wrong = "left" if right[0] != "left" else "up"
    passed = start_at(agent, task, [right[0], right[1]], 2)
    lost = start_at(agent, task, [wrong, wrong], 2)
    jobs = [Job(s.decision.snapshot, s.decision.history, None, seed) for s in (passed, lost) for seed in range(20)]
    result = played(agent, [passed, lost], jobs)
    assert any(result.won[:20]) and not any(result.won[20:])
    assert result.num_turns == 40


def test_equal_jobs_have_equal_results_whatever_else_is_played() -> None:
    agent = small_agent(LONG, cloned=30)
    task = agent.environment.sample_task("train", 2)
    start = start_at(agent, task, ["left", "up"], 2)
    job = [Job(start.decision.snapshot, start.decision.history, None, seed) for seed in range(12)]
    alone = played(agent, [start], job[:6]).won
    together = played(agent, [start], job).won
    assert together[:6] == alone


class Watched:
    """An environment whose episodes note their first action, in the order in which they were made."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.first: list[str | None] = []

    def make_env(self) -> WatchedEnv:
        self.first.append(None)
        return WatchedEnv(self._environment.make_env(), self.first, len(self.first) - 1)


class WatchedEnv:
    def __init__(self, env: Env, first: list[str | None], number: int) -> None:
        self._env, self._first, self._number = env, first, number
        self.reset, self.snapshot, self.restore = env.reset, env.snapshot, env.restore

    def step(self, action: str) -> Step:
        if self._first[self._number] is None:
            self._first[self._number] = action
        return self._env.step(action)


def test_the_forbidden_action_is_never_the_first_and_nothing_else_changes() -> None:
    agent = small_agent(LONG, cloned=30)
    task = agent.environment.sample_task("train", 1)
    favourite = str(task.data).split()[0]
    start = start_at(agent, task, [favourite], 1)
    first: dict[str | None, list[str | None]] = {}
    for forbidden in (None, f" {favourite.upper()}"):
        watched = Watched(agent.environment)
        jobs = [Job(start.decision.snapshot, (), forbidden, seed) for seed in range(40)]
        play_on(agent.player, agent.environment.prompt_text("terse"), watched, [start], jobs)  # type: ignore[arg-type]
        first[forbidden] = watched.first
    freely, otherwise = first.values()
    assert favourite in freely and favourite not in otherwise
    assert len(set(freely)) > 1
    # Paired by seed: where the policy did something else of its own accord, it does the same again.
    assert all(b == a for a, b in zip(freely, otherwise, strict=True) if a != favourite)


def test_a_policy_that_cannot_do_otherwise_is_made_to_and_counted() -> None:
    greedy = small_agent(LONG, cloned=30)
    greedy.player.sampling = dataclasses.replace(greedy.player.sampling, temperature=0.0)
    task = greedy.environment.sample_task("train", 1)
    start = start_at(greedy, task, ["left"], 1)
    favourite = _first_action(greedy, task)
    result = played(greedy, [start], [Job(start.decision.snapshot, (), favourite, seed) for seed in range(5)])
    assert result.forced == 5 and not result.errors
    assert played(greedy, [start], [Job(start.decision.snapshot, (), "nothing", 0)]).forced == 0


def _first_action(agent: SmallAgent, task: Task) -> str:
    trajectory = play_tasks(agent.player, EnvPool(agent.environment), [task], 0)[0]
    return trajectory.turns[0].action.text


def test_a_snapshot_of_nowhere_is_named() -> None:
    agent = small_agent(LONG)
    with pytest.raises(DataError, match="of no recorded point"):
        played(agent, [], [Job("snapshot", (), None, 0)])


def test_a_window_shows_the_past_it_is_given() -> None:
    agent = small_agent(LONG)
    context = agent.player.context
    assert isinstance(context, Window) and context.num_turns == 1
    now = Observation("door up", None)
    history = [Record("door left", "down"), Record("door left", "left")]
    expected = agent.player.renderer.first("door left left\ndoor up")
    prompt = Remembering(context, history).prompt((), now, 0)
    np.testing.assert_array_equal(prompt, expected)
    since = PastTurn(prompt, prompt, "door up", "right")  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        Remembering(context, history).prompt((since,), now, 1), agent.player.renderer.first("door up right\ndoor up")
    )


def test_a_conversation_starts_with_the_past_as_records_and_grows() -> None:
    agent = small_agent(LONG)
    renderer, text = agent.player.renderer, agent.environment.prompt_text("terse")
    context = FullHistory(renderer, text, 200)
    now = Observation("door up", None)
    history = [Record("door left", "down"), Record("door left", "left")]
    prompt = Remembering(context, history).prompt((), now, 0)
    np.testing.assert_array_equal(prompt, renderer.first("door left down\ndoor left left\ndoor up"))
    ids = renderer.response_ids("<think>go</think><action>up</action>")
    after = Remembering(context, history).prompt(
        (PastTurn(prompt, ids, "door up", "up"),),
        Observation("door down", None),
        1,  # type: ignore[arg-type]
    )
    np.testing.assert_array_equal(after, renderer.extend(prompt, ids, "door down"))  # type: ignore[arg-type]


def test_a_probe_in_one_go_is_the_probe_one_by_one() -> None:
    agent = small_agent(LONG, cloned=30)
    task = agent.environment.sample_task("train", 1)
    start = start_at(agent, task, ["left", "up", "down"], 3)
    noise = [Record("door up", "left"), Record("door up", "left")]
    batches: list[int] = []

    def play_all(jobs):  # type: ignore[no-untyped-def]
        batches.append(len(jobs))
        return played(agent, [start], list(jobs)).won

    def one_by_one(snapshot, history, forbidden, seed):  # type: ignore[no-untyped-def]
        return played(agent, [start], [Job(snapshot, tuple(history), forbidden, seed)]).won[0]

    together = in_one_go(lambda play: context_noise(play, start.decision, noise, trials=10, seed=3), play_all)
    assert together == context_noise(one_by_one, start.decision, noise, trials=10, seed=3)
    assert batches == [20]


def test_pooled_noise_is_the_mean_over_points() -> None:
    zero = Estimate(0.0, 0.0, 0.0)
    results = [
        NoiseResult(Rate(8, 10), Rate(2, 10), Estimate(-0.6, -0.8, -0.4), ()),
        NoiseResult(Rate(5, 10), Rate(5, 10), zero, ()),
    ]
    together = pooled(results, seed=0)
    assert (together.clean, together.noisy) == (Rate(13, 20), Rate(7, 20))
    assert together.difference.value == pytest.approx(-0.3)
    # Resamples of two points: -0.6, -0.3 or 0.
    assert (together.difference.low, together.difference.high) == pytest.approx((-0.6, 0.0))
    assert pooled(results[:1], seed=0).difference == results[0].difference


def agent_of(small: SmallAgent) -> Agent:
    return Agent(
        model=small.model,
        tokenizer=small.tokenizer,
        renderer=small.player.renderer,
        text=small.environment.prompt_text("terse"),
        context=small.player.context,
        engine=small.engine,
        dtype=torch.float32,
        player=small.player,
        eval_player=small.player,
    )


def test_the_probes_of_a_small_policy() -> None:
    small = small_agent(CorridorSettings(doors=3, max_turns=12, mistakes=0.2), cloned=30)
    shaper = shaper_of(resolve("grpo"), small.environment)
    settings = ProbeSettings(tasks=6, siblings=3, trials=10, noise_points=3, failures=2, points=3, seed=1)
    found = probe(agent_of(small), small.environment, shaper, None, settings)
    assert found.successes.trials == 18
    assert found.continuations == 2 * 10 * (len(found.noise) + len(found.suppressed))
    assert len({at.task_id for at in found.noise}) == len(found.noise) > 0
    assert all(len(at.result.noise) == 4 and at.step <= 4 for at in found.noise)
    assert found.pooled is not None and found.pooled.clean.trials == 10 * len(found.noise)
    assert not any("do not show" in note for note in found.notes)
    if found.suppression is not None:
        assert [at.row for at in found.suppressed] == list(found.suppression.rows)
        assert all(at.row.drift >= 1 for at in found.suppressed)
    again = probe(agent_of(small), small.environment, shaper, None, settings)
    assert (again.noise, again.suppressed) == (found.noise, found.suppressed)


def test_a_method_with_graphs_keeps_its_own_switches() -> None:
    small = small_agent(LONG)
    own = shaper_of(resolve("grpo+proas"), small.environment)
    assert own == ProAS(adapter=own.adapter) and own.adapter.environment == "corridor"
    assert shaper_of(resolve("gspo"), small.environment).adapter == own.adapter


@pytest.mark.parametrize(("setting", "value"), [("trials", 0), ("tasks", 0), ("points", 0), ("where", "middle")])
def test_impossible_settings_are_named(setting: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{setting} is"):
        ProbeSettings(**{setting: value})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("probe") / "run"
    more = ["--steps", "2", "--method", "grpo(kl=0)", "--run.trajectories_every", "1", "--env.max_turns", "8"]
    assert keel(*train_arguments(out, *more)) == 0
    return out


def test_the_command_prints_tables_and_writes_page_and_numbers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert keel("probe", str(run), "--trials", "5", "--tasks", "4", "--noise-turns", "2") == 0
    out = capsys.readouterr().out
    assert "| training step | unreasonable in successes | non-advancing in failures |" in out
    numbers = json.loads((run / "probe.json").read_text())
    points = numbers["context_noise"]["points"]
    assert numbers["continuations"] == 10 * (len(points) + len(numbers["suppression"]["rows"])) > 0
    assert [row["step"] for row in numbers["audit"]] == [1, 2]
    page = (run / "probe.html").read_text()
    assert "Audit" in page and ("Context noise" in page or "Action suppression" in page)
    assert numbers["settings"]["trials"] == 5


def test_the_graphs_are_those_of_the_checkpoint_that_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert keel(*train_arguments(out, "--steps", "4", "--method", "grpo(kl=0)+proas")) == 0
    known = {step: run_graphs(out, out / "checkpoints" / f"step_00000{step}").store for step in (2, 4)}
    assert known[2] is not None and known[2] != known[4] == run_graphs(out).store
    model = tmp_path / "model"
    shutil.copytree(out / "checkpoints" / "step_000002", model)
    (model / "keel_state.json").unlink()
    used: list[object] = []

    def noting(agent: Agent, environment: Environment, shaper: ProAS, store: GraphStore | None, *more: Any) -> Any:
        used.append(store)
        return probe(agent, environment, shaper, store, *more)

    monkeypatch.setattr(command, "probe", noting)
    for chosen in ([], ["--checkpoint", str(out / "checkpoints" / "step_000002")], ["--checkpoint", str(model)]):
        assert keel("probe", str(out), "--trials", "1", "--tasks", "2", *chosen) == 0
    assert used == [known[4], known[2], None]


def test_the_audit_is_what_the_corridor_says(run: Path) -> None:
    """Recomputed from the texts alone: an answer is right exactly when it names the door."""
    small = small_agent(CorridorSettings(max_turns=8))
    audited = audit_run(run, small.environment, shaper_of(resolve("grpo"), small.environment), None)
    rows = [json.loads(line) for line in (run / "trajectories" / "step_000001.jsonl").read_text().splitlines()]
    assert audited.left_out == 0 and audited.audited >= len(rows)
    stagnant = turns = 0
    for row in rows:
        if row["success"]:
            continue
        for turn in row["turns"]:
            turns += 1
            stagnant += not (turn["valid"] and turn["observation"] == f"door {turn['action']}")
    share = audited.rows[0].stagnant_in_failure
    assert share is not None and turns > 0
    assert share.value == pytest.approx(stagnant / turns)


def test_trajectories_of_another_environment_are_left_out(run: Path, tmp_path: Path) -> None:
    small = small_agent(CorridorSettings(doors=1, max_turns=8))
    audited = audit_run(run, small.environment, shaper_of(resolve("grpo"), small.environment), None)
    assert audited.rows == () and audited.audited == 0 and audited.left_out > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "takes one run"),
        (["RUN", "more"], "takes one run"),
        (["RUN", "--trials", "many"], "--trials is 'many'"),
        (["RUN", "--where", "middle"], "--where is 'middle'"),
        (["RUN", "--checkpoint", "nowhere"], "does not exist"),
        (["RUN", "--out", "nowhere"], "no folder"),
        (["nowhere"], "no run folder"),
    ],
)
def test_wrong_input_is_named(arguments: list[str], says: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(run) if a == "RUN" else a for a in arguments] or ["--trials", "3"]
    assert keel("probe", *given) == 2
    assert says in capsys.readouterr().err
