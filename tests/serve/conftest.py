from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ibcl.serve import Settings, create_app
from served_bases import grown


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a knowledge base with two tasks."""
    return grown(tmp_path / "movies.ibcl", 2)


@pytest.fixture
def settings(base: Path) -> Settings:
    return Settings(base, poll=0.02)


@pytest.fixture
def client(settings: Settings):
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client
