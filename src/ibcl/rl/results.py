"""What a seed of a recipe found and cost, kept as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ibcl.files import write_atomically
from ibcl.rl.expected_utility import expected_utility


@dataclass(frozen=True)
class Spent:
    """What some training cost."""

    updates: int
    steps: int
    cpu_seconds: float


@dataclass(frozen=True)
class TaskResult:
    """One learnt task: what its mean policy returns and what it cost."""

    task: str
    preference: list[float]
    returns: list[float]
    updates: int
    steps: int
    cpu_seconds: float
    curve: list[list[float]]


@dataclass(frozen=True)
class SeedResult:
    """One seed: the hypervolume and the returns of every combination of posteriors."""

    seed: int
    tasks: list[TaskResult]
    hypervolumes: dict[str, float]
    fronts: dict[str, list[list[float]]]
    fallen: dict[str, int]
    """How many of the generated policies fell in their episode."""
    generation_steps: int
    given_up: list[Spent] = field(default_factory=list)
    """Restarts that were not the best; their cost is part of the seed's."""

    def cost(self, tasks: set[str] | None = None) -> Spent:
        """Sum up what all tasks cost, or these, with the starts given up before them.

        Steps include the scoring of mean policies.
        """
        chosen = [task for task in self.tasks if tasks is None or task.task in tasks]
        parts: list[TaskResult | Spent] = [*chosen, *self.given_up]
        return Spent(
            sum(part.updates for part in parts),
            sum(part.steps for part in parts),
            sum(part.cpu_seconds for part in parts),
        )

    def learnt_together(self) -> list[list[int]]:
        """Places of the tasks that have a curve, those learnt together side by side.

        What such tasks cost is counted with the first of them.
        """
        groups: list[list[int]] = []
        for place, task in enumerate(self.tasks):
            if task.curve and (task.steps or not groups):
                groups.append([])
            if task.curve:
                groups[-1].append(place)
        return groups

    @property
    def expected_utilities(self) -> dict[str, float]:
        """Expected utility of every combination, from the returns that are kept."""
        return {name: expected_utility(front) for name, front in self.fronts.items()}

    def save(self, path: Path) -> None:
        """Write as JSON, what follows from the returns included."""
        stored = asdict(self) | {"expected_utilities": self.expected_utilities}
        write_atomically(path, json.dumps(stored).encode())

    @classmethod
    def load(cls, path: Path) -> SeedResult:
        """Read what `save` wrote."""
        stored = json.loads(path.read_text())
        stored.pop("expected_utilities", None)
        stored["tasks"] = [TaskResult(**task) for task in stored["tasks"]]
        stored["given_up"] = [Spent(**spent) for spent in stored.get("given_up", [])]
        return cls(**stored)
