"""Policies at work, rendered by MuJoCo where there is OpenGL."""

from __future__ import annotations

import copy
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ibcl.rl.locomotion import Locomotion
from ibcl.rl.policies import Floats, Policy

LEAST_CHANGE = 12
"""A pixel shows the body where it differs by so much from the empty scene, of 255."""
SECONDS_A_FRAME = 0.05
"""Between two moments of an animation, in the simulation and on the screen."""
OUT_OF_SIGHT = 1000.0
"""Metres by which the body is moved to see the empty scene."""


@dataclass(frozen=True)
class View:
    """Where the camera stands for a whole film, so that fast and slow look different.

    A narrow field, in degrees from top to bottom, seen from afar, distorts little.
    """

    look_at: tuple[float, float, float]
    distance: float
    azimuth: float
    elevation: float
    field: float
    size: tuple[int, int]
    """Width and height of a picture, in pixels."""

    @property
    def is_wide(self) -> bool:
        """Whether pictures of several policies belong one below the other."""
        return self.size[0] > 2 * self.size[1]


VIEWS = {
    "mo-halfcheetah": View((4.0, 0.0, 0.45), 12.5, 90.0, -6.0, 8.5, (960, 150)),
    "mo-ant": View((3.8, 3.8, 0.0), 32.0, 90.0, -89.0, 22.0, (200, 200)),
    "mo-hopper-3obj": View((2.6, 0.0, 0.9), 11.0, 90.0, -6.0, 12.0, (720, 220)),
}


def film(
    name: str,
    policy: Policy,
    theta: Floats,
    first: int = 250,
    seconds: float = 0.25,
    count: int = 8,
) -> tuple[mujoco.MjModel, list[NDArray[np.float64]]]:
    """Positions of one policy at a few moments of an episode, the first of them at the origin.

    ``first`` is the step of the first moment, ``seconds`` what lies between two of them.
    """
    environment = Locomotion(name, copies=1)
    observation = environment.reset()
    every = max(1, round(seconds / environment.dt))
    moments = set(range(first, first + every * count, every))
    positions: list[NDArray[np.float64]] = []
    origin = np.zeros(0)
    for step in range(max(moments) + 1):
        action = policy.act(theta[None], observation)
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
    return _quietened(environment.model), positions


def _quietened(shared: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy of a model whose floor and sky are pale, so that the body stands out."""
    model = copy.copy(shared)
    for texture in range(model.ntex):
        if model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_CUBE:
            continue
        start = model.tex_adr[texture]
        shape = (model.tex_height[texture], model.tex_width[texture], model.tex_nchannel[texture])
        pixels = slice(start, start + int(np.prod(shape)))
        model.tex_data[pixels] = 215 + model.tex_data[pixels] // 8
    return model


def rendered(
    model: mujoco.MjModel, positions: list[NDArray[np.float64]], view: View
) -> list[NDArray[np.uint8]] | None:
    """Pictures of the empty scene and of the body at each position.

    None where no OpenGL context can be had. On a machine without a display the environment variable
    ``MUJOCO_GL`` chooses the driver (``egl`` or ``osmesa``) and must be set before MuJoCo is
    imported.
    """
    headless = sys.platform == "linux" and not ({"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ))
    if headless and mujoco.GLContext.__module__ == "mujoco.glfw":
        # Without a display GLFW does not raise, it ends the process.
        return None
    model.vis.global_.fovy = view.field
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, view.size[0])
    try:
        renderer = mujoco.Renderer(model, height=view.size[1], width=view.size[0])
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
        for moment, position in enumerate([positions[0], *positions]):
            data.qpos[:] = position
            mujoco.mj_forward(model, data)
            if moment == 0:
                data.geom_xpos[model.geom_bodyid > 0] += OUT_OF_SIGHT
            renderer.update_scene(data, camera)
            pictures.append(renderer.render())
    return pictures


def exposed_together(pictures: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Show all moments in one picture, later ones in front; the first picture is the empty scene.

    Examples
    --------
    >>> empty = np.zeros((1, 3, 3), dtype=np.uint8)
    >>> left, right = empty.copy(), empty.copy()
    >>> left[0, 0], right[0, 2] = 255, 100
    >>> exposed_together([empty, left, right])[0, :, 0].tolist()
    [255, 0, 100]
    """
    empty, *moments = pictures
    together = empty.copy()
    for moment in moments:
        change = np.abs(moment.astype(np.int16) - empty).max(-1)
        shown = change >= LEAST_CHANGE
        together[shown] = moment[shown]
    return together


def animate(
    strips: list[list[NDArray[np.uint8]]],
    path: Path,
    *,
    below: bool = False,
) -> None:
    """Write a GIF of several policies side by side or below each other, one picture a moment each.

    Examples
    --------
    >>> import tempfile
    >>> moment = np.zeros((4, 6, 3), dtype=np.uint8)
    >>> file = Path(tempfile.mkdtemp()) / "two.gif"
    >>> animate([[moment, moment + 255], [moment, moment + 128]], file)
    >>> Image.open(file).size
    (12, 4)
    """
    axis = 0 if below else 1
    moments = [np.concatenate(pictures, axis=axis) for pictures in zip(*strips, strict=True)]
    # One palette for all moments, so that still parts stay still and compress.
    palette = Image.fromarray(np.concatenate(moments[:: max(1, len(moments) // 4)])).quantize(48)
    frames = [
        Image.fromarray(moment).quantize(palette=palette, dither=Image.Dither.NONE)
        for moment in moments
    ]
    frames[0].save(
        path,
        save_all=True,
        append_images=frames[1:],
        duration=round(1000 * SECONDS_A_FRAME),
        loop=0,
        optimize=True,
    )
