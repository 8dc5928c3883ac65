"""What a recipe is made of: tasks learnt alone, together or as images, in order."""

from __future__ import annotations

from dataclasses import dataclass

from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient
from ibcl.rl.conditioned import PreferenceConditioned


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
class Image:
    """A task whose posterior is the image of another's; nothing is trained for it.

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
class Together:
    """Tasks learnt together: their names and preferences, and from which priors, one each.

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
class Trial:
    """Several random starts of the first task, of which the best after so many iterations goes on.

    Now and then a random start finds a slow gait or none, and more training does not mend it.
    """

    starts: int
    iterations: int

    def __post_init__(self) -> None:
        if self.starts < 1:
            raise ValueError(f"A trial needs at least one start, not {self.starts}.")


@dataclass(frozen=True)
class Recipe:
    """A sequence of tasks on an environment, and the combinations to report.

    ``combinations`` maps the name of a figure to the tasks it combines; the first one is the main
    figure.
    """

    environment: str
    stages: tuple[Stage | Together | Image, ...]
    combinations: dict[str, tuple[str, ...]]
    training_environment: str | None = None
    initial_std: float = 0.02
    copies: int = 16
    hidden: tuple[int, ...] = (64,)
    squashed: bool = False
    reference: tuple[float, ...] = (0.0, 0.0)
    """Hypervolumes are measured from here; one value an objective."""
    trial: Trial | None = None

    def __post_init__(self) -> None:
        if self.trial is not None and not isinstance(self.stages[0], Stage):
            raise ValueError("A trial compares starts of a task; the first has to be learnt alone.")

    @property
    def iterations(self) -> int:
        """Iterations of all tasks together."""
        return sum(stage.inference.iterations for stage in self.trained)

    @property
    def trained(self) -> list[Stage | Together]:
        """The stages that are learnt."""
        return [stage for stage in self.stages if not isinstance(stage, Image)]

    @property
    def sees_the_preference(self) -> bool:
        """Whether it is the baseline: one network for all preferences, and no posterior a task."""
        return all(
            isinstance(stage.inference.estimator, PreferenceConditioned) for stage in self.trained
        )
