"""Environments looked up by their gymnasium id."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")

from ibcl.rl.environments import make  # noqa: E402


class Drift(gymnasium.Env):
    """Walk on a line with the action as velocity; two rewards, a bounded action in [0, 4]."""

    action_space = gymnasium.spaces.Box(0.0, 4.0, (1,), dtype=np.float32)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), dtype=np.float64)

    def __init__(self, scalar: bool = False) -> None:
        self.scalar = scalar

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.x = 0.0
        return np.array([self.x]), {}

    def step(self, action):
        self.x += float(action[0])
        reward = 1.0 if self.scalar else np.array([float(action[0]), -float(action[0])])
        return np.array([self.x]), reward, self.x > 100, False, {}


@pytest.fixture(autouse=True)
def registered():
    gymnasium.register("ibcl-test/Drift-v0", lambda **k: Drift(**k), max_episode_steps=7)
    gymnasium.register("ibcl-test/Scalar-v0", lambda: Drift(scalar=True))
    yield
    for name in ("ibcl-test/Drift-v0", "ibcl-test/Scalar-v0"):
        gymnasium.registry.pop(name)


@pytest.mark.filterwarnings("ignore")
def test_actions_are_stretched_and_the_time_limit_is_found():
    drift = make("ibcl-test/Drift-v0", copies=2)
    assert drift.horizon == 7
    assert drift.reset().tolist() == [[0.0], [0.0]]
    outcome = drift.step(np.array([[-1.0], [1.0]]))
    assert outcome.reward.tolist() == [[0.0, -0.0], [4.0, -4.0]]
    for _ in range(6):
        outcome = drift.step(np.array([[0.0], [5.0]]))
    assert outcome.truncated.all()
    assert outcome.final.tolist() == [[12.0], [28.0]]
    assert outcome.observation.tolist() == [[0.0], [0.0]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ibcl-test/Scalar-v0", r"reward of ibcl-test/Scalar-v0 has shape \(\)"),
        ("CartPole-v1", "continuous actions"),
        ("mo-cheetah", "There is no environment 'mo-cheetah'"),
    ],
)
def test_unsuitable_environments_give_one_sentence(name, message):
    with pytest.raises(ValueError, match=message) as caught:
        make(name, copies=1)
    assert "\n" not in str(caught.value)


def test_an_environment_needs_a_copy():
    with pytest.raises(ValueError, match="at least one copy, not 0"):
        make("mo-halfcheetah", copies=0)
