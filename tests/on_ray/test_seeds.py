"""Seeds of reinforcement learning on Ray are those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mujoco", reason="the extra rl is not installed")
pytest.importorskip("moocore", reason="the extra rl is not installed")

from ibcl.engines.ray import RayEngine
from ibcl.rl import BayesianPolicyGradient
from ibcl.rl.seeds import run
from ibcl.rl.stages import Recipe, Stage

pytestmark = pytest.mark.slow

ONE_UPDATE = BayesianPolicyGradient(iterations=1)
TINY = Recipe(
    "mo-halfcheetah",
    stages=(Stage("energy", (0.0, 1.0), ONE_UPDATE), Stage("speed", (1.0, 0.0), ONE_UPDATE)),
    combinations={"all": ("energy", "speed")},
    copies=2,
    hidden=(),
)


@pytest.mark.usefixtures("cluster")
def test_seeds_agree_with_one_process_and_a_failed_one_keeps_the_others(tmp_path: Path) -> None:
    alone = run(TINY, [3, 4], tmp_path / "alone", preferences=2)
    # A file where a seed wants its folder: that one cannot run.
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "seed-4").touch()
    with pytest.raises(ValueError, match=r"1 of 2 seeds failed.*seed 4 \("):
        run(TINY, [3, 4], tmp_path / "ray", preferences=2, engine=RayEngine())
    assert (tmp_path / "ray" / "seed-3" / "result-2.json").is_file()
    (tmp_path / "ray" / "seed-4").unlink()
    on_ray = run(TINY, [3, 4], tmp_path / "ray", preferences=2, engine=RayEngine())
    assert [result.fronts for result in on_ray] == [result.fronts for result in alone]
    assert [result.seed for result in on_ray] == [3, 4]
