"""Train CAPQL of morl-baselines in an environment of ours for a given processor time.

morl-baselines is no dependency: install it, with this package, in an environment of its own.

    python -m venv rivals
    rivals/bin/pip install --constraint constraints.txt '.[rl]' morl-baselines
    OMP_NUM_THREADS=1 rivals/bin/python timings/rl_rivals.py mo-halfcheetah --seed 0 --seconds 213
    ibcl rl compare mo-halfcheetah --actor capql-mo-halfcheetah-0-213.pt

CAPQL has its own defaults throughout. Its policy is written as TorchScript from a state and a
preference to the mean action, at the end and at every time of ``--snapshots``, with a line of JSON
that says steps, updates and versions.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from contextlib import suppress
from importlib.metadata import version

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn

from ibcl.rl.environments import make


class OutOfTimeError(Exception):
    pass


class OneCopy(gymnasium.Env):
    """One copy of an environment of ours, with the members that morl-baselines asks for."""

    def __init__(self, name, marks, reached):
        self.problem = make(name, copies=1)
        unlimited = np.full(self.problem.observation_size, np.inf, dtype=np.float32)
        self.observation_space = Box(-unlimited, unlimited)
        one = np.ones(self.problem.action_size, dtype=np.float32)
        self.action_space = Box(-one, one)
        self.reward_dim = len(self.problem.objectives)
        rewards = np.full(self.reward_dim, np.inf, dtype=np.float32)
        self.reward_space = Box(-rewards, rewards)
        self.spec = gymnasium.envs.registration.EnvSpec(name)
        self.steps, self.marks, self.reached = 0, sorted(marks), reached
        self.begin = time.process_time()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.problem.reset()[0].astype(np.float32), {}

    def step(self, action):
        if time.process_time() - self.begin >= self.marks[0]:
            self.reached(self.marks.pop(0), self.steps)
            if not self.marks:
                raise OutOfTimeError
        self.steps += 1
        outcome = self.problem.step(action[None])
        final, reward = outcome.final[0].astype(np.float32), outcome.reward[0].astype(np.float32)
        return final, reward, bool(outcome.terminated[0]), bool(outcome.truncated[0]), {}


class MeanAction(nn.Module):
    """CAPQL's policy from a state and a preference to its mean action."""

    def __init__(self, policy):
        super().__init__()
        self.latent, self.mean = policy.latent_pi, policy.mean
        self.register_buffer("scale", policy.action_scale)
        self.register_buffer("bias", policy.action_bias)

    def forward(self, state: torch.Tensor, preference: torch.Tensor) -> torch.Tensor:
        hidden = self.latent(torch.cat([state, preference], 1))
        return torch.tanh(self.mean(hidden)) * self.scale + self.bias


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, required=True, help="processor time")
    parser.add_argument("--snapshots", type=int, nargs="*", default=[])
    given = parser.parse_args()
    from morl_baselines.multi_policy.capql.capql import CAPQL

    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    random.seed(given.seed)

    def reached(mark, steps):
        name = f"capql-{given.environment}-{given.seed}-{mark}"
        torch.jit.script(MeanAction(agent.policy)).save(f"{name}.pt")
        packages = ("morl-baselines", "torch", "mujoco", "gymnasium")
        facts = {"seed": given.seed, "cpu_seconds": mark, "steps": steps}
        versions = {package: version(package) for package in packages}
        updates = max(0, steps - agent.learning_starts)
        print(json.dumps({**facts, "updates": updates, **versions}), flush=True)

    environment = OneCopy(given.environment, {*given.snapshots, given.seconds}, reached)
    agent = CAPQL(environment, log=False, seed=given.seed, device="cpu")
    reference = np.zeros(environment.reward_dim)
    with suppress(OutOfTimeError):
        agent.train(10**9, eval_env=environment, ref_point=reference)


if __name__ == "__main__":
    main()
