"""How each benchmark is learnt: which tasks in which order, and which posteriors are combined.

The settings were chosen on seeds from 100 up; results use seeds from 0 up. Where a result led to a
change, as with the trial of several starts, `docs/results/rl/README.md` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient
from ibcl.rl.conditioned import PreferenceConditioned
from ibcl.rl.family import Anchor
from ibcl.rl.joint_surrogate import JointSurrogate
from ibcl.rl.policy_gradient import ClippedSurrogate
from ibcl.rl.stages import Image, Recipe, Stage, Together, Trial
from ibcl.rl.twin_delayed import TwinDelayed


def recipe(environment: str, *, two_tasks: bool = False, conditioned: bool = False) -> Recipe:
    """Return the recipe of a benchmark, or a plain one for any other environment.

    With ``two_tasks`` it is the paper's protocol to the letter: the two extreme tasks, the second
    learnt from the first, and nothing else. With ``conditioned`` it is the baseline: one network
    that sees the preference.

    Examples
    --------
    >>> [stage.task for stage in recipe("mo-halfcheetah").stages][:2]
    ['energy', 'sprint']
    """
    known = CONDITIONED if conditioned else TWO_TASKS if two_tasks else RECIPES
    if environment in known:
        return known[environment]
    if conditioned:
        raise ValueError(
            f"There is no baseline for {environment!r}, only for {', '.join(CONDITIONED)}."
        )
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


def extremes(objectives: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return the task of every objective alone.

    Examples
    --------
    >>> extremes(["speed", "energy"])
    {'speed': (1.0, 0.0), 'energy': (0.0, 1.0)}
    """
    count = len(objectives)
    return {
        name: tuple(float(other == index) for other in range(count))
        for index, name in enumerate(objectives)
    }


def seeing_the_preference(
    plan: Recipe,
    objectives: Sequence[str],
    learning: BayesianPolicyGradient,
    base: tuple[float, ...] | None = None,
) -> Recipe:
    """Return the baseline on a plan's environment: one network that sees the preference.

    It has the plan's policy and the critics, exploration and updates of ``learning``.
    """
    tasks = extremes(objectives)
    assert isinstance(learning.estimator, TwinDelayed)
    settings = {each.name: getattr(learning.estimator, each.name) for each in fields(TwinDelayed)}
    anchors = tuple(Anchor(weights, base=base) for weights in tasks.values())
    estimator = PreferenceConditioned(**settings | {"anchors": anchors})
    return replace(
        plan,
        stages=(Together(tasks, replace(learning, estimator=estimator)),),
        combinations={"network that sees the preference": tuple(tasks)},
        trial=None,
    )


