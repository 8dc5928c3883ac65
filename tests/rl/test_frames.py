"""Policies at some moments: rendered where there is OpenGL, and not at all elsewhere."""

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("matplotlib")

import mujoco

from ibcl.rl import Policy
from ibcl.rl.frames import VIEWS, exposed_together, film, rendered


def filmed(name):
    policy = Policy(27 if "ant" in name else 17, 8 if "ant" in name else 6, hidden=())
    return film(name, policy, np.zeros(policy.dimension), first=0, seconds=0.1, count=3)


@pytest.mark.parametrize("name", ["mo-halfcheetah", "mo-ant"])
def test_a_film_is_the_empty_scene_and_the_body_at_every_moment(name):
    model, positions = filmed(name)
    assert len(positions) == 3
    view = VIEWS[name]
    pictures = rendered(model, positions, view)
    if pictures is None:
        pytest.skip("no OpenGL driver")
    empty, *moments = pictures
    assert len(moments) == 3
    assert all((moment != empty).any() for moment in moments)
    together = exposed_together(pictures)
    assert together.shape == (view.size[1], view.size[0], 3)
    untouched = np.all([moment == empty for moment in moments], axis=0)
    np.testing.assert_array_equal(together[untouched], empty[untouched])


def test_without_a_driver_nothing_is_rendered(monkeypatch):
    model, positions = filmed("mo-halfcheetah")

    def no_driver(*_args, **_kwargs):
        raise ImportError("no OpenGL library")

    monkeypatch.setattr(mujoco, "Renderer", no_driver)
    assert rendered(model, positions, VIEWS["mo-halfcheetah"]) is None
