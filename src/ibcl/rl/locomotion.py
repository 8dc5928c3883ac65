r"""MuJoCo problems: HalfCheetah (speed, energy), Ant (x, y) and Hopper (speed, height, energy).

The first two are in the definition of PG-MORL, the third in that of mo-gymnasium's ``mo-hopper``.


Each copy is one ``MjData`` advanced by ``mj_step`` exactly as gymnasium does it, warm start of the
constraint solver included, so a trajectory is the same to the last bit. ``mj_step`` releases
Python's lock, hence ``threads`` copies really run at the same time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from ibcl.rl.environments import Array, Environment, Mask, Step
from ibcl.rl.policies import Normaliser
from ibcl.rl.symmetry import Reflection, Rotation, SignedPermutation

try:
    import gymnasium
    import mujoco
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(
        "The locomotion problems need MuJoCo and gymnasium: pip install 'ibcl[rl]'."
    ) from error

STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)

# MuJoCo would append its warnings to a file in whatever folder a program is started from.
mujoco.set_mju_user_warning(logging.getLogger(__name__).info)


def gymnasium_xml(file: str, gear: int | None = None) -> str:
    """Return a model of gymnasium's, its motors with another gear where one is given."""
    xml = files(gymnasium).joinpath("envs", "mujoco", "assets", file).read_text()
    return xml if gear is None else re.sub(r'gear="\d+"', f'gear="{gear}"', xml)


@cache
def gymnasium_model(file: str, gear: int | None = None) -> mujoco.MjModel:
    """Return the compiled model of `gymnasium_xml`."""
    return mujoco.MjModel.from_xml_string(gymnasium_xml(file, gear))


ANT_GEAR = 100
"""Of the older model that PG-MORL used; gymnasium's has 150."""
HOPPER_HEIGHT = 1.25


@dataclass(frozen=True)
class Definition:
    """What makes a MuJoCo model a problem; every function takes one row per copy.

    ``reward`` takes the velocity of the first two coordinates, all positions and the clipped
    action, ``terminated`` all positions and velocities, ``fallen`` all positions, where a fall does
    not end the episode. ``start`` changes the model's start position for the n-th episode.
    """

    model: Callable[[], mujoco.MjModel]
    objectives: tuple[str, ...]
    hidden_positions: int
    reward: Callable[[Array, Array, Array], Array]
    terminated: Callable[[Array, Array], Mask]
    fallen: Callable[[Array], Mask] | None = None
    reflection: Reflection | None = None
    rotation: Rotation | None = None
    normaliser: Normaliser | None = None
    start: Callable[[Array, int], Array] | None = None
    frame_skip: int = 5
    horizon: int = 500
    velocity_limit: float = np.inf
    """Observed velocities are clipped to it."""


def half_cheetah_reward(velocity: Array, position: Array, action: Array) -> Array:
    """Speed min(4, v_x) + 1 and energy 4 − Σa² + 1.

    Examples
    --------
    >>> half_cheetah_reward(np.array([[5.0]]), np.zeros((1, 9)), np.array([[1.0, 0.5]])).tolist()
    [[5.0, 3.75]]
    """
    del position
    speed = np.minimum(4.0, velocity[:, 0]) + 1
    energy = 4 - np.square(action).sum(1) + 1
    return np.stack([speed, energy], axis=1)


def ant_reward(velocity: Array, position: Array, action: Array, price: float = 1.0) -> Array:
    """Speed along x and along y, each minus ½ Σa² at its price plus 1.

    At a price of 1/√2 it is for what is learnt once for all directions: a speed v along an axis
    counts v in one objective, along the diagonal v/√2 in both. What is learnt on the diagonal and
    then turned to the axes is learnt at the axes' price of speed.

    Examples
    --------
    >>> ant_reward(np.array([[3.0, -1.0]]), np.zeros((1, 15)), np.array([[1.0, 1.0]])).tolist()
    [[3.0, -1.0]]
    """
    del position
    effort = 0.5 * np.square(action).sum(1, keepdims=True)
    return np.asarray(velocity + (1 - price * effort))


def hopper_reward(velocity: Array, position: Array, action: Array) -> Array:
    """Speed v_x + 1, height 10 (z − 1.25) + 1 and energy 1 − Σa².

    Examples
    --------
    >>> start = np.array([[0.0, 1.25, 0, 0, 0, 0]])
    >>> hopper_reward(np.array([[2.0, 0.0]]), start, np.array([[1.0, 0.5, 0]])).tolist()
    [[3.0, 1.0, -0.25]]
    """
    height = 10 * (position[:, 1] - HOPPER_HEIGHT)
    return np.stack([velocity[:, 0], height, -np.square(action).sum(1)], axis=1) + 1


