"""Pictures of policies at work: frame strips drawn by MuJoCo, or as stick figures without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from ibcl.rl.locomotion import Locomotion
from ibcl.rl.policies import Floats, Policy

Image = NDArray[np.uint8]
HEIGHT, WIDTH = 120, 200


def film(
    name: str, policy: Policy, theta: Floats, first: int = 250, every: int = 2, count: int = 6
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


def render(model: mujoco.MjModel, positions: Sequence[NDArray[np.float64]]) -> list[Image]:
    """Draw positions with MuJoCo's camera that follows the body, by stick figures if it cannot."""
    data = mujoco.MjData(model)
    try:
        renderer = mujoco.Renderer(model, HEIGHT, WIDTH)
    except Exception:
        # Without a graphics driver MuJoCo raises whatever its OpenGL loader does.
        return [stick_figure(model, position) for position in positions]
    images = []
    with renderer:
        for position in positions:
            data.qpos[:] = position
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera="track")
            images.append(renderer.render().copy())
    return images


def stick_figure(model: mujoco.MjModel, position: NDArray[np.float64]) -> Image:
    """Draw each body as a line from its parent, seen from the side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    data = mujoco.MjData(model)
    data.qpos[:] = position
    mujoco.mj_forward(model, data)
    figure = Figure(figsize=(WIDTH / 50, HEIGHT / 50), dpi=50)
    canvas: Any = FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    centre = data.xpos[1]
    for geom in range(model.ngeom):
        if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_CAPSULE:
            continue
        middle = data.geom_xpos[geom]
        half = data.geom_xmat[geom].reshape(3, 3)[:, 2] * model.geom_size[geom, 1]
        ends = np.stack([middle - half, middle + half])
        axes.plot(ends[:, 0] - centre[0], ends[:, 2], lw=5, solid_capstyle="round", color="C0")
    axes.axhline(0, color="0.6")
    axes.set(xlim=(-1.3, 1.3), ylim=(-0.1, 1.46))
    axes.axis("off")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
