"""Policies at work: rendered by MuJoCo, or as stick figures where there is no OpenGL."""

from __future__ import annotations

import os
import sys
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
            position = environment.position[0]
            # Back to the middle of the floor, which is finite.
            position[: environment.definition.hidden_positions] = 0
            positions.append(position)
    return environment.model, positions


def rendered(
    model: mujoco.MjModel, positions: list[NDArray[np.float64]]
) -> list[NDArray[np.uint8]] | None:
    """Pictures of the body at each position, or None where no OpenGL context can be had.

    On a machine without a display the environment variable ``MUJOCO_GL`` chooses the driver
    (``egl`` or ``osmesa``) and must be set before MuJoCo is imported.
    """
    headless = sys.platform == "linux" and not ({"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ))
    if headless and mujoco.GLContext.__module__ == "mujoco.glfw":
        # Without a display GLFW does not raise, it ends the process.
        return None
    try:
        renderer = mujoco.Renderer(model, height=200, width=240)
    # Each driver fails in its own way, down to AttributeError where its library is missing.
    except Exception:
        return None
    data = mujoco.MjData(model)
    camera = mujoco.MjvCamera()
    camera.distance, camera.elevation, camera.azimuth = 2.8, -10.0, 90.0
    pictures = []
    with renderer:
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        for position in positions:
            data.qpos[:] = position
            mujoco.mj_forward(model, data)
            camera.lookat[:] = [data.xpos[1, 0], data.xpos[1, 1], 0.45]
            renderer.update_scene(data, camera)
            pictures.append(renderer.render())
    return pictures


def draw_strip(axes: Any, model: mujoco.MjModel, positions: list[NDArray[np.float64]]) -> bool:
    """Draw the body at each position side by side; returns whether it could be rendered."""
    pictures = rendered(model, positions)
    if pictures is None:
        draw_sticks(axes, model, positions)
    else:
        axes.imshow(np.concatenate(pictures, axis=1))
    axes.set_axis_off()
    return pictures is not None


def draw_sticks(axes: Any, model: mujoco.MjModel, positions: list[NDArray[np.float64]]) -> None:
    """Draw the body from the side, every capsule as a thick line."""
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
