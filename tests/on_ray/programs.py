"""Python programs beside the tests, which see the same modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    # Nobody looks at figures of a cluster of tests, which cost its processes time.
    "RAY_enable_metrics_collection": "0",
    "RAY_task_events_report_interval_ms": "0",
}


def python(*arguments: object) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    environment = {
        **os.environ,
        **SETTINGS,
        "PYTHONPATH": os.pathsep.join([str(here), *filter(None, sys.path)]),
    }
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
