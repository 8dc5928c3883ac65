"""Policies at some moments: rendered where there is OpenGL, stick figures elsewhere."""

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("matplotlib")

import mujoco
from matplotlib.figure import Figure

from ibcl.rl import Policy
from ibcl.rl.frames import VIEWS, draw_moments, draw_sticks, film, rendered


def filmed(name):
    policy = Policy(27 if "ant" in name else 17, 8 if "ant" in name else 6, hidden=())
    return film(name, policy, np.zeros(policy.dimension), first=0, seconds=0.1, count=3)


@pytest.mark.parametrize("name", ["mo-halfcheetah", "mo-ant"])
def test_a_film_is_one_picture_or_as_many_sticks_as_capsules(name):
    model, positions = filmed(name)
    assert len(positions) == 3
    view = VIEWS[name]
    figure = Figure()
    axes = figure.add_subplot()
    if draw_moments(axes, model, positions, view):
        assert len(axes.images) == 1
        empty, *moments = rendered(model, positions, view)
        assert len(moments) == 3
        assert all((moment != empty).any() for moment in moments)
        together = axes.images[0].get_array()
        assert together.shape == (view.size[1], view.size[0], 3)
        untouched = np.all([moment == empty for moment in moments], axis=0)
        np.testing.assert_array_equal(together[untouched], empty[untouched])
    else:
        assert rendered(model, positions, view) is None
        assert not axes.images
    sticks = figure.add_subplot()
    draw_sticks(sticks, model, positions)
    capsules = (model.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE).sum()
    assert len(sticks.lines) == 3 * capsules + 1, "every capsule three times, and the ground"


def test_without_a_driver_nothing_is_rendered(monkeypatch):
    model, positions = filmed("mo-halfcheetah")

    def no_driver(*_args, **_kwargs):
        raise ImportError("no OpenGL library")

    monkeypatch.setattr(mujoco, "Renderer", no_driver)
    axes = Figure().add_subplot()
    view = VIEWS["mo-halfcheetah"]
    assert rendered(model, positions, view) is None
    assert not draw_moments(axes, model, positions, view)
    assert len(axes.lines) > 3
