"""Who gets in, from where, and that nothing behind the door can be held up by one caller."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from browsers import serving
from databases import postgresql
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from served_bases import JSON, films, grown, rows
from sqlalchemy import create_engine, text

import ibcl
from ibcl.cli import app as command_line
from ibcl.serve import Client, ServiceError, Settings, create_app, database
from ibcl.serve.messages import User
from ibcl.serve.settings import database_url

EVEN = {"sci-fi": 0.5, "horror": 0.5}
OPEN = {"/health", "/ready", "/", "/openapi.json"}


def changing_routes(app):
    """Return the method and a path of every route that is not for reading alone."""
    values = {"{user}": "ann", "{version}": "newest", "{token}": "0123456789ab", "{name}": "x"}
    found = []
    for path, operations in app.openapi()["paths"].items():
        for name, value in values.items():
            path = path.replace(name, value)
        found += [(method.upper(), path) for method in operations if method not in ("get", "head")]
    return found


def test_every_route_of_the_application_is_in_its_document(reader):
    """So that what is asked of all routes below is asked of those to come as well."""
    hidden = {"/", "/page/{name}", "/openapi.json"}
    routes = {
        (method, route.path)
        for part in reader.app.router.routes
        for route in getattr(getattr(part, "original_router", None), "routes", [part])
        for method in route.methods - {"HEAD"}
        if route.path not in hidden
    }
    documented = {
        (method.upper(), path)
        for path, operations in reader.app.openapi()["paths"].items()
        for method in operations
    }
    assert routes == documented
    assert len(routes) >= 18


# Everything that a form or a script of another page can have a browser send without asking first.
SIMPLE = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    None,
]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", None])
@pytest.mark.parametrize("kind", SIMPLE)
def test_a_page_of_another_origin_changes_nothing(reader, kind, origin):
    headers = {"Host": "localhost:8000"}
    headers |= {} if kind is None else {"Content-Type": kind}
    headers |= {} if origin is None else {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    routes = changing_routes(reader.app)
    assert ("POST", "/v1/versions/newest/activate") in routes
    for method, path in routes:
        content = b'{"sci-fi":1}' if kind else b""
        answer = reader.request(method, path, content=content, headers=headers)
        assert answer.status_code == 403, (method, path)


def test_the_services_own_page_and_programs_may_change_things(client):
    path = "/v1/versions/newest/activate"
    own = {"Origin": "http://localhost:8000", "Host": "localhost:8000"}
    fetched = {"Sec-Fetch-Site": "same-origin"}
    for headers in (own, fetched, {"Content-Type": "application/json; charset=utf-8"}):
        plain = {"Content-Type": "text/plain", **headers}
        assert client.post(path, headers=plain).status_code == 200
    foreign = {"Content-Type": "application/json", "Origin": "https://evil.example"}
    assert client.post(path, headers=foreign).status_code == 403


ADDRESSES = st.ip_addresses().map(str)
HOSTS = st.sampled_from(["localhost", "127.0.0.1", "[::1]", "localhost:8000", ""])
CLAIMS = st.dictionaries(
    st.sampled_from(["X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Forwarded-Proto", "Via"])
    | st.sampled_from(["CF-Connecting-IP", "True-Client-IP", "X-Client-IP"]),
    st.sampled_from(["127.0.0.1", "::1", "for=127.0.0.1", "localhost"]),
    max_size=2,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(address=ADDRESSES, host=HOSTS, claims=CLAIMS)
@example("127.0.0.1", "localhost", {})
@example("::ffff:127.0.0.1", "localhost", {})
@example("::ffff:192.0.2.7", "localhost", {})
@example("127.0.0.1", "localhost", {"X-Forwarded-For": "127.0.0.1"})
def test_without_a_token_nobody_gets_in_from_elsewhere(reader, address, host, claims):
    caller = TestClient(reader.app, client=(address, 5), raise_server_exceptions=False)
    answer = caller.get("/v1/tasks", headers={"Host": host, **claims})
    here = address in ("::1", "::ffff:127.0.0.1") or address.startswith("127.")
    assert answer.status_code == (200 if here and not claims else 403)


@pytest.mark.parametrize(
    "hosts",
    [
        ["evil.example", "localhost"],
        ["localhost", "evil.example"],
        ["localhost:evil.example"],
        ["[::1]evil.example"],
        ["localhost.evil.example:80"],
    ],
)
def test_every_name_that_a_caller_gives_is_one_of_this_machine(reader, hosts):
    headers = [("Host", host) for host in hosts]
    assert reader.get("/v1/tasks", headers=headers).status_code == 403
    assert reader.get("/v1/tasks", headers={"Host": "LOCALHOST:8000"}).status_code == 200


def test_the_name_of_tests_is_a_foreign_one_on_a_network(reader):
    """A name server could let it point here, as any other name."""
    named = {"Host": "testserver"}
    caller = TestClient(reader.app, client=("127.0.0.1", 5))
    assert caller.get("/v1/tasks", headers=named).status_code == 403
    assert reader.get("/v1/tasks", headers=named).status_code == 200


@pytest.mark.parametrize("path", ["/v1/tasks/", "/v1/users/ann/preference/", "/health/"])
def test_nobody_is_sent_to_an_address_that_the_caller_named(reader, path):
    caller = TestClient(reader.app, headers={"Host": "localhost:9"}, follow_redirects=False)
    answer = caller.get(path)
    assert answer.status_code == 404
    assert "location" not in answer.headers


def test_a_refused_activation_activates_nothing(base):
    settings = Settings(base, poll=0.02)
    with TestClient(create_app(settings), headers=JSON) as client:
        first = client.get("/ready").json()["version"]
        grown(base, 3)
        deadline = time.monotonic() + 120
        while client.get("/ready").json()["version"] == first:
            assert time.monotonic() < deadline
        stored = settings.folder / "preferences.sqlite"
        stored.rename(stored.with_suffix(".away"))
        assert client.post(f"/v1/versions/{first}/activate").status_code == 503
        stored.with_suffix(".away").rename(stored)
        assert client.get("/ready").json()["version"] != first
        assert client.get("/v1/versions").json()["following"]


def administrators_of(app):
    return [token.id for token in app.state.service.tokens.facts()]


@pytest.mark.parametrize("revoked_by", ["the service", "another process"])
def test_revoking_the_last_token_opens_nothing(base, revoked_by):
    app = create_app(Settings(base, poll=0.02))
    tokens = app.state.service.tokens
    made = tokens.issue()
    with TestClient(app, headers=JSON) as client:
        (name,) = administrators_of(app)
        if revoked_by == "the service":
            own = {"Authorization": f"Bearer {made}"}
            assert client.delete(f"/v1/tokens/{name}", headers=own).status_code == 204
        else:
            engine = database.open_database(Settings(base).database_url)
            with engine.begin() as connection:
                connection.execute(text("DELETE FROM tokens"))
            engine.dispose()
            tokens.refresh()
        for headers in (
            {},
            {"Host": "localhost"},
            {"Host": ""},
            {"Authorization": f"Bearer {made}"},
        ):
            for path in app.openapi()["paths"]:
                if path not in OPEN:
                    assert client.get(path, headers=headers).status_code == 401, path


def test_an_address_that_others_reach_needs_tokens_even_where_there_are_none(base):
    from ibcl.serve.process import settled

    for host in ("0.0.0.0", "192.0.2.1", "::", "example.org"):
        with TestClient(create_app(settled(Settings(base), host))) as client:
            for named in ("localhost", "127.0.0.1", ""):
                assert client.get("/v1/tasks", headers={"Host": named}).status_code == 401


NAMES = st.text(st.sampled_from("aZ0._@:+-/%2e \t\0é"), max_size=6) | st.text(max_size=4)
USER = TypeAdapter(User)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES)
@example(".")
@example("..")
@example("...")
@example("")
@example("%2e")
@example("a/../b")
@example("ann\n")
@example("NA")
@example("None")
@example("null")
def test_every_user_that_is_accepted_can_be_asked_for(addressed, name):
    client, url = addressed
    try:
        USER.validate_python(name)
    except ValidationError:
        if name:
            path = f"{url}/v1/users/{quote(name, safe='')}/preference"
            answer = client._http.put(path, json=EVEN)
            assert answer.status_code in (404, 405, 422)
        return
    client.set_preference(name, EVEN)
    assert client.preference(name).user == name
    unquoted = client._http.get(f"{url}/v1/users/{name}/preference")
    assert unquoted.json()["user"] == name
    assert client.predict(rows("sci-fi", 1), user=name).preference == EVEN
    client.delete_preference(name, history=True)


@pytest.fixture(scope="module")
def addressed(learnt, tmp_path_factory):
    """Return a client of a service behind a real connection, which reads URLs as servers do."""
    app = create_app(Settings(learnt, data=tmp_path_factory.mktemp("data")))
    with serving(app) as url, Client(url) as client:
        yield client, url


@contextmanager
def away(kind, tmp_path):
    """Give the URL of a database, and what takes it away and brings it back."""
    if kind == "sqlite":
        path = tmp_path / "users.sqlite"
        names = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]

        def take():
            for name in names:
                if name.exists():
                    name.rename(name.with_name(name.name + ".away"))

        def bring():
            for name in names:
                if name.with_name(name.name + ".away").exists():
                    name.with_name(name.name + ".away").rename(name)

        yield str(path), take, bring
        return
    with postgresql() as url:
        admin = create_engine(database_url(url), isolation_level="AUTOCOMMIT")

        def run(*statements):
            with admin.connect() as connection:
                for statement in statements:
                    connection.execute(text(statement))

        run("CREATE DATABASE users")

        def take():
            run(
                "ALTER DATABASE users ALLOW_CONNECTIONS false",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'users'",
            )

        yield (
            url.replace("/postgres", "/users"),
            take,
            lambda: run("ALTER DATABASE users ALLOW_CONNECTIONS true"),
        )
        admin.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_while_the_database_is_away_nobody_is_told_that_all_is_well(learnt, tmp_path, kind):
    with away(kind, tmp_path) as (url, take, bring):
        chosen = Settings(learnt, data=tmp_path / "data", database=url)
        with TestClient(create_app(chosen), raise_server_exceptions=False, headers=JSON) as client:
            assert client.put("/v1/users/ann/preference", json=EVEN).status_code == 200
            asked = [
                ("GET", "/ready", None),
                ("GET", "/v1/users/ann/preference", None),
                ("GET", "/v1/users/ann/history", None),
                ("GET", "/v1/tokens", None),
                ("PUT", "/v1/users/bob/preference", EVEN),
                ("POST", "/v1/users/bob/infer", {"rows": rows("sci-fi", 1)}),
                ("POST", "/v1/predict", {"rows": rows("sci-fi", 1), "user": "ann"}),
                ("POST", "/v1/versions/newest/activate", None),
                ("DELETE", "/v1/users/ann/preference", None),
            ]
            take()
            for method, path, body in asked:
                answer = client.request(method, path, json=body)
                assert answer.status_code == 503, path
                assert int(answer.headers["retry-after"]) > 0
                assert set(answer.json()) == {"error"}
            # What needs no database is answered all the same.
            body = {"rows": rows("sci-fi", 1), "preference": EVEN}
            assert client.post("/v1/predict", json=body).status_code == 200
            assert client.get("/health").status_code == 200
            bring()
            assert client.get("/ready").status_code == 200
            assert client.get("/v1/users/ann/preference").json()["preference"] == EVEN
            assert client.get("/v1/users/bob/preference").status_code == 404


def test_a_database_of_a_newer_version_is_one_sentence(base):
    from typer.testing import CliRunner

    url = Settings(base).database_url
    engine = database.open_database(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(ValueError, match="newer version of ibcl"):
        database.open_database(url)
    for command in (["serve", str(base), "--port", "0"], ["token", str(base)]):
        result = CliRunner().invoke(command_line, command)
        assert result.exit_code == 2
        assert "newer version" in result.stderr.splitlines()[-1]


def test_while_a_version_loads_everybody_else_is_answered(base, monkeypatch):
    from ibcl.serve import versions

    loading, finish = threading.Event(), threading.Event()
    with TestClient(create_app(Settings(base, poll=0.02)), headers=JSON) as client:
        first = client.get("/ready").json()["version"]
        grown(base, 3)
        while client.get("/ready").json()["version"] == first:
            time.sleep(0.01)
        load = versions.load

        def slow(*arguments):
            loading.set()
            assert finish.wait(60)
            return load(*arguments)

        monkeypatch.setattr(versions, "load", slow)
        body = {"preference": EVEN, "version": first}
        asked = [
            ("GET", f"/v1/explorer?version={first}", None),
            ("GET", f"/v1/explorer/front?first=sci-fi&second=horror&version={first}", None),
            ("POST", "/v1/explorer/measure", body),
            ("POST", "/v1/model", body),
            ("POST", "/v1/predict", {**body, "rows": rows("sci-fi", 1)}),
            ("POST", f"/v1/versions/{first}/activate", None),
            ("GET", "/v1/versions", None),
        ]
        with ThreadPoolExecutor(len(asked)) as executor:
            answers = [executor.submit(client.request, m, p, json=b) for m, p, b in asked]
            assert loading.wait(30)
            client.put("/v1/users/ann/preference", json=EVEN)
            for path in ("/health", "/ready", "/v1/tasks", "/v1/users/ann/preference"):
                assert client.get(path).status_code == 200
            many = {"rows": rows("sci-fi", 600), "preference": EVEN}
            assert client.post("/v1/predict", json=many).status_code == 200
            assert not any(answer.done() for answer in answers[:-1])
            finish.set()
            assert {answer.result().status_code for answer in answers} == {200}


def test_exports_come_one_at_a_time_and_are_made_once(reader):
    pytest.importorskip("onnxscript", reason="models are exported by the package 'onnxscript'")
    weights = [0.25, 0.5] * 6

    def download(weight):
        preference = {"sci-fi": weight, "horror": 1 - weight}
        return reader.post("/v1/model", json={"preference": preference, "format": "onnx"})

    with ThreadPoolExecutor(len(weights)) as executor:
        downloads = [executor.submit(download, weight) for weight in weights]
        assert reader.get("/v1/users/nobody/history").status_code == 200
        answers = [done.result() for done in downloads]
    assert {answer.status_code for answer in answers} == {200}
    for weight in set(weights):
        files = [a.content for a, w in zip(answers, weights, strict=True) if w == weight]
        assert len(set(files)) == 1
    assert download(0.5).content == answers[1].content


def test_rows_times_tasks_are_bounded(base):
    with TestClient(create_app(Settings(base, largest_request=20)), headers=JSON) as client:
        for path, body in (
            ("/v1/predict", {"preference": EVEN}),
            ("/v1/infer", {}),
            ("/v1/users/ann/infer", {}),
        ):
            assert client.post(path, json={"rows": rows("horror", 10), **body}).status_code == 200
            refused = client.post(path, json={"rows": rows("horror", 11), **body})
            assert refused.status_code == 413
            assert "at most 10 rows" in refused.json()["error"]


def test_rows_predicted_in_blocks_are_those_predicted_at_once(reader, monkeypatch):
    from ibcl.serve import service

    wanted = {"bounds": True, "uncertainty": True, "routing": True}
    body = {"rows": rows("sci-fi", 7) + rows("horror", 6), "preference": EVEN, **wanted}
    whole = reader.post("/v1/predict", json=body).json()
    monkeypatch.setattr(service, "BLOCK_SUMS", 8)
    parts = reader.post("/v1/predict", json=body).json()
    assert parts["predictions"] == whole["predictions"]
    flat = [
        (answer["probabilities"], answer["bounds"]["lower"], answer["bounds"]["upper"])
        for answer in (parts, whole)
    ]
    for one, other in zip(*flat, strict=True):
        for row, again in zip(one, other, strict=True):
            assert row == pytest.approx(again, abs=1e-12)
    assert len(parts["routing"]["shares"]) == len(parts["uncertainty"]["total"]) == 13


def test_a_long_request_does_not_hold_up_a_short_one(settings, monkeypatch):
    """What comes later and is short is answered first, and the long answer is the same."""
    from ibcl.serve import service as module
    from ibcl.serve.service import Job, Service

    monkeypatch.setattr(module, "BLOCK_SUMS", 8)
    # Work on the spot would be done before anybody else could ask.
    monkeypatch.setattr(module, "_QUICK_ROWS", 0)
    service = Service(settings)
    asked = [{**row, "colour": "red"} for row in rows("sci-fi", 120)]
    order = []

    async def ask(name, count):
        job = Job(asked[:count], EVEN, None, service.versions.active)
        done = await service.predict(job)
        order.append(name)
        return done

    async def both():
        long = asyncio.create_task(ask("long", 120))
        await asyncio.sleep(0)
        short = asyncio.create_task(ask("short", 2))
        return await long, await short

    try:
        long, short = asyncio.run(both())
        monkeypatch.setattr(module, "BLOCK_SUMS", 10**6)
        whole = asyncio.run(ask("whole", 120))
    finally:
        service.close()
    assert order == ["short", "long", "whole"]
    assert long.decisions == whole.decisions
    assert long.decisions[:2] == short.decisions
    assert long.ignored == whole.ignored == ["colour"]
    assert long.unknown == whole.unknown
    assert long.fitted == whole.fitted
    assert long.means == [pytest.approx(row, abs=1e-12) for row in whole.means]


def test_a_preference_that_changes_does_not_change_in_the_middle_of_an_answer(
    settings, monkeypatch
):
    from ibcl.serve import service as module

    monkeypatch.setattr(module, "BLOCK_SUMS", 8)
    with TestClient(create_app(settings), headers=JSON) as client:
        service = client.app.state.service
        assert client.put("/v1/users/ann/preference", json={"preference": EVEN}).status_code == 200
        body = {"rows": rows("horror", 12), "user": "ann"}
        expected = client.post("/v1/predict", json=body).json()["probabilities"]
        read = []

        def once(users):
            read.append(users)
            return whole(users) if len(read) == 1 else {}

        whole = service.preferences.read
        monkeypatch.setattr(service.preferences, "read", once)
        answer = client.post("/v1/predict", json=body)
    assert answer.json()["probabilities"] == expected


def test_columns_too_many_are_named_and_columns_too_few_refused(reader):
    more = [{**row, "colour": "red", "length": 3} for row in rows("sci-fi", 2)]
    body = {"rows": [*rows("sci-fi", 1), *more], "preference": EVEN}
    answer = reader.post("/v1/predict", json=body)
    assert answer.json()["ignored"] == ["colour", "length"]
    assert (
        reader.post("/v1/predict", json={**body, "rows": rows("sci-fi", 1)}).json()["ignored"] == []
    )
    less = [{key: value for key, value in row.items() if key != "mood"} for row in more]
    for path, lacking in (
        ("/v1/predict", {"rows": less, "preference": EVEN}),
        ("/v1/infer", {"rows": less}),
    ):
        refused = reader.post(path, json=lacking)
        assert refused.status_code == 422
        assert "'mood'" in refused.json()["error"]


@pytest.mark.parametrize("seen", ["forgotten first", "at once", "while it was down"])
def test_a_new_task_under_a_forgotten_name_inherits_no_weight(base, seen):
    grown(base, 3)

    def wait_for(client, tasks):
        deadline = time.monotonic() + 120
        while client.get("/v1/tasks").json()["tasks"] != tasks:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def relearn(client=None):
        learner = ibcl.load(base)
        learner.forget("sci-fi")
        if seen == "forgotten first":
            learner.save(base)
            wait_for(client, ["horror", "romance"])
        learner.learn(*films("sci-fi", 80, seed=9), task="sci-fi")
        learner.save(base)

    first = Settings(base, poll=0.02)
    before = {"sci-fi": 0.5, "horror": 0.25, "romance": 0.25}
    with TestClient(create_app(first), headers=JSON) as client:
        old = client.get("/ready").json()["version"]
        client.put("/v1/users/ann/preference", json=before)
        client.post("/v1/users/bob/infer", json={"rows": rows("sci-fi", 30)})
        if seen != "while it was down":
            relearn(client)
            wait_for(client, ["horror", "romance", "sci-fi"])
    if seen == "while it was down":
        relearn()
    with TestClient(create_app(first), headers=JSON) as client:
        assert client.get("/v1/tasks").json()["tasks"] == ["horror", "romance", "sci-fi"]
        ann = client.get("/v1/users/ann/preference").json()
        assert ann["preference"] == {"horror": 0.5, "romance": 0.5, "sci-fi": 0.0}
        assert ann["dropped"] == {"sci-fi": 0.5}
        assert ann["filled"] == {"sci-fi": 0.0}
        predicted = client.post("/v1/predict", json={"rows": rows("horror", 1), "user": "ann"})
        assert predicted.json()["preference"] == ann["preference"]
        body = {"rows": rows("horror", 1), "store": False}
        bob = client.post("/v1/users/bob/infer", json=body).json()["preference"]
        nobody = client.post("/v1/users/cid/infer", json=body).json()["preference"]
        assert bob["sci-fi"] == pytest.approx(nobody["sci-fi"], abs=0.2)
        assert bob["sci-fi"] < 0.35
        # In the version from before it is still the task they spoke of; and spoken of anew, it
        # counts.
        client.post(f"/v1/versions/{old}/activate")
        assert client.get("/v1/users/ann/preference").json()["preference"] == before
        client.post("/v1/versions/newest/activate")
        client.put("/v1/users/ann/preference", json=before)
        assert client.get("/v1/users/ann/preference").json()["dropped"] == {}


def test_a_task_that_goes_on_keeps_its_weight(base):
    chosen = Settings(base, poll=0.02)
    with TestClient(create_app(chosen), headers=JSON) as client:
        client.put("/v1/users/ann/preference", json={"sci-fi": 0.75, "horror": 0.25})
    grown(base, 3)
    learner = ibcl.load(base)
    learner.forget("sci-fi")
    learner.save(base)
    with TestClient(create_app(chosen), headers=JSON) as client:
        stored = client.get("/v1/users/ann/preference").json()
    assert stored["preference"] == {"horror": 1.0, "romance": 0.0}
    assert stored["dropped"] == {"sci-fi": 0.75}


def test_a_client_needs_no_body_to_change_something(addressed):
    client, _ = addressed
    assert client.activate()
    with pytest.raises(ServiceError) as caught:
        client.delete_preference("nobody")
    assert caught.value.status == 404
