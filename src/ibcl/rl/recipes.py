"""How each benchmark is learnt: which tasks in which order, and which posteriors are combined.

The settings were chosen on seeds from 100 up and are frozen; results use seeds from 0 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient


@dataclass(frozen=True)
class Stage:
    """One task: its preference over the objectives, how it is learnt, and from which prior."""

    task: str
    preference: tuple[float, ...]
    inference: BayesianPolicyGradient
    prior: str | None = None


@dataclass(frozen=True)
class Mirrored:
    """A task whose posterior is the mirror image of another's; nothing is trained for it."""

    task: str
    preference: tuple[float, ...]
    of: str


@dataclass(frozen=True)
class Recipe:
    """A sequence of tasks on an environment, and the combinations to report.

    ``combinations`` maps the name of a figure to the tasks it combines; the first one is the main
    figure.
    """

    environment: str
    stages: tuple[Stage | Mirrored, ...]
    combinations: dict[str, tuple[str, ...]]
    training_environment: str | None = None
    initial_std: float = 0.02
    copies: int = 16
    hidden: tuple[int, ...] = (64,)
    reference: tuple[float, float] = (0.0, 0.0)
    """Hypervolumes are measured from here."""

    @property
    def updates(self) -> int:
        """Updates of all tasks together."""
        return sum(stage.inference.iterations for stage in self.trained)

    @property
    def trained(self) -> list[Stage]:
        """The stages that are learnt."""
        return [stage for stage in self.stages if isinstance(stage, Stage)]


def recipe(environment: str) -> Recipe:
    """Return the recipe of a benchmark, or a plain one for any other environment.

    Examples
    --------
    >>> [stage.task for stage in recipe("mo-halfcheetah").stages][:2]
    ['energy', 'sprint']
    """
    if environment in RECIPES:
        return RECIPES[environment]
    return extremes_only(environment)


def extremes_only(environment: str) -> Recipe:
    """Return the paper's plan for two objectives: the two extreme tasks and nothing else."""
    learning = BayesianPolicyGradient(iterations=500, rate=(1.0, 0.3))
    return Recipe(
        environment,
        stages=(
            Stage("second", (0.0, 1.0), learning),
            Stage("first", (1.0, 0.0), learning),
        ),
        combinations={"two tasks": ("second", "first")},
    )


def _stage(
    task: str,
    preference: tuple[float, ...],
    iterations: int,
    action_std: tuple[float, ...],
    rate: tuple[float, ...] = (1.0,),
    *,
    prior: str | None = None,
    **settings: Any,
) -> Stage:
    learning = BayesianPolicyGradient(iterations, action_std=action_std, rate=rate, **settings)
    return Stage(task, preference, learning, prior)


# Fast first, then ever thriftier, then out to both sides of the efficient gait that was found:
# a gait learnt under dear energy from the start never gets up from standing still.
_HALF_CHEETAH = Recipe(
    "mo-halfcheetah",
    stages=(
        _stage("energy", (0.0, 1.0), 60, (0.2, 0.03), (1.0, 0.1), score_every=10),
        _stage("sprint", (1.0, 0.0), 150, (0.4, 0.2), score_every=10),
        _stage("run", (0.45, 0.55), 350, (0.4, 0.2), score_every=10),
        _stage("cruise", (0.28, 0.72), 400, (0.12, 0.05), (1.0, 0.4), score_every=10),
        # Back to pure speed, held by the trajectory KL to the efficient gait it starts from.
        _stage(
            "speed",
            (1.0, 0.0),
            200,
            (0.15, 0.05),
            (1.0, 0.3),
            prior="cruise",
            trajectory_kl=(0.4, 0.2, 0.0),
        ),
        # Slow gaits: between cruising and standing still, averaged parameters do not walk.
        _stage("jog", (0.13, 0.87), 150, (0.1, 0.05), (1.0, 0.5), prior="cruise", score_every=10),
        _stage("stroll", (0.1, 0.9), 200, (0.1, 0.05), (1.0, 0.5), prior="jog", score_every=10),
        _stage("amble", (0.08, 0.92), 100, (0.05,), (0.5, 0.3), prior="stroll", score_every=10),
    ),
    combinations={
        "five posteriors": ("energy", "amble", "stroll", "cruise", "speed"),
        "two extremes": ("energy", "speed"),
        "two tasks only": ("energy", "sprint"),
    },
)

# The diagonal first: both extremes are then one eighth of a turn away, and near each other.
_ANT = Recipe(
    "mo-ant",
    stages=(
        Stage(
            "diagonal",
            (0.5, 0.5),
            BayesianPolicyGradient(
                iterations=2400, action_std=(0.3, 0.15), rate=(1.0, 0.5), score_every=40
            ),
        ),
        Stage(
            "x-speed",
            (1.0, 0.0),
            BayesianPolicyGradient(
                iterations=700, action_std=(0.2, 0.1), rate=(1.0, 0.3), score_every=40
            ),
            prior="diagonal",
        ),
        Stage(
            "y-speed",
            (0.0, 1.0),
            BayesianPolicyGradient(
                iterations=700, action_std=(0.2, 0.1), rate=(1.0, 0.3), score_every=40
            ),
            prior="diagonal",
        ),
    ),
    combinations={
        "three posteriors": ("y-speed", "diagonal", "x-speed"),
        "two extremes": ("y-speed", "x-speed"),
    },
    training_environment="mo-ant-fast",
    initial_std=0.01,
)

RECIPES: dict[str, Recipe] = {"mo-halfcheetah": _HALF_CHEETAH, "mo-ant": _ANT}
