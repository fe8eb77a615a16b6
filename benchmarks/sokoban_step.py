"""One training step of the Sokoban job, Keel's way and the plain way, in one run.

The plain way is what a first script does: `model.generate` on prompts that are rendered and tokenised again every turn, padded
to the longest, then an update on padded rows. It plays only unfinished episodes and gets the best of several micro-batch sizes.
Both sides start from the same cloned policy and take the same number of optimizer steps; the plain side's log-probabilities and
loss are computed on Keel's rollouts too, and must equal Keel's.

    python benchmarks/sokoban_step.py --history 2
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keel.envs.base import Record
from keel.models.weights import weights_of
from keel.objective.method import assign_credit, policy_loss, resolve, step_weights
from keel.prompt.context import PastTurn
from keel.rollout.collect import EnvPool, collect
from keel.rollout.episode import derive_seed
from keel.run.console import Console
from keel.run.environments import find_environment
from keel.run.folder import RunFolder
from keel.run.job import clone
from keel.run.presets import default_settings
from keel.run.session import Agent, build_agent, build_trainer
from keel.tokens import TokenTable
from keel.train.scoring import score_rows
from keel.types import Group, Turn, TurnIndex

METHOD = "gigpo(kl=0, entropy=0)"
"""No filter, so that both sides play exactly 16 x 8 episodes."""


class Plain:
    """Generation and update with nothing but transformers."""

    def __init__(self, agent: Agent, max_new_tokens: int) -> None:
        self._agent, self._model, self._max_new_tokens = agent, agent.model, max_new_tokens
        self._pad = int(agent.tokenizer.convert_tokens_to_ids(str(agent.tokenizer.pad_token)))

    def rollout(self, environment: Any, tasks: Sequence[Any], siblings: int) -> list[Turn]:
        """Lock-step turns of all unfinished episodes; every prompt is rendered and tokenised anew."""
        episodes = [(environment.make_env(), task) for task in tasks for _ in range(siblings)]
        observations = [env.reset(task, 0) for env, task in episodes]
        pasts: list[list[PastTurn]] = [[] for _ in episodes]
        active = list(range(len(episodes)))
        turns: list[Turn] = []
        while active:
            prompts = [self._prompt(pasts[i], observations[i]) for i in active]
            actions = self._generate(prompts)
            still: list[int] = []
            for i, prompt, action in zip(active, prompts, actions, strict=True):
                text = self._agent.tokenizer.decode(action, skip_special_tokens=True)
                parsed = self._agent.player.grammar.parse(text, observations[i].admissible, False)
                step = episodes[i][0].step(parsed.text)
                before, after = observations[i].state, step.observation.state
                logprobs = np.zeros(len(action), dtype=np.float32)
                turns.append(Turn(prompt, action, logprobs, parsed, {"env": step.reward}, before, after))
                pasts[i].append(PastTurn(prompt, action, observations[i].text, parsed.text))
                observations[i] = step.observation
                if not (step.terminated or step.truncated):
                    still.append(i)
            active = still
        return turns

    def _prompt(self, past: list[PastTurn], observation: Any) -> np.ndarray:
        history = self._agent.context.num_turns  # type: ignore[attr-defined]
        shown = past[-history:] if history else []
        message = self._agent.text.user_message(observation, [_record(p) for p in shown], len(past))
        ids = self._agent.tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], add_generation_prompt=True, return_dict=False
        )
        return np.array(ids, dtype=np.int32)

    @torch.no_grad()
    def _generate(self, prompts: list[np.ndarray]) -> list[np.ndarray]:
        width = max(len(p) for p in prompts)
        ids = torch.full((len(prompts), width), self._pad)
        mask = torch.zeros_like(ids)
        for r, p in enumerate(prompts):
            ids[r, width - len(p) :] = torch.from_numpy(p.astype(np.int64))
            mask[r, width - len(p) :] = 1
        stop = list(self._agent.renderer.stop_ids)
        out = self._model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            max_new_tokens=self._max_new_tokens, eos_token_id=stop, pad_token_id=self._pad,
        )  # fmt: skip
        return [_until(row, stop) for row in out[:, width:].numpy().astype(np.int32)]

    def logprobs(self, turns: Sequence[Turn]) -> torch.Tensor:
        """[N] of padded rows, as a plain trainer computes them."""
        width = max(len(t.prompt_ids) + len(t.action_ids) for t in turns)
        ids = torch.full((len(turns), width), self._pad)
        mask = torch.zeros_like(ids)
        for r, t in enumerate(turns):
            row = np.concatenate([t.prompt_ids, t.action_ids]).astype(np.int64)
            ids[r, : len(row)] = torch.from_numpy(row)
            mask[r, : len(row)] = 1
        logits = self._model(input_ids=ids, attention_mask=mask).logits.float()
        logprob = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
        pieces = [
            logprob[r, len(t.prompt_ids) - 1 : len(t.prompt_ids) - 1 + len(t.action_ids)] for r, t in enumerate(turns)
        ]
        return torch.cat(pieces)


def _record(past: PastTurn) -> Any:
    return Record(past.observation, past.action)


def _until(row: np.ndarray, stop: list[int]) -> np.ndarray:
    ends = np.flatnonzero(np.isin(row, stop))
    return row[: ends[0] + 1] if len(ends) else row


def _table(groups: Sequence[Group], method: Any, turns: Sequence[Turn]) -> tuple[TurnIndex, TokenTable]:
    index = TurnIndex.of(groups)
    credit = assign_credit(method, index)
    behaviour = np.concatenate([t.logprobs for t in turns]).astype(np.float64)
    weights = step_weights(method, index, credit, np.ones(index.num_turns, dtype=bool))
    table = TokenTable.of(
        index, old_N=behaviour, behaviour_N=behaviour, advantage_N=credit.advantage_N, weight_N=weights
    )
    return index, table


def _compare(agent: Agent, plain: Plain, groups: Sequence[Group], method: Any) -> tuple[float, float]:
    """Largest difference of log-probabilities, and difference of the loss, between the two ways."""
    turns = [turn for g in groups for t in g.trajectories for turn in t.turns]
    _, table = _table(groups, method, turns)
    with torch.no_grad():
        theirs = torch.cat([plain.logprobs(turns[i : i + 256]) for i in range(0, len(turns), 256)])
        ours = score_rows(
            weights_of(agent.model, torch.float32), [t.prompt_ids for t in turns], [t.action_ids for t in turns]
        ).logprob_N
        difference = policy_loss(method, table, theirs).loss - policy_loss(method, table, ours).loss
    return float((theirs - ours).abs().max()), abs(float(difference))


def _plain_update(plain: Plain, groups: Sequence[Group], method: Any, optimizer: Any, rows: int, steps: int) -> float:
    """Seconds of `steps` optimizer steps over padded micro-batches of `rows` turns."""
    turns = [turn for g in groups for t in g.trajectories for turn in t.turns]
    index, table = _table(groups, method, turns)
    start = time.perf_counter()
    for part in np.array_split(np.arange(index.num_turns), steps):
        optimizer.zero_grad()
        for low in range(0, len(part), rows):
            chosen = part[low : low + rows]
            result = policy_loss(method, table.select_turns(chosen), plain.logprobs([turns[k] for k in chosen]))
            result.loss.backward()
        torch.nn.utils.clip_grad_norm_(plain._model.parameters(), 1.0)
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=2, help="past turns in the prompt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    environment_type = find_environment("sokoban")
    settings = default_settings(environment_type, None)
    settings = dataclasses.replace(
        settings,
        prompt=dataclasses.replace(settings.prompt, history=options.history),
        clone=dataclasses.replace(settings.clone, target_success=0.3, max_updates=400),
    )
    environment = environment_type.load(settings.env)
    method = resolve(METHOD)
    agent = build_agent(settings, environment)
    pool = EnvPool(environment)
    with tempfile.TemporaryDirectory() as folder:
        clone(settings, agent, environment, pool, RunFolder(Path(folder)), Console(0))
    saved = {k: v.clone() for k, v in agent.model.state_dict().items()}
    trainer = build_trainer(settings, agent, method)
    plain = Plain(agent, settings.prompt.max_new_tokens)
    ours, theirs = [], []
    for number in range(options.repeat):
        agent.model.load_state_dict(saved)
        agent.engine.load(trainer.weights(), number)
        start = time.perf_counter()
        rollout = collect(
            agent.player, pool, environment, method,
            num_groups=settings.rollout.groups, group_size=settings.rollout.group_size, step=number, seed=7,
        )  # fmt: skip
        middle = time.perf_counter()
        if number == 0:
            gap, loss_gap = _compare(agent, plain, rollout.kept, method)
            middle_again = time.perf_counter()
            start += middle_again - middle
            middle = middle_again
        scores = trainer.score(rollout.kept, method.needs)
        credit = assign_credit(method, TurnIndex.of(rollout.kept), scores)
        trainer.update(rollout.kept, credit, scores, method, number)
        agent.engine.load(trainer.weights(), number)
        ours.append((rollout.num_turns, middle - start, time.perf_counter() - middle))
        agent.model.load_state_dict(saved)
        tasks = [
            environment.sample_task("train", derive_seed(7, "task", number, 0, g))
            for g in range(settings.rollout.groups)
        ]
        start = time.perf_counter()
        played = plain.rollout(environment, tasks, settings.rollout.group_size)
        rollout_s = time.perf_counter() - start
        optimizer = torch.optim.AdamW(agent.model.parameters(), lr=1e-6)
        update_s = min(
            _plain_update(plain, rollout.kept, method, optimizer, rows, settings.train.minibatches)
            for rows in (64, 256)
        )
        theirs.append((len(played), rollout_s, update_s * len(played) / rollout.num_turns))
    best = min(ours, key=lambda r: (r[1] + r[2]) / r[0])
    worst = min(theirs, key=lambda r: (r[1] + r[2]) / r[0])
    print(f"log-probabilities equal to {gap:.1e}, loss to {loss_gap:.1e}")
    print(
        f"window of {options.history} turns, {options.threads} thread(s), best of {options.repeat}; microseconds a turn"
    )
    for name, (turns, roll, update) in (("plain", worst), ("keel", best)):
        print(
            f"{name:<6} rollout {1e6 * roll / turns:7.0f}  update {1e6 * update / turns:7.0f}  "
            f"whole step {turns / (roll + update):7.0f} turns/s ({turns} turns)"
        )
    ratio = ((worst[1] + worst[2]) / worst[0]) / ((best[1] + best[2]) / best[0])
    print(f"keel is {ratio:.1f}x as fast")


if __name__ == "__main__":
    main()
