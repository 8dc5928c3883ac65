"""Score policies of others in our environments by our protocol, beside what they printed.

One episode for each of many evenly spread preferences, acting by the mean action; hypervolume and
expected utility of the returns. It is the protocol of our own results (see `ibcl.rl.seeds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ibcl.intervals import interval
from ibcl.rl.environments import make
from ibcl.rl.expected_utility import even_preferences, expected_utility
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.hypervolume_tables import hypervolume_unit
from ibcl.rl.published import PUBLISHED
from ibcl.rl.released import Actor, read_actor, read_returns
from ibcl.rl.rollout import Scores, play

PLAYED = "scored here"
READ = "their returns"


@dataclass(frozen=True)
class Compared:
    """A front of somebody else's policies, and how it was come by: played here, or only read."""

    method: str
    file: str
    returns: NDArray[np.float64]
    source: str
    fell: int | None = None


def score_actor(environment: str, actor: Actor, preferences: int = 200) -> Scores:
    """Play one episode per preference with an actor; rows are in the order of `even_preferences`.

    Examples
    --------
    >>> import numpy as np
    >>> still = lambda observations, preferences: np.zeros((len(observations), 6))
    >>> score_actor("mo-halfcheetah", still, preferences=2).returns.round().tolist()
    [[500.0, 2500.0], [500.0, 2500.0]]
    """
    objectives = make(environment, copies=1).objectives
    weights = even_preferences(preferences, len(objectives))
    problem = make(environment, copies=len(weights))
    try:
        observations = problem.reset()
        try:
            shape = actor(observations, weights).shape
        except RuntimeError as error:
            said = str(error).strip().splitlines()[-1].rstrip(".")
            raise ValueError(
                f"The policy does not take {problem.observation_size} observations and "
                f"{len(objectives)} weights of a preference, as {environment} has them ({said})."
            ) from error
        if shape != (len(weights), problem.action_size):
            raise ValueError(
                f"The policy gives actions of shape {shape[1:]}, but {environment} takes "
                f"{problem.action_size} values."
            )
        return play(problem, lambda observation: _finite(actor(observation, weights)))
    finally:
        problem.close()


def _finite(actions: NDArray[np.float64]) -> NDArray[np.float64]:
    if not np.isfinite(actions).all():
        raise ValueError(
            "The policy gives actions that are not finite; its weights are damaged, or they were "
            "learnt for observations of another kind."
        )
    return actions


def compare(
    environment: str, files: Sequence[str | Path], preferences: int = 200
) -> list[Compared]:
    """Score released policies; of a ``.txt`` file with returns, take these as they are."""
    found = []
    for file in map(Path, files):
        if file.suffix == ".txt":
            returns = read_returns(file)
            objectives = len(make(environment, copies=1).objectives)
            if returns.shape[1] != objectives:
                raise ValueError(
                    f"{file} has {returns.shape[1]} returns a row, but {environment} has "
                    f"{objectives} objectives."
                )
            found.append(Compared("released returns", str(file), returns, READ))
            continue
        method, actor = read_actor(file)
        scores = score_actor(environment, actor, preferences)
        fell = int(scores.fell.sum())
        found.append(Compared(method, str(file), scores.returns, PLAYED, fell))
    return found


def comparison_table(
    environment: str, compared: Sequence[Compared], reference: tuple[float, ...]
) -> str:
    """Markdown: what was scored, means of several files of one method, and what was printed."""
    unit, power = hypervolume_unit(len(reference))
    lines = [
        f"| method | hypervolume × {power} | expected utility | fell | source |",
        "|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[Compared]] = {}
    for each in compared:
        groups.setdefault((each.method, each.source), []).append(each)
    for (method, source), rows in groups.items():
        volumes = [hypervolume(row.returns, reference) for row in rows]
        utilities = [expected_utility(row.returns) for row in rows]
        for row, volume, utility in zip(rows, volumes, utilities, strict=True):
            fell = "" if row.fell is None else f"{row.fell} of {len(row.returns)}"
            lines.append(
                f"| {method}, {row.file} | {volume / unit:.3f} | {utility:.0f} | {fell} "
                f"| {source} |"
            )
        if len(rows) > 1:
            lines.append(
                f"| **{method}, mean of {len(rows)}, 95 % interval** "
                f"| {interval(volumes).times(unit)} | {interval(utilities).times(1, 0)} | "
                f"| {source} |"
            )
    for method, figure in PUBLISHED.get(environment, {}).items():
        lines.append(f"| {method} | {figure.hypervolume / unit:.2f} | | | as printed |")
    lines += ["", f"Reference point {reference}; MuJoCo {version('mujoco')}."]
    return "\n".join(lines) + "\n"
