"""Policies at work: rendered by MuJoCo, or as stick figures where there is no OpenGL."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ibcl.rl.locomotion import Locomotion
from ibcl.rl.policies import Floats, Policy

SPACING = 2.2
"""Metres between the pictures of two moments."""


PICTURE = (240, 200)
"""Width and height of a rendered moment, in pixels."""


@dataclass(frozen=True)
class View:
    """Where the camera stands for a whole strip, so that fast and slow look different."""

    look_at: tuple[float, float, float]
    distance: float
    azimuth: float
    elevation: float


VIEWS = {
    "mo-halfcheetah": View((2.4, 0.0, 0.6), 6.5, 90.0, -10.0),
    "mo-ant": View((2.0, 2.0, 0.0), 10.0, 90.0, -70.0),
    "mo-hopper-3obj": View((1.5, 0.0, 0.8), 5.0, 90.0, -10.0),
}


def film(
    name: str, policy: Policy, theta: Floats, first: int = 250, every: int = 3, count: int = 8
) -> tuple[mujoco.MjModel, list[NDArray[np.float64]]]:
    """Positions of one policy at a few moments of an episode, the first of them at the origin."""
    environment = Locomotion(name, copies=1)
    observation = environment.reset()
    moments = set(range(first, first + every * count, every))
    positions: list[NDArray[np.float64]] = []
    origin = np.zeros(0)
    for step in range(max(moments) + 1):
        action = policy.act(theta[None], observation, environment.elapsed)
        outcome = environment.step(action)
        observation = outcome.observation
        if step in moments:
            position = environment.position[0]
            along = [0] if environment.definition.hidden_positions == 1 else [0, 1]
            if not positions:
                origin = position[along].copy()
            # The floor is finite; only the way since the first moment matters.
            position[along] -= origin
            positions.append(position)
    return environment.model, positions


def rendered(
    model: mujoco.MjModel,
    positions: list[NDArray[np.float64]],
    view: View,
    size: tuple[int, int] = PICTURE,
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
        renderer = mujoco.Renderer(model, height=size[1], width=size[0])
    # Each driver fails in its own way, down to AttributeError where its library is missing.
    except Exception:
        return None
    data = mujoco.MjData(model)
    camera = mujoco.MjvCamera()
    camera.distance, camera.elevation, camera.azimuth = view.distance, view.elevation, view.azimuth
    camera.lookat[:] = view.look_at
    pictures = []
    with renderer:
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        for position in positions:
            data.qpos[:] = position
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera)
            pictures.append(renderer.render())
    return pictures


def animate(strips: list[list[NDArray[np.uint8]]], path: Path, milliseconds: int = 50) -> None:
    """Write a GIF of several policies side by side, one picture a moment each.

    Examples
    --------
    >>> import tempfile
    >>> moment = np.zeros((4, 6, 3), dtype=np.uint8)
    >>> file = Path(tempfile.mkdtemp()) / "two.gif"
    >>> animate([[moment, moment + 255], [moment, moment + 128]], file)
    >>> Image.open(file).size
    (12, 4)
    """
    moments = [np.concatenate(pictures, axis=1) for pictures in zip(*strips, strict=True)]
    # One palette for all moments, so that still parts stay still and compress.
    palette = Image.fromarray(np.concatenate(moments[:: max(1, len(moments) // 4)])).quantize(48)
    frames = [
        Image.fromarray(moment).quantize(palette=palette, dither=Image.Dither.NONE)
        for moment in moments
    ]
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=milliseconds, loop=0, optimize=True
    )


def draw_strip(
    axes: Any, model: mujoco.MjModel, positions: list[NDArray[np.float64]], view: View
) -> bool:
    """Draw the body at each position side by side; returns whether it could be rendered."""
    pictures = rendered(model, positions, view)
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