def _stage(
    task: str,
    preference: tuple[float, ...],
    iterations: int,
    action_std: tuple[float, ...],
    rate: tuple[float, ...] = (1.0,),
    *,
    prior: str | tuple[str, ...] | None = None,
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
        _stage("walk", (0.1, 0.9), 200, (0.1, 0.05), (1.0, 0.5), prior="jog", score_every=10),
        # Slower still the front is nearly a straight line: any preference that does not stand still
        # walks. So these ask for a pace, a speed beyond which nothing more is earned.
        _stage(
            "stroll",
            (0.2, 0.8),
            150,
            (0.1, 0.05),
            (1.0, 0.5),
            # A walk that fell back into standing still is no place to begin.
            prior=("walk", "jog"),
            score_every=10,
            cap=(3.4, np.inf),
        ),
        _stage(
            "amble",
            (0.17, 0.83),
            200,
            (0.1, 0.05),
            (1.0, 0.3),
            prior="stroll",
            score_every=10,
            cap=(2.2, np.inf),
        ),
        # Up again from the thrifty slow gait: thriftier at nearly the same speed than on the way
        # down, and of one kind with the slow gaits, so that averages between them run.
        _stage(
            "canter", (0.27, 0.73), 400, (0.08, 0.03), (1.0, 0.1), prior="stroll", score_every=10
        ),
        # Standing still to the last: effort is paid for at once, so a short horizon shows it best.
        _stage(
            "rest",
            (0.0, 1.0),
            60,
            (0.2, 0.1),
            (0.3, 0.01),
            prior="energy",
            estimator=ClippedSurrogate(discount=0.5, trace=0.5),
            std_bounds=(1e-3, 0.02),
        ),
        _stage(
            "dash",
            (1.0, 0.0),
            200,
            (0.12, 0.03),
            (1.0, 0.1),
            prior="speed",
            std_bounds=(1e-3, 0.02),
        ),
        # Last the three gaits together, at all places between them and up to the dash, so that what
        # their averages do is learnt and not left to chance. The dash is kept, because a unit of
        # top speed is worth more than what is saved on the way to it.
        Together(
            {
                "ambling": (0.1, 0.9),
                "strolling": (0.2, 0.8),
                "cantering": (0.3, 0.7),
                "dash": (1.0, 0.0),
            },
            BayesianPolicyGradient(
                iterations=1500,
                estimator=JointSurrogate(
                    anchors=(
                        Anchor((0.2, 0.8), cap=(2.0, np.inf)),
                        Anchor((0.2, 0.8), cap=(3.4, np.inf)),
                        # The most that a step can earn; what is capped rises evenly to there.
                        Anchor((0.27, 0.73), cap=(5.0, np.inf)),
                        Anchor((1.0, 0.0), cap=(5.0, np.inf), kept=True),
                    )
                ),
                action_std=(0.15, 0.03),
                rate=(0.7, 0.03),
                std_bounds=(1e-3, 2e-3),
                score_every=20,
                checkpoint_every=10,
            ),
            priors=("amble", "stroll", "canter", "dash"),
        ),
    ),
    combinations={
        "five posteriors": ("rest", "ambling", "strolling", "cantering", "dash"),
        "five posteriors learnt apart": ("energy", "amble", "stroll", "canter", "speed"),
        "two extremes": ("energy", "speed"),
    },
)

# Learnt off-policy in the very simulation that is scored. One posterior, towards the diagonal from
# many yaws; turned by the environment's rotation it is the posterior of every other direction.
# A short horizon and falls that cost little, because ants that fear to fall are slow, and a narrow
# q, because σ disturbs a gait as action noise does.
_ANT_ESTIMATOR = TwinDelayed(fall_value=0.5, target_share=0.15, average_share=0.002)
_ANT_LEARNING = BayesianPolicyGradient(
    iterations=520,
    # On the diagonal rewards are smaller by √2.
    estimator=replace(_ANT_ESTIMATOR, mirrored=True, reward_scale=0.1 * 2**0.5),
    action_std=(0.3, 0.15),
    rate=(1.0, 1.0, 0.1),
    kl_weight=1e-10,
    std_bounds=(2e-4, 1e-3),
    score_every=10,
    checkpoint_every=20,
)
_ANT_TRIAL = Trial(starts=3, iterations=40)
_ANT = Recipe(
    "mo-ant",
    stages=(
        Stage("diagonal", (0.5, 0.5), _ANT_LEARNING),
        Image("x-speed", of="diagonal", degrees=-45.0),
        Image("y-speed", of="diagonal", degrees=45.0),
        Image("x-mostly", of="diagonal", degrees=-22.5),
        Image("y-mostly", of="diagonal", degrees=22.5),
    ),
    combinations={
        "five posteriors": ("y-speed", "y-mostly", "diagonal", "x-mostly", "x-speed"),
        "three posteriors": ("y-speed", "diagonal", "x-speed"),
    },
    training_environment="mo-ant-all-directions",
    initial_std=2e-4,
    copies=32,
    hidden=(128, 128),
    squashed=True,
    trial=_ANT_TRIAL,
)

