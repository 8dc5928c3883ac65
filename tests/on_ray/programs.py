"""Python programs beside the tests, which see the same modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def python(*arguments: object) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(here), *filter(None, sys.path)]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
