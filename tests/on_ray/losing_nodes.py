"""A cluster of three nodes of this machine that loses one under each of two kinds of work.

Run as a program, with a folder made by `predicting_data`; it prints what came of the work.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import ray
from killing import caught_at_work
from pieces import slow
from predicting_data import predict
from ray.cluster_utils import Cluster

from ibcl.cli import predictions
from ibcl.engines.ray import RayEngine

SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def alive() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def lose(cluster: Cluster, node: Any, expected: int) -> None:
    cluster.remove_node(node, allow_graceful=False)
    # The cluster itself may take a while to notice.
    until = time.monotonic() + 60
    while alive() > expected and time.monotonic() < until:
        time.sleep(0.1)


def pieces(cluster: Cluster, node: Any, folder: Path) -> None:
    """Lose a node while every node has a piece of work; print results, and how many began."""

    def remove() -> None:
        while len(list(folder.iterdir())) < 3:
            time.sleep(0.05)
        lose(cluster, node, expected=2)

    remover = threading.Thread(target=remove)
    remover.start()
    work = partial(slow, folder, seconds=3.0)
    found = sorted(outcome.result or 0 for outcome in RayEngine().run(work, range(4)))
    remover.join()
    print("pieces", found, len(list(folder.iterdir())), alive(), flush=True)


def scores(cluster: Cluster, node: Any, folder: Path) -> None:
    """Lose a node while its worker writes scores; print whether they are those of one machine."""
    predictions.BLOCK_NUMBERS = 200_000
    local = predict(folder, "one.parquet", users="many")
    raylet = node.all_processes["raylet"][0].process.pid

    def remove() -> None:
        worker = caught_at_work(raylet, folder, "three.parquet")
        # The machine is gone, and all that ran on it.
        worker.kill()
        lose(cluster, node, expected=1)

    remover = threading.Thread(target=remove)
    remover.start()
    on_ray = predict(folder, "three.parquet", "--engine", "ray", users="many")
    remover.join()
    print("scores", on_ray.to_parquet() == local.to_parquet(), alive(), flush=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    first, second = cluster.add_node(**SMALL), cluster.add_node(**SMALL)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    begun = folder / "begun"
    begun.mkdir()
    pieces(cluster, first, begun)
    scores(cluster, second, folder)
    ray.shutdown()
    cluster.shutdown()
