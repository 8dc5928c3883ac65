from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from served_bases import JSON, grown

from ibcl.serve import Settings, create_app


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grown(tmp_path_factory.mktemp("learnt") / "movies.ibcl", 2)


@pytest.fixture
def base(learnt: Path, tmp_path: Path) -> Path:
    """Return a knowledge base with two tasks, to be changed at will."""
    return Path(shutil.copytree(learnt, tmp_path / "movies.ibcl"))


@pytest.fixture
def settings(base: Path) -> Settings:
    return Settings(base, poll=0.02)


@pytest.fixture
def client(settings: Settings):
    app = create_app(settings)
    with TestClient(app, raise_server_exceptions=False, headers=JSON) as client:
        yield client


@pytest.fixture(scope="session")
def reader(learnt: Path, tmp_path_factory: pytest.TempPathFactory):
    """Return a client of a service that no test changes."""
    settings = Settings(learnt, data=tmp_path_factory.mktemp("reader"))
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client
