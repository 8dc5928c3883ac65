"""Policies at work, drawn from the side: capsules as lines, so no graphics driver is needed."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from ibcl.rl.locomotion import Locomotion
from ibcl.rl.policies import Floats, Policy

SPACING = 2.2
"""Metres between the pictures of two moments."""


def film(
    name: str, policy: Policy, theta: Floats, first: int = 250, every: int = 2, count: int = 8
) -> tuple[mujoco.MjModel, list[NDArray[np.float64]]]:
    """Positions of one policy at a few moments of an episode."""
    environment = Locomotion(name, copies=1)
    observation = environment.reset()
    moments = set(range(first, first + every * count, every))
    positions = []
    for step in range(max(moments) + 1):
        action = policy.act(theta[None], observation, environment.elapsed)
        observation = environment.step(action).observation
        if step in moments:
            positions.append(environment.position[0])
    return environment.model, positions


def draw_strip(axes: Any, model: mujoco.MjModel, positions: list[NDArray[np.float64]]) -> None:
    """Draw the body at each position side by side, every capsule as a thick line."""
    data = mujoco.MjData(model)
    for column, position in enumerate(positions):
        data.qpos[:] = position
        mujoco.mj_forward(model, data)
        shift = column * SPACING - data.xpos[1, 0]
        for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE):
            half = data.geom_xmat[geom].reshape(3, 3)[:, 2] * model.geom_size[geom, 1]
            ends = np.stack([data.geom_xpos[geom] - half, data.geom_xpos[geom] + half])
            depth = 0.35 + 0.15 * float(ends[:, 1].mean() > 0)
            axes.plot(
                ends[:, 0] + shift, ends[:, 2], lw=3, solid_capstyle="round", color=str(depth)
            )
    axes.axhline(0, color="0.7", lw=0.8)
    axes.set(xlim=(-SPACING / 2, (len(positions) - 0.5) * SPACING), ylim=(-0.1, 1.3))
    axes.set_aspect("equal")
    axes.set_axis_off()
