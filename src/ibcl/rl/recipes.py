"""How each benchmark is learnt, as data: which tasks in which order, and what is combined.

The settings were chosen on seeds from 100 up; results use seeds from 0 up. Where a result led to a
change, as with best-of-n restarts, `docs/results/rl/README.md` says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient
from ibcl.rl.clipped_surrogate import ClippedSurrogate
from ibcl.rl.family import Anchor
from ibcl.rl.joint_surrogate import JointSurrogate
from ibcl.rl.stages import (
    JointStage,
    Recipe,
    Restarts,
    Stage,
    SymmetryTransfer,
    extremes,
    extremes_only,
    learnt,
    seeing_the_preference,
)
from ibcl.rl.twin_delayed import TwinDelayed

_ANY = np.inf
_gait = partial(learnt, score_every=10)

# Columns: task, preference (speed, energy), updates, prior (the task before unless one is named),
# then schedules of the exploration noise and of the learning rate, and what else is special.
#
# Fast first, then ever thriftier, then out to both sides of the efficient gait that was found:
# a gait learnt under dear energy from the start never gets up from standing still.
_HALF_CHEETAH_TASKS = (
    _gait("energy", (0.0, 1.0), 60, None, (0.2, 0.03), (1.0, 0.1)),
    _gait("sprint", (1.0, 0.0), 150, None, (0.4, 0.2)),
    _gait("run", (0.45, 0.55), 350, None, (0.4, 0.2)),
    _gait("cruise", (0.28, 0.72), 400, None, (0.12, 0.05), (1.0, 0.4)),
    # Back to pure speed, held by the trajectory KL to the efficient gait it starts from.
    learnt(
        *("speed", (1.0, 0.0), 200, "cruise", (0.15, 0.05), (1.0, 0.3)),
        trajectory_kl=(0.4, 0.2, 0.0),
    ),
    # Slow gaits: between cruising and standing still, averaged parameters do not walk.
    _gait("jog", (0.13, 0.87), 150, "cruise", (0.1, 0.05), (1.0, 0.5)),
    _gait("walk", (0.1, 0.9), 200, "jog", (0.1, 0.05), (1.0, 0.5)),
    # Slower still the front is nearly a straight line: any preference that does not stand still
    # walks. So these ask for a pace, a speed beyond which nothing more is earned. A walk that
    # fell back into standing still is nothing to begin with, hence the choice of a prior.
    _gait("stroll", (0.2, 0.8), 150, ("walk", "jog"), (0.1, 0.05), (1.0, 0.5), cap=(3.4, _ANY)),
    _gait("amble", (0.17, 0.83), 200, "stroll", (0.1, 0.05), (1.0, 0.3), cap=(2.2, _ANY)),
    # Up again from the thrifty slow gait: thriftier at nearly the same speed than on the way
    # down, and of one kind with the slow gaits, so that averages between them run.
    _gait("canter", (0.27, 0.73), 400, "stroll", (0.08, 0.03), (1.0, 0.1)),
    # Standing still to the last: effort is paid for at once, so a short horizon shows it best.
    learnt(
        *("rest", (0.0, 1.0), 60, "energy", (0.2, 0.1), (0.3, 0.01)),
        estimator=ClippedSurrogate(discount=0.5, trace=0.5),
        std_bounds=(1e-3, 0.02),
    ),
    learnt(*("dash", (1.0, 0.0), 200, "speed", (0.12, 0.03), (1.0, 0.1)), std_bounds=(1e-3, 0.02)),
)
# Last a joint stage of the three gaits, at all mixing coefficients between them and up to the dash,
# so that what their averages do is learnt and not left to chance. The dash is kept, because a unit
# of top speed is worth more than what is saved on the way to it.
_HALF_CHEETAH_TOGETHER = JointStage(
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
                Anchor((0.2, 0.8), cap=(2.0, _ANY)),
                Anchor((0.2, 0.8), cap=(3.4, _ANY)),
                # The most that a step can earn; what is capped rises evenly to there.
                Anchor((0.27, 0.73), cap=(5.0, _ANY)),
                Anchor((1.0, 0.0), cap=(5.0, _ANY), kept=True),
            )
        ),
        action_std=(0.15, 0.03),
        rate=(0.7, 0.03),
        std_bounds=(1e-3, 2e-3),
        score_every=20,
        checkpoint_every=10,
    ),
    priors=("amble", "stroll", "canter", "dash"),
)
_HALF_CHEETAH = Recipe(
    "mo-halfcheetah",
    stages=(*_HALF_CHEETAH_TASKS, _HALF_CHEETAH_TOGETHER),
    combinations={
        "five posteriors": ("rest", "ambling", "strolling", "cantering", "dash"),
        "five posteriors, no joint stage": ("energy", "amble", "stroll", "canter", "speed"),
        "two extremes": ("energy", "speed"),
    },
)

# Off-policy, with replay. β is so small that the prior has no say, and σ is kept narrow, because it
# disturbs a gait as action noise does: a posterior is a point with a small, prescribed spread.
_off_policy = partial(
    BayesianPolicyGradient,
    rate=(1.0, 1.0, 0.1),
    kl_weight=1e-10,
    std_bounds=(2e-4, 1e-3),
    score_every=10,
    checkpoint_every=20,
)

# Learnt off-policy in the very simulation that is scored. One posterior, towards the diagonal from
# many yaws; turned by the environment's rotation it is the posterior of every other direction.
# A short horizon and falls that cost little, because ants that fear to fall are slow.
_ANT_ESTIMATOR = TwinDelayed(fall_value=0.5, target_share=0.15, average_share=0.002)
_ANT_LEARNING = _off_policy(
    iterations=520,
    # On the diagonal rewards are smaller by √2.
    estimator=replace(_ANT_ESTIMATOR, mirrored=True, reward_scale=0.1 * 2**0.5),
    action_std=(0.3, 0.15),
)
_ANT_RESTARTS = Restarts(starts=3, iterations=40)
_ANT = Recipe(
    "mo-ant",
    stages=(
        Stage("diagonal", (0.5, 0.5), _ANT_LEARNING),
        SymmetryTransfer("x-speed", of="diagonal", degrees=-45.0),
        SymmetryTransfer("y-speed", of="diagonal", degrees=45.0),
        SymmetryTransfer("x-mostly", of="diagonal", degrees=-22.5),
        SymmetryTransfer("y-mostly", of="diagonal", degrees=22.5),
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
    restarts=_ANT_RESTARTS,
)

# The trajectory KL to standing still, whose actions are zero, is a price of effort: first none, so
# that running is found at all, then dear, so that it becomes thrifty, and in the end little.
_HALF_CHEETAH_TWO_TASKS = replace(
    _HALF_CHEETAH,
    stages=(
        _HALF_CHEETAH_TASKS[0],
        _gait(
            *("speed", (1.0, 0.0), 1000, None),
            *((0.4, 0.3, 0.2, 0.12, 0.08, 0.05), (1.0, 1.0, 1.0, 0.5, 0.3)),
            trajectory_kl=(0.0, 0.0, 1.2, 1.2, 1.2, 2.0, 2.6, 2.6, 2.6, 1.5, 0.2),
        ),
    ),
    combinations={"two tasks only": ("energy", "speed")},
)
# At the tasks' own prices. The second is learnt at all mixing coefficients between the two, the
# first being kept as it is, and so takes longer.
_ANT_ONE_OF_TWO = replace(_ANT_LEARNING, estimator=_ANT_ESTIMATOR)
_ANT_TWO_TASKS = replace(
    _ANT,
    training_environment="mo-ant-training",
    stages=(
        Stage("x-speed", (1.0, 0.0), _ANT_ONE_OF_TWO),
        JointStage(
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
        JointStage(
            extremes(("speed", "height", "energy")),
            _off_policy(
                iterations=80,
                estimator=TwinDelayed(
                    discount=0.98,
                    target_share=0.15,
                    anchors=tuple(Anchor(weights) for weights in extremes("012").values()),
                ),
                action_std=(0.3, 0.1),
            ),
        ),
    ),
    combinations={"three extremes, joint stage": ("speed", "height", "energy")},
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
        _off_policy(
            iterations=170,
            estimator=TwinDelayed(length=2, least_noise=0.2, actor_rate=3e-4),
            action_std=(0.3, 0.1, 0.05),
            kl_weight=1e-6,
            std_bounds=(1e-3, 5e-3),
        ),
        base=(1.0, 4.7),
    ),
    "mo-ant": seeing_the_preference(
        replace(_ANT, training_environment="mo-ant-training"),
        ("x-speed", "y-speed"),
        replace(
            _ANT_LEARNING,
            # As many as ours with the starts that it gives up.
            iterations=_ANT.iterations + (_ANT_RESTARTS.starts - 1) * _ANT_RESTARTS.iterations,
            estimator=replace(_ANT_ESTIMATOR, mirrored=True),
        ),
    ),
    "mo-hopper-3obj": seeing_the_preference(
        _HOPPER, ("speed", "height", "energy"), _HOPPER.trained[0].inference
    ),
}


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
