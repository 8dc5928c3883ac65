"""Off-policy updates per second: ours, and the same update in plain PyTorch, in one run.

    python timings/rl_updates.py [--turns 12] [--rounds 10]

An update is one step of both critics on a batch of 128 rows for an ant (27 observations, 8 actions,
networks of 128-128), its share of sampling, targets and moving targets, and half a step of the
policy, which moves every second update. The two take turns, so that a busy machine slows down both.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits
from torch import nn

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.policies import Policy
from ibcl.rl.twin_delayed import TwinDelayed, TwinDelayedSearch
from ibcl.rl.variational import Objective, Variational

FEATURES, ACTIONS, ROWS = 27, 8, 20_000


class PlainTorch:
    """Twin delayed deterministic policy gradient by modules, autograd and torch.optim."""

    def __init__(self, rows: list[torch.Tensor], settings: TwinDelayed) -> None:
        self.rows, self.settings = rows, settings
        self.actor, self.target_actor = self._actor(), self._actor()
        self.critics = [self._critic() for _ in range(2)]
        self.target_critics = [self._critic() for _ in range(2)]
        parameters = [p for critic in self.critics for p in critic.parameters()]
        self.critic_adam = torch.optim.Adam(parameters, settings.critic_rate, (0.9, 0.99))
        self.actor_adam = torch.optim.Adam(
            self.actor.parameters(), settings.actor_rate, (0.9, 0.99)
        )
        self.count = 0

    @staticmethod
    def _actor() -> nn.Module:
        return nn.Sequential(
            nn.Linear(FEATURES, 128),
            nn.Tanh(),
            nn.Linear(128, 128),
            nn.Tanh(),
            nn.Linear(128, ACTIONS),
            nn.Tanh(),
        )

    @staticmethod
    def _critic() -> nn.Module:
        return nn.Sequential(
            nn.Linear(FEATURES + ACTIONS, 128),
            nn.LayerNorm(128, elementwise_affine=False),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.LayerNorm(128, elementwise_affine=False),
            nn.ReLU(),
            nn.Linear(128, 1),
        )

    def update(self) -> None:
        """Sample a batch, move both critics, every second time the policy and the targets."""
        settings = self.settings
        index = torch.randint(ROWS, (settings.batch,))
        features, actions, rewards, following, discount = (column[index] for column in self.rows)
        with torch.no_grad():
            noise = (settings.target_noise * torch.randn_like(actions)).clamp(-0.4, 0.4)
            taken = (self.target_actor(following) + noise).clamp(-1, 1)
            inputs = torch.cat([following, taken], 1)
            values = torch.minimum(*(critic(inputs) for critic in self.target_critics))
            targets = rewards + discount * values
        inputs = torch.cat([features, actions], 1)
        loss = sum(nn.functional.mse_loss(critic(inputs), targets) for critic in self.critics)
        self.critic_adam.zero_grad()
        loss.backward()
        self.critic_adam.step()
        self.count += 1
        if self.count % settings.delay:
            return
        climbed = self.critics[0](torch.cat([features, self.actor(features)], 1)).mean()
        self.actor_adam.zero_grad()
        (-climbed).backward()
        self.actor_adam.step()
        with torch.no_grad():
            pairs = zip([self.actor, *self.critics], self._targets(), strict=True)
            for network, target in pairs:
                for new, old in zip(network.parameters(), target.parameters(), strict=True):
                    old.lerp_(new, 0.01)

    def _targets(self) -> list[nn.Module]:
        return [self.target_actor, *self.target_critics]


def cpu_seconds(work: object, times: int) -> float:
    """CPU time of calling something several times."""
    assert callable(work)
    started = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - started


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")
    rng = np.random.default_rng(0)
    settings = TwinDelayed(critic_warm_up=0)
    policy = Policy(FEATURES, ACTIONS, hidden=(128, 128), squashed=True)
    search = TwinDelayedSearch(settings, policy, objectives=2, seed=0)
    # Features, actions, two rewards a step, following, discount, terminal, mixing coefficient.
    rows = rng.standard_normal((ROWS, 2 * FEATURES + ACTIONS + 6 + 3)).astype(np.float32)
    rows[:, FEATURES : FEATURES + ACTIONS] = rng.uniform(-1, 1, (ROWS, ACTIONS))
    rows[:, -3], rows[:, -2], rows[:, -1] = 0.9, 0.0, 1.0
    search.replay.add(rows)
    mean = policy.network.initial(rng, last=0.1)
    q = Variational.of(DiagonalGaussian(mean, np.full_like(mean, 0.003)))
    objective = Objective(np.array([0.5, 0.5], np.float32), q.copy(), kl_weight=1e-6)
    search.prepare(q)

    columns = np.split(rows, np.cumsum([FEATURES, ACTIONS, 1, 5, FEATURES, 1]), axis=1)
    plain = PlainTorch([torch.tensor(columns[i]) for i in (0, 1, 2, 4, 5)], settings)

    ours, theirs = [], []
    for _ in range(arguments.turns):
        ours.append(cpu_seconds(lambda: search.learn(q, objective, None, rng), arguments.rounds))
        theirs.append(cpu_seconds(plain.update, arguments.rounds * settings.updates))
    table = Table(title=f"Updates, load average {os.getloadavg()[0]:.1f}, one thread")
    for column in ("update", "ms, best", "ms, median", "updates per CPU-second"):
        table.add_column(column, justify="right")
    count = arguments.rounds * settings.updates
    for name, seconds in (("plain PyTorch", theirs), ("ours", ours)):
        best, median = min(seconds) / count, float(np.median(seconds)) / count
        table.add_row(name, f"{1e3 * best:.2f}", f"{1e3 * median:.2f}", f"{1 / median:,.0f}")
    console = Console()
    console.print(table)
    ratio = np.median(np.array(theirs) / np.array(ours))
    console.print(f"Ratio of ours to plain PyTorch, updates per second: {ratio:.2f}")


if __name__ == "__main__":
    main()
