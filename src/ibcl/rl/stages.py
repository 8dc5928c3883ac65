"""What a recipe is made of: tasks learnt alone, in a joint stage or by symmetry transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient
from ibcl.rl.conditioned import PreferenceConditioned
from ibcl.rl.family import Anchor
from ibcl.rl.twin_delayed import TwinDelayed


@dataclass(frozen=True)
class Stage:
    """One task: its preference over the objectives, how it is learnt, and from which prior.

    Of several priors the best one for the task is taken.
    """

    task: str
    preference: tuple[float, ...]
    inference: BayesianPolicyGradient
    prior: str | tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks it is about: this one."""
        return (self.task,)

    @property
    def priors(self) -> tuple[str, ...]:
        """The tasks named for a prior; none where it is the one learnt last."""
        if self.prior is None:
            return ()
        return (self.prior,) if isinstance(self.prior, str) else self.prior


@dataclass(frozen=True)
class SymmetryTransfer:
    """A task whose posterior is the image of another's under a symmetry; nothing is trained.

    Turned by ``degrees`` of the environment's rotation, or else its mirror image.
    """

    task: str
    of: str
    degrees: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks it is about: this one."""
        return (self.task,)


@dataclass(frozen=True)
class JointStage:
    """Tasks learnt together at mixing coefficients between them: names, preferences and priors.

    Without priors all begin where the first task of a run begins.
    """

    tasks: dict[str, tuple[float, ...]]
    inference: BayesianPolicyGradient
    priors: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks it is about."""
        return tuple(self.tasks)

    @property
    def kept(self) -> tuple[str, ...]:
        """Those of them that an earlier stage learnt, and that stay as they are."""
        anchors = self.inference.anchors
        known = zip(self.tasks, anchors, strict=False)
        return tuple(name for name, anchor in known if anchor.kept)

    @property
    def task(self) -> str:
        """Its name in files and tables."""
        return "+".join(self.names)


@dataclass(frozen=True)
class Restarts:
    """Best-of-n restarts of the first task: the best after so many iterations goes on.

    Now and then a random start finds a slow gait or none, and more training does not mend it.
    """

    starts: int
    iterations: int

    def __post_init__(self) -> None:
        if self.starts < 1:
            raise ValueError(f"Restarts need at least one start, not {self.starts}.")


@dataclass(frozen=True)
class Recipe:
    """A sequence of tasks on an environment, and the combinations to report.

    ``combinations`` maps the name of a figure to the tasks it combines; the first one is the main
    figure.
    """

    environment: str
    stages: tuple[Stage | JointStage | SymmetryTransfer, ...]
    combinations: dict[str, tuple[str, ...]]
    training_environment: str | None = None
    initial_std: float = 0.02
    copies: int = 16
    hidden: tuple[int, ...] = (64,)
    squashed: bool = False
    reference: tuple[float, ...] = (0.0, 0.0)
    """Hypervolumes are measured from here; one value per objective."""
    restarts: Restarts | None = None

    def __post_init__(self) -> None:
        if self.restarts is not None and not isinstance(self.stages[0], Stage):
            raise ValueError("Restarts are of a single task; the first has to be learnt alone.")

    @property
    def iterations(self) -> int:
        """Iterations of all tasks together."""
        return sum(stage.inference.iterations for stage in self.trained)

    @property
    def trained(self) -> list[Stage | JointStage]:
        """The stages that are learnt."""
        return [stage for stage in self.stages if not isinstance(stage, SymmetryTransfer)]

    def needed(self, tasks: Sequence[str]) -> set[str]:
        """Find the tasks that had to be learnt for a combination, priors of priors included."""
        learnt_by: dict[str, int] = {}
        for index, stage in enumerate(self.stages):
            for name in stage.names:
                # A task that is kept by a later stage belongs to the one that learnt it.
                learnt_by.setdefault(name, index)
        needed: set[str] = set()
        waiting = list(tasks)
        while waiting:
            task = waiting.pop()
            if task in needed:
                continue
            stage = self.stages[learnt_by[task]]
            if isinstance(stage, JointStage):
                needed |= set(stage.names) - set(stage.kept)
                waiting += [*stage.priors, *stage.kept]
                continue
            needed.add(task)
            if isinstance(stage, SymmetryTransfer):
                waiting.append(stage.of)
            elif stage.priors:
                waiting += stage.priors
            elif learnt_by[task]:
                waiting.append(self.stages[learnt_by[task] - 1].names[-1])
        return needed

    def posteriors(self, tasks: Sequence[str]) -> int:
        """Count the posteriors trained for a combination, images left out."""
        if self.sees_the_preference:
            return 1
        return len(self.needed(tasks) & {name for each in self.trained for name in each.names})

    @property
    def sees_the_preference(self) -> bool:
        """Whether it is the baseline: one network for all preferences, no posterior per task."""
        return all(
            isinstance(stage.inference.estimator, PreferenceConditioned) for stage in self.trained
        )


def learnt(
    task: str,
    preference: tuple[float, ...],
    iterations: int,
    prior: str | tuple[str, ...] | None = None,
    action_std: tuple[float, ...] = (0.4, 0.2),
    rate: tuple[float, ...] = (1.0,),
    **further: Any,
) -> Stage:
    """Return a task learnt alone: one row of a recipe, with settings of `BayesianPolicyGradient`.

    Examples
    --------
    >>> learnt("energy", (0.0, 1.0), 60, None, (0.2, 0.03), (1.0, 0.1)).inference.rate
    (1.0, 0.1)
    """
    inference = BayesianPolicyGradient(iterations, action_std=action_std, rate=rate, **further)
    return Stage(task, preference, inference, prior)


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
        stages=(JointStage(tasks, replace(learning, estimator=estimator)),),
        combinations={"network that sees the preference": tuple(tasks)},
        restarts=None,
    )