def _hopper_unhealthy(position: Array, velocity: Array) -> Mask:
    state = np.concatenate([position[:, 2:], velocity], axis=1)
    upright = (position[:, 1] > 0.7) & (np.abs(position[:, 2]) < 0.2)
    return np.asarray(~(upright & (np.abs(state) < 100).all(1)))


def _torso_tipped(position: Array, velocity: Array) -> Mask:
    del velocity
    return np.asarray(~(np.abs(position[:, 2]) < np.deg2rad(50)))


def _not_finite(position: Array, velocity: Array) -> Mask:
    return np.asarray(~(np.isfinite(position).all(1) & np.isfinite(velocity).all(1)))


def _upside_down(position: Array) -> Mask:
    # The torso's z axis after rotation by the quaternion (w, x, y, z) has height 1 − 2(x² + y²).
    return np.asarray(~(1 - 2 * np.square(position[:, 4:6]).sum(1) > -0.2))


def _not_finite_or_upside_down(position: Array, velocity: Array) -> Mask:
    return np.asarray(_not_finite(position, velocity) | _upside_down(position))


def _ant_reflection() -> Reflection:
    """Exchange x and y: legs 1 and 3 stay, legs 2 and 4 change places.

    A mirror turns hinges about the vertical and pseudovectors (the quaternion's vector part, the
    angular velocity) the other way. The ankles of legs 2 and 4 bend to opposite signs.
    """
    legs, ankles = (0, 3, 2, 1), (1.0, -1.0, 1.0, -1.0)
    joint_source = [2 * leg + joint for leg in legs for joint in (0, 1)]
    joint_sign = [sign for ankle in ankles for sign in (-1.0, ankle)]
    vector = [1, 0, 2]

    def shifted(by: int, source: list[int]) -> list[int]:
        return [by + index for index in source]

    observation = SignedPermutation(
        (
            *(0, 1),  # height, the quaternion's scalar part
            *shifted(2, vector),
            *shifted(5, joint_source),
            *shifted(13, vector),  # velocity, angular velocity, joint velocities
            *shifted(16, vector),
            *shifted(19, joint_source),
        ),
        (1.0, 1.0, *(-1.0,) * 3, *joint_sign, *(1.0,) * 3, *(-1.0,) * 3, *joint_sign),
    )
    # The motors are in the order of legs 4, 1, 2, 3.
    action = SignedPermutation((4, 5, 2, 3, 0, 1, 6, 7), (-1.0, -1.0, -1.0, 1.0) * 2)
    return Reflection(observation, action, (1, 0))


# Turning the world about the vertical turns velocities by the angle and the quaternion by half of
# it. MuJoCo gives the angular velocity in the body's own frame, which turns along.
_ANT_ROTATION = Rotation(((13, 14, 1.0), (1, 4, 0.5), (2, 3, 0.5)), (0, 1))

WIDEST_YAW = np.deg2rad(50)
GOLDEN_RATIO = (np.sqrt(5) - 1) / 2


def _ant_scales() -> Normaliser:
    """Return the sizes of what a running ant observes, equal within pairs that turn together."""
    legs = (0.4, 0.6) * 4
    scale = np.array([0.2, *(0.5,) * 4, *legs, 2.0, 2.0, 1.0, *(2.0,) * 3, *(5.0,) * 8])
    centre = np.zeros(27)
    centre[0] = 0.6
    return Normaliser(centre, scale, limit=6.0)


def turned_start(position: Array, episode: int) -> Array:
    """Turn the start position by a yaw within ±50°, spread evenly over the episodes.

    Examples
    --------
    >>> upright = np.array([0, 0, 0.75, 1.0, 0, 0, 0])
    >>> yaws = [2 * np.rad2deg(np.arcsin(turned_start(upright, n)[6])) for n in range(1000)]
    >>> round(min(yaws)), round(max(yaws)), bool(abs(sum(yaws)) < 500)
    (-50, 50, True)
    """
    half = WIDEST_YAW * (2 * ((episode * GOLDEN_RATIO) % 1) - 1) / 2
    turned = position.copy()
    turned[3:7] = np.cos(half), 0, 0, np.sin(half)
    return turned


_ANT = Definition(
    partial(gymnasium_model, "ant.xml", ANT_GEAR),
    ("x-speed", "y-speed"),
    2,
    ant_reward,
    _not_finite,
    _upside_down,
    _ant_reflection(),
    _ANT_ROTATION,
    _ant_scales(),
)

_ANT_TRAINING = replace(_ANT, terminated=_not_finite_or_upside_down, start=turned_start)

