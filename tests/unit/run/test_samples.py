"""What is kept of a training step for reading."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from keel.credit.adapters.sokoban import SokobanAdapter
from keel.credit.graph import Edge
from keel.credit.progress import Progress, SubGoal
from keel.credit.purify import purify
from keel.credit.pushes import PushGraph
from keel.credit.seed import play
from keel.credit.subgoals import SubGoalGraph
from keel.envs.sokoban import SokobanSettings
from keel.envs.sokoban import load as load_sokoban
from keel.objective.method import Method, resolve
from keel.objective.mismatch import MaskedIs
from keel.report.html import write_report
from keel.report.trajectories import load_samples
from keel.rollout.collect import EnvPool, Rollout, collect
from keel.run.crediting import Credited, bound, credit_step
from keel.run.folder import RunFolder
from keel.run.samples import NUM_GROUPS, graph_labels, masked_turns, movement, next_goal, save_samples
from keel.train.trainer import Trainer
from policies import UPDATE, SmallAgent, hub_logprobs, small_agent
from runs import keel, train_arguments


def rolled_out(expression: str) -> tuple[SmallAgent, Method, Rollout]:
    agent = small_agent(cloned=30)
    method = bound(resolve(expression), agent.environment)
    rollout = collect(
        agent.player, EnvPool(agent.environment), agent.environment, method,
        num_groups=6, group_size=4, step=1, seed=5,
    )  # fmt: skip
    return agent, method, rollout


def credited_with(expression: str) -> tuple[SmallAgent, Method, Rollout, Trainer, Credited]:
    agent, method, rollout = rolled_out(expression)
    trainer = Trainer(agent.model, UPDATE, needs_reference=False)
    scores = trainer.score(rollout.kept, method.needs)
    return agent, method, rollout, trainer, credit_step(method, agent.environment, rollout, scores, None)


def test_labels_are_the_corridors_own_progress() -> None:
    _, method, rollout, _, credited = credited_with("grpo(kl=0)+proas")
    labels = graph_labels(method, credited.index, credited.credit.state)
    turns = [(turn, t.task_id) for g in rollout.kept for t in g.trajectories for turn in t.turns]
    judged = 0
    for label, (turn, task_id) in zip(labels, turns, strict=True):
        doors, passed = turn.state  # type: ignore[misc]
        if label is None:
            continue
        judged += 1
        right = turn.action.valid and turn.next_state[1] == passed + 1  # type: ignore[index]
        repeats = turn.action.valid and passed > 0 and turn.action.text == doors[passed - 1]
        assert label.advances == right, (task_id, turn.action)
        assert label.reasonable == (right or repeats), (task_id, turn.action)
        left = len(doors) - passed
        assert label.subgoal == f"{left} {'step' if left == 1 else 'steps'} to go"
    assert judged > 20


def test_drift_counts_the_turns_that_do_not_advance() -> None:
    _, method, rollout, _, credited = credited_with("grpo(kl=0)+proas")
    labels = graph_labels(method, credited.index, credited.credit.state)
    start = 0
    for group in rollout.kept:
        for trajectory in group.trajectories:
            own = labels[start : start + len(trajectory.turns)]
            start += len(trajectory.turns)
            if any(label is None for label in own):
                continue
            known = [label for label in own if label is not None]
            assert [label.drift for label in known] == [
                sum(not later.advances for later in known[k:]) for k in range(len(known))
            ]


def test_a_method_without_graphs_has_no_labels() -> None:
    _, method, _, _, credited = credited_with("grpo(kl=0)")
    assert graph_labels(method, credited.index, credited.credit.state) == [None] * credited.index.num_turns


def test_ratios_are_those_of_the_hugging_face_model_after_the_update() -> None:
    agent, method, rollout, trainer, credited = credited_with("grpo(kl=0, clip=0.001)")
    scores = trainer.score(rollout.kept, method.needs)
    before = movement(trainer, method, rollout.kept[:2], credited.credit, scores)
    np.testing.assert_allclose(before.ratio_K, 1, atol=1e-5)
    assert not before.clipped_K.any()
    trainer.update(rollout.kept, credited.credit, scores, method, 1)
    after = movement(trainer, method, rollout.kept[:2], credited.credit, scores)
    turns = [turn for g in rollout.kept[:2] for t in g.trajectories for turn in t.turns]
    some_clipped = 0
    for k, turn in enumerate(turns):
        now_N = hub_logprobs(agent.model, turn.prompt_ids, turn.action_ids).detach().numpy()  # type: ignore[arg-type]
        ratio_N = np.exp(now_N.astype(np.float64) - turn.logprobs)
        assert after.ratio_K[k] == pytest.approx(ratio_N.mean(), rel=1e-4)
        credit = credited.credit.advantage_K[k]
        clipped = (ratio_N > 1.001) & (credit > 0) | (ratio_N < 0.999) & (credit < 0)
        near = np.abs(np.abs(ratio_N - 1) - 0.001) < 1e-5
        assert abs(after.clipped_K[k] - clipped.mean()) <= near.mean() + 1e-12
        some_clipped += bool(clipped.any())
    assert some_clipped > 0


def test_the_file_holds_four_groups_and_the_credit_of_their_turns(tmp_path: Path) -> None:
    _, method, rollout, trainer, credited = credited_with("gigpo(kl=0)+proas")
    scores = trainer.score(rollout.kept, method.needs)
    save_samples(RunFolder(tmp_path), 3, rollout.kept, method, credited.credit, scores, trainer)
    samples = load_samples(tmp_path)
    assert samples is not None and samples.step == 3
    assert len(rollout.kept) > NUM_GROUPS == len(samples.groups())
    turns = [turn for trajectory in samples.trajectories for turn in trajectory.turns]
    np.testing.assert_array_equal([t.advantage for t in turns], credited.credit.advantage_K[: len(turns)])
    np.testing.assert_array_equal([t.raw_advantage for t in turns], credited.credit.raw_K[: len(turns)])
    assert all(t.ratio == pytest.approx(1, abs=1e-5) and t.clipped == 0 for t in turns)
    assert {t.masked for t in turns} == {False}
    assert any(t.subgoal == "1 step to go" and t.advances for t in turns)


def test_turns_that_the_loss_does_not_see_are_masked(tmp_path: Path) -> None:
    """Rejected for what the engine sampled them with: of one turn every token, of another all but one."""
    _, method, rollout, trainer, credited = credited_with("grpo(kl=0)")
    method = dataclasses.replace(method, mismatch=MaskedIs(low=0.5, high=5.0))
    scores = trainer.score(rollout.kept, method.needs)
    assert scores.old_N is not None
    off_N = np.where(credited.index.turn_N == 2, np.log(10), 0.0)
    off_N[np.flatnonzero(credited.index.turn_N == 4)[1:]] = np.log(10)
    scores = dataclasses.replace(scores, old_N=scores.old_N + off_N)
    save_samples(RunFolder(tmp_path), 1, rollout.kept, method, credited.credit, scores, trainer)
    samples = load_samples(tmp_path)
    assert samples is not None
    masked = [turn.masked for trajectory in samples.trajectories for turn in trajectory.turns]
    assert [k for k, flag in enumerate(masked) if flag] == [2]
    assert set(masked) == {True, False}


def test_turns_without_a_weight_are_masked() -> None:
    _, method, rollout, trainer, credited = credited_with("grpo(kl=0)")
    scores = trainer.score(rollout.kept, method.needs)
    weight_N = np.where(credited.index.turn_N == 3, 0.0, credited.credit.weight_N)
    credit = dataclasses.replace(credited.credit, weight_N=weight_N)
    masked = masked_turns(method, rollout.kept[:2], credit, scores)
    assert [k for k, flag in enumerate(masked) if flag] == [3]


def test_what_masks_did_inside_the_update_is_not_claimed() -> None:
    _, method, rollout, trainer, credited = credited_with("grpo_sm(kl=0)")
    scores = trainer.score(rollout.kept, method.needs)
    weight_N = np.where(credited.index.turn_N == 3, 0.0, credited.credit.weight_N)
    credit = dataclasses.replace(credited.credit, weight_N=weight_N)
    masked = masked_turns(method, rollout.kept[:2], credit, scores)
    assert [k for k, flag in enumerate(masked) if flag] == [3]
    assert set(masked) == {True, None}


def test_no_turn_at_all_writes_nothing(tmp_path: Path) -> None:
    _, method, rollout, trainer, credited = credited_with("grpo(kl=0)")
    scores = trainer.score(rollout.kept, method.needs)
    save_samples(RunFolder(tmp_path), 1, (), method, credited.credit, scores, trainer)
    assert load_samples(tmp_path) is None


def test_a_run_links_its_credit_page(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert (
        keel(*train_arguments(run, "--steps", "1", "--method", "grpo(kl=0)+proas", "--run.trajectories_every", "1"))
        == 0
    )
    row = json.loads((run / "trajectories" / "step_000001.jsonl").read_text().splitlines()[0])
    assert {"subgoal", "rea", "pa", "drift", "ratio", "clipped", "advantage", "raw_advantage"} <= row["turns"][0].keys()
    page = write_report(run)
    assert "report-credit.html" in page.read_text()
    assert "to go" in (run / "report-credit.html").read_text()


def test_the_next_goal_in_words() -> None:
    goals = (SubGoal("find it", frozenset({"at", "open"})), SubGoal("take it", frozenset({"hold"})))
    edge = Edge(Progress(0), "go", Progress(0, frozenset({"at"})))
    graph = SubGoalGraph(goals, {edge: 1})
    assert next_goal(graph, Progress(0)) == "find it"
    assert next_goal(graph, Progress(0, frozenset({"at"}))) == "find it (1 of 2 met)"
    assert next_goal(graph, Progress(1)) == "take it"
    assert next_goal(graph, Progress(2)) == "take it"


def test_pushes_to_go_in_a_real_level() -> None:
    environment = load_sokoban(SokobanSettings())
    task = environment.sample_task("train", 3)
    episode = play(environment, task, [turn.action for turn in environment.demonstrate(task, 0)])
    assert episode is not None and episode.success
    trace = SokobanAdapter().trace(episode)
    graph = PushGraph().union(purify(trace))[0]
    pushes = [s for s in trace if graph.pushes.distance and _boxes(s.source) != _boxes(s.target)]
    for step in trace:
        left = sum(1 for push in pushes if trace.index(push) >= trace.index(step))
        assert next_goal(graph, step.source) == f"{left} {'push' if left == 1 else 'pushes'} to go"
    assert next_goal(PushGraph(), trace[0].source) == "off every verified path"


def _boxes(room: object) -> list[int]:
    assert isinstance(room, bytes)
    return [i for i, cell in enumerate(room) if cell in b"$*"]