# The trajectory KL to standing still, whose actions are zero, is a price of effort: first none, so
# that running is found at all, then dear, so that it becomes thrifty, and in the end little.
_HALF_CHEETAH_TWO_TASKS = replace(
    _HALF_CHEETAH,
    stages=(
        _HALF_CHEETAH.stages[0],
        _stage(
            "speed",
            (1.0, 0.0),
            1000,
            (0.4, 0.3, 0.2, 0.12, 0.08, 0.05),
            (1.0, 1.0, 1.0, 0.5, 0.3),
            score_every=10,
            trajectory_kl=(0.0, 0.0, 1.2, 1.2, 1.2, 2.0, 2.6, 2.6, 2.6, 1.5, 0.2),
        ),
    ),
    combinations={"two tasks only": ("energy", "speed")},
)
# At the tasks' own prices. The second is learnt at all places between the two, the first being kept
# as it is, and so takes longer.
_ANT_ONE_OF_TWO = replace(_ANT_LEARNING, estimator=_ANT_ESTIMATOR)
_ANT_TWO_TASKS = replace(
    _ANT,
    training_environment="mo-ant-training",
    stages=(
        Stage("x-speed", (1.0, 0.0), _ANT_ONE_OF_TWO),
        Together(
            extremes(("x-speed", "y-speed")),
            replace(
                _ANT_ONE_OF_TWO,
                iterations=600,
                estimator=replace(
                    _ANT_ESTIMATOR,
                    anchors=(Anchor((1.0, 0.0), kept=True), Anchor((0.0, 1.0))),
                    mirrored=True,
                ),
            ),
        ),
    ),
    combinations={"two tasks only": ("y-speed", "x-speed")},
)

# Three objectives: the extremes, learnt together from nothing.
_HOPPER = Recipe(
    "mo-hopper-3obj",
    stages=(
        Together(
            extremes(("speed", "height", "energy")),
            BayesianPolicyGradient(
                iterations=80,
                estimator=TwinDelayed(
                    discount=0.98,
                    target_share=0.15,
                    anchors=tuple(Anchor(weights) for weights in extremes("012").values()),
                ),
                action_std=(0.3, 0.1),
                rate=(1.0, 1.0, 0.1),
                kl_weight=1e-10,
                std_bounds=(2e-4, 1e-3),
                score_every=10,
                checkpoint_every=20,
            ),
        ),
    ),
    combinations={"three extremes, together": ("speed", "height", "energy")},
    initial_std=2e-4,
    copies=32,
    hidden=(64, 64),
    squashed=True,
    # Where MORL-Baselines measures this problem from.
    reference=(-100.0, -100.0, -100.0),
)

RECIPES: dict[str, Recipe] = {
    "mo-halfcheetah": _HALF_CHEETAH,
    "mo-ant": _ANT,
    "mo-hopper-3obj": _HOPPER,
}
TWO_TASKS: dict[str, Recipe] = {
    "mo-halfcheetah": _HALF_CHEETAH_TWO_TASKS,
    "mo-ant": _ANT_TWO_TASKS,
}
CONDITIONED: dict[str, Recipe] = {
    # Standing still earns (1, 5) a step; the rest of the base keeps falls from being attractive.
    "mo-halfcheetah": seeing_the_preference(
        _HALF_CHEETAH,
        ("speed", "energy"),
        # As much processor time as our ten posteriors learnt one after the other take.
        BayesianPolicyGradient(
            iterations=170,
            estimator=TwinDelayed(length=2, least_noise=0.2, actor_rate=3e-4),
            action_std=(0.3, 0.1, 0.05),
            rate=(1.0, 1.0, 0.1),
            kl_weight=1e-6,
            std_bounds=(1e-3, 5e-3),
            score_every=10,
            checkpoint_every=20,
        ),
        base=(1.0, 4.7),
    ),
    "mo-ant": seeing_the_preference(
        replace(_ANT, training_environment="mo-ant-training"),
        ("x-speed", "y-speed"),
        replace(
            _ANT_LEARNING,
            # As many as ours with the starts that it gives up.
            iterations=_ANT.iterations + (_ANT_TRIAL.starts - 1) * _ANT_TRIAL.iterations,
            estimator=replace(_ANT_ESTIMATOR, mirrored=True),
        ),
    ),
    "mo-hopper-3obj": seeing_the_preference(
        _HOPPER, ("speed", "height", "energy"), _HOPPER.trained[0].inference
    ),
}