DEFINITIONS: dict[str, Definition] = {
    "mo-halfcheetah": Definition(
        partial(gymnasium_model, "half_cheetah.xml"),
        ("speed", "energy"),
        1,
        half_cheetah_reward,
        _torso_tipped,
    ),
    "mo-hopper-3obj": Definition(
        partial(gymnasium_model, "hopper.xml"),
        ("speed", "height", "energy"),
        1,
        hopper_reward,
        _hopper_unhealthy,
        frame_skip=4,
        horizon=1000,
        velocity_limit=10.0,
    ),
    "mo-ant": _ANT,
    "mo-ant-training": _ANT_TRAINING,
    "mo-ant-all-directions": replace(
        _ANT_TRAINING, reward=partial(ant_reward, price=1 / np.sqrt(2))
    ),
}


class Locomotion(Environment):
    """Copies of one of the `DEFINITIONS`.

    Examples
    --------
    >>> cheetah = Locomotion("mo-halfcheetah", copies=2)
    >>> cheetah.reset().shape
    (2, 17)
    >>> cheetah.step(np.zeros((2, 6))).reward.shape
    (2, 2)
    """

    def __init__(self, name: str, copies: int, *, threads: int = 1) -> None:
        self.name = name
        self.copies = copies
        self.definition = DEFINITIONS[name]
        self.model = self.definition.model()
        self.horizon = self.definition.horizon
        self.objectives = self.definition.objectives
        self.reflection = self.definition.reflection
        self.rotation = self.definition.rotation
        self.normaliser = self.definition.normaliser
        self._episodes = np.arange(copies, dtype=np.int64)
        self.action_size = self.model.nu
        self.observation_size = self.model.nq + self.model.nv - self.definition.hidden_positions
        self.dt = self.definition.frame_skip * float(self.model.opt.timestep)
        self._data = [mujoco.MjData(self.model) for _ in range(copies)]
        # Looking an attribute up on MjData costs as much as a tenth of a simulation step.
        self._views = [(data, data.ctrl, data.qpos, data.qvel) for data in self._data]
        self._position = np.empty((copies, self.model.nq))
        self._velocity = np.empty((copies, self.model.nv))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._chunks = np.array_split(np.arange(copies), min(threads, copies))

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def position(self) -> Array:
        """Generalised positions of all copies after the last step, unlike observations complete."""
        return self._position.copy()

    def _begin(self, copy: int) -> Array:
        data = self._data[copy]
        mujoco.mj_resetData(self.model, data)
        if self.definition.start is not None:
            data.qpos[:] = self.definition.start(data.qpos, int(self._episodes[copy]))
            self._episodes[copy] += self.copies
        mujoco.mj_forward(self.model, data)
        self._read([copy])
        return np.asarray(self._observation()[copy])

    def _read(self, copies: Iterable[int]) -> None:
        for copy in copies:
            _, _, self._position[copy], self._velocity[copy] = self._views[copy]

    def _observation(self) -> Array:
        hidden, limit = self.definition.hidden_positions, self.definition.velocity_limit
        velocity = np.clip(self._velocity, -limit, limit)
        return np.concatenate([self._position[:, hidden:], velocity], axis=1)

    def _simulate(self, copies: NDArray[np.int64], actions: Array) -> None:
        for copy in copies:
            data, control, position, velocity = self._views[copy]
            control[:] = actions[copy]
            mujoco.mj_step(self.model, data, self.definition.frame_skip)
            self._position[copy] = position
            self._velocity[copy] = velocity

    def _advance(self, actions: Array) -> tuple[Array, Array, Mask]:
        clipped = np.clip(actions, -1.0, 1.0)
        before = self._position[:, :2].copy()
        if self._pool is None:
            self._simulate(self._chunks[0], clipped)
        else:
            list(self._pool.map(lambda chunk: self._simulate(chunk, clipped), self._chunks))
        moved = (self._position[:, :2] - before) / self.dt
        reward = self.definition.reward(moved, self._position, clipped)
        terminated = self.definition.terminated(self._position, self._velocity)
        return self._observation(), reward, terminated

    def fallen(self, outcome: Step) -> Mask:
        """Tell which copies fell: by ending their episode, or as the definition says."""
        if self.definition.fallen is None:
            return outcome.terminated
        return outcome.terminated | self.definition.fallen(self._position)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """Everything MuJoCo integrates from, the solver's warm start included."""
        state = np.empty((self.copies, mujoco.mj_stateSize(self.model, STATE)))
        for row, data in zip(state, self._data, strict=True):
            mujoco.mj_getState(self.model, data, row, STATE)
        return {"elapsed": self.elapsed.copy(), "episodes": self._episodes.copy(), "state": state}

    def restore(self, snapshot: dict[str, NDArray[np.generic]]) -> Array:
        """Continue from a snapshot; returns the observations."""
        self.elapsed = snapshot["elapsed"].astype(np.int64)
        self._episodes = snapshot["episodes"].astype(np.int64)
        for row, data in zip(snapshot["state"], self._data, strict=True):
            mujoco.mj_setState(self.model, data, np.asarray(row, dtype=np.float64), STATE)
        self._read(range(self.copies))
        return self._observation()
