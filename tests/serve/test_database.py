"""Preferences in SQLite and PostgreSQL alike: durable, ordered, and carried over by migrations."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

import pytest
from databases import postgresql
from fastapi.testclient import TestClient
from served_bases import JSON, rows
from sqlalchemy import create_engine, text

from ibcl.serve import Settings, create_app, database
from ibcl.serve.errors import ApiError
from ibcl.serve.preferences import Change, Preferences, Stored
from ibcl.serve.settings import database_url


@pytest.fixture(scope="module")
def server():
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/users.sqlite"
        return
    given = database_url(request.getfixturevalue("server"))
    engine = create_engine(given)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    yield given


@pytest.fixture
def kept(url):
    engine = database.open_database(url)
    yield Preferences(engine)
    engine.dispose()


def setting(user, **weights):
    return Change(user, lambda _: Stored(weights), "set")


def test_changes_of_one_batch_see_each_other_in_order(kept):
    seen = []

    def look(stored):
        seen.append(stored.weights)
        return Stored({"c": 1.0})

    def refuse(_):
        raise ApiError(404, "no")

    results = kept.change(
        [setting("ann", a=1.0), Change("ann", look, "inferred"), Change("bob", refuse, "deleted")]
    )
    assert seen == [{"a": 1.0}]
    assert results[1].weights == {"c": 1.0}
    assert isinstance(results[2], ApiError)
    assert kept.read(["ann", "bob"])["ann"].weights == {"c": 1.0}
    assert [(p.source, p.weights) for p in kept.history("ann", 10)] == [
        ("inferred", {"c": 1.0}),
        ("set", {"a": 1.0}),
    ]
    assert kept.history("bob", 10) == []


def test_a_deleted_and_stored_again_user_is_there(kept):
    gone = Change("ann", lambda _: None, "deleted")
    kept.change([setting("ann", a=1.0)])
    kept.change([gone, setting("ann", b=1.0)])
    assert kept.read(["ann"])["ann"].weights == {"b": 1.0}
    kept.change([gone])
    assert kept.read(["ann"]) == {}


def test_more_users_than_one_query_takes(kept):
    kept.change([setting(f"user{n}", a=1.0) for n in range(1100)])
    assert len(kept.read(f"user{n}" for n in range(1200))) == 1100


def test_two_servers_count_every_change(url):
    engines = [database.open_database(url) for _ in range(2)]
    servers = [Preferences(engine) for engine in engines]

    def add(stored):
        return Stored({"a": 1.0}, counts={"a": (stored.counts["a"] if stored else 0) + 1})

    def work(server):
        for _ in range(25):
            failed = [
                r
                for r in server.change([Change("ann", add, "inferred")] * 2)
                if isinstance(r, Exception)
            ]
            assert not failed

    with ThreadPoolExecutor(2) as executor:
        list(executor.map(work, servers))
    assert servers[0].read(["ann"])["ann"].counts == {"a": 100}
    for engine in engines:
        engine.dispose()


def test_a_database_of_the_first_version_is_brought_up_to_date(url):
    engine = create_engine(url)
    database.migrate(engine, "0001")
    with engine.begin() as connection:
        connection.execute(
            text('INSERT INTO preferences ("user", weights, changed) VALUES (:u, :w, :c)'),
            {"u": "ann", "w": json.dumps({"a": 1.0}), "c": datetime.now(UTC)},
        )
    engine.dispose()
    engine = database.open_database(url)
    assert Preferences(engine).read(["ann"])["ann"].weights == {"a": 1.0}
    engine.dispose()


def test_the_tables_are_those_that_the_migrations_make(url):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = database.open_database(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, database.metadata) == []
    engine.dispose()


def test_the_service_works_on_it_and_finds_everything_again(url, learnt, tmp_path):
    settings = Settings(learnt, data=tmp_path / "data", database=url)
    with TestClient(create_app(settings)) as client:
        client.put("/v1/users/ann/preference", json={"sci-fi": 0.25, "horror": 0.75})
        client.post("/v1/users/bob/infer", json={"rows": rows("horror", 4)})
        before = [client.get(f"/v1/users/{user}/preference").json() for user in ("ann", "bob")]
    with TestClient(create_app(settings)) as client:
        after = [client.get(f"/v1/users/{user}/preference").json() for user in ("ann", "bob")]
        predicted = client.post("/v1/predict", json={"rows": rows("horror", 1), "user": "ann"})
    assert after == before
    assert predicted.json()["preference"] == {"sci-fi": 0.25, "horror": 0.75}


def test_a_copy_that_takes_no_changes_is_a_database_that_is_away(server, learnt, tmp_path):
    """PostgreSQL's standby, which answers questions and refuses everything else."""
    given = database_url(server)
    app = create_app(Settings(learnt, data=tmp_path, database=given))
    engine = create_engine(given, isolation_level="AUTOCOMMIT")

    def takes_changes(yes: bool) -> None:
        with engine.connect() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            choice = "off" if yes else "on"
            connection.execute(
                text(f"ALTER DATABASE postgres SET default_transaction_read_only = {choice}")
            )
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            )
        engine.dispose()

    with TestClient(app, headers=JSON, raise_server_exceptions=False) as client:
        put = partial(client.put, "/v1/users/cid/preference", json={"sci-fi": 1.0})
        assert put().status_code == 200
        takes_changes(False)
        refused = put()
        assert refused.status_code == 503
        assert "Retry-After" in refused.headers
        assert client.get("/v1/users/cid/preference").status_code == 200
        takes_changes(True)
        assert put().status_code == 200


@pytest.mark.parametrize("given", ["mysql://host/name", "sqlite:////nowhere/at/all/users.sqlite"])
def test_a_database_that_cannot_be_used_is_one_sentence(given, tmp_path):
    if given.startswith("sqlite"):
        (tmp_path / "users.sqlite").write_bytes(b"this is no database, whatever its name says" * 99)
        given = f"sqlite:///{tmp_path}/users.sqlite"
    with pytest.raises(ValueError, match="database"):
        database.open_database(database_url(given))
