"""How each benchmark is learnt: which tasks in which order, and which posteriors are combined.

The settings were chosen on seeds from 100 up and are frozen; results use seeds from 0 up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient
from ibcl.rl.policy_gradient import ClippedSurrogate


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


def recipe(environment: str, *, two_tasks: bool = False) -> Recipe:
    """Return the recipe of a benchmark, or a plain one for any other environment.

    With ``two_tasks`` it is the paper's protocol to the letter: the two extreme tasks, the second
    learnt from the first, and nothing else.

    Examples
    --------
    >>> [stage.task for stage in recipe("mo-halfcheetah").stages][:2]
    ['energy', 'sprint']
    """
    known = TWO_TASKS if two_tasks else RECIPES
    return known.get(environment) or extremes_only(environment)


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

# A short horizon, because exploring ants fall: a critic that sees far ahead makes them careful and
# slow. Little parameter noise, because σ disturbs a gait much as action noise does. And no pull
# towards the prior's parameters, which a σ this small would make strong.
_ANT_LEARNING: dict[str, Any] = {
    "estimator": ClippedSurrogate(discount=0.96, value_hidden=(64, 64)),
    "kl_weight": 1e-6,
    "std_bounds": (0.001, 0.003),
    "score_every": 10,
}
# The diagonal first, by policies that are their own mirror image; both extremes are an eighth of a
# turn away, and one is the mirror image of the other.
_ANT = Recipe(
    "mo-ant",
    stages=(
        _stage(
            "diagonal",
            (0.5, 0.5),
            1000,
            (0.3, 0.25, 0.15),
            (1.0, 1.0, 0.7),
            reflected=True,
            **_ANT_LEARNING,
        ),
        _stage("x-speed", (1.0, 0.0), 1250, (0.18, 0.12, 0.07), (1.0, 0.7, 0.3), **_ANT_LEARNING),
        Mirrored("y-speed", (0.0, 1.0), of="x-speed"),
    ),
    combinations={
        "three posteriors": ("y-speed", "diagonal", "x-speed"),
        "two extremes": ("y-speed", "x-speed"),
    },
    training_environment="mo-ant-fast",
    initial_std=0.003,
)

_ANT_TWO_TASKS = replace(
    _ANT,
    stages=(
        _stage("x-speed", (1.0, 0.0), 600, (0.3, 0.2, 0.12), (1.0, 1.0, 0.5), **_ANT_LEARNING),
        _stage("y-speed", (0.0, 1.0), 300, (0.2, 0.1), (1.0, 0.5), **_ANT_LEARNING),
    ),
    combinations={"two tasks only": ("y-speed", "x-speed")},
)

RECIPES: dict[str, Recipe] = {"mo-halfcheetah": _HALF_CHEETAH, "mo-ant": _ANT}
TWO_TASKS: dict[str, Recipe] = {"mo-ant": _ANT_TWO_TASKS}
