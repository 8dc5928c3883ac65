"""Buckets of a real S3 server, where one is installed.

moto cannot be installed beside the project's own packages (it needs another python-dateutil), so
the server runs in an environment of its own: ``make s3``, or the variable IBCL_S3_PYTHON.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
import uuid
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SERVER_PYTHON = Path(os.environ.get("IBCL_S3_PYTHON", HERE.parents[1] / ".venv-s3/bin/python"))


def start_server(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    if not SERVER_PYTHON.exists():
        pytest.skip("no S3 server is installed; make one with 'make s3'")
    server = subprocess.Popen(
        [SERVER_PYTHON, HERE / "s3_server.py", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    return server, f"http://127.0.0.1:{int(server.stdout.readline())}"


def new_bucket(endpoint: str, patch: pytest.MonkeyPatch) -> str:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    bucket = f"bucket-{uuid.uuid4().hex}"
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
    urllib.request.urlopen(request).close()
    return f"s3://{bucket}/some/kb"
