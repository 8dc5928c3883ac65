"""Who may do what, how much, and what nobody gets to see."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from served_bases import JSON, rows
from sqlalchemy import text

from ibcl.serve import Settings, create_app, database
from ibcl.serve.logs import JsonLines
from ibcl.serve.tokens import Tokens

EVEN = {"sci-fi": 0.5, "horror": 0.5}
ADMINISTRATORS = [
    ("GET", "/metrics"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/0123456789ab"),
    ("POST", "/v1/versions/newest/activate"),
    ("DELETE", "/v1/versions/01234567"),
]


@pytest.fixture
def guarded(settings):
    """Return a service with tokens for an administrator, ann and bob."""
    app = create_app(settings)
    tokens = app.state.service.tokens
    made = {
        name: tokens.issue(user) for name, user in (("admin", None), ("ann", "ann"), ("bob", "bob"))
    }
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client, {name: {"Authorization": f"Bearer {token}"} for name, token in made.items()}


def test_with_tokens_everybody_needs_one(guarded):
    client, headers = guarded
    body = {"rows": rows("sci-fi", 1), "preference": EVEN}
    for wrong in (
        {},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": headers["ann"]["Authorization"][:-1]},
        {"Authorization": headers["ann"]["Authorization"] + "é"},
    ):
        answer = client.post(
            "/v1/predict", json=body, headers={k: v.encode() for k, v in wrong.items()}
        )
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert client.post("/v1/predict", json=body, headers=headers["ann"]).status_code == 200
    assert client.get("/health").status_code == client.get("/ready").status_code == 200


def test_a_users_token_is_good_for_that_user_only(guarded):
    client, headers = guarded
    path, given = "/v1/users/ann", rows("sci-fi", 1)
    requests = [
        ("PUT", f"{path}/preference", EVEN),
        ("GET", f"{path}/preference", None),
        ("GET", f"{path}/history", None),
        ("POST", f"{path}/infer", {"rows": given}),
        ("POST", "/v1/predict", {"rows": given, "user": "ann"}),
        ("DELETE", f"{path}/preference", None),
    ]
    for who, allowed in (("ann", True), ("bob", False), ("admin", True)):
        for method, target, body in requests:
            answer = client.request(method, target, json=body, headers=headers[who])
            assert answer.status_code in ((200, 204) if allowed else (403,))


@pytest.mark.parametrize(("method", "path"), ADMINISTRATORS)
def test_only_administrators_change_the_service(guarded, method, path):
    client, headers = guarded
    body = {"json": {}} if method == "POST" and path.endswith("tokens") else {}
    assert client.request(method, path, headers=headers["ann"], **body).status_code == 403
    assert client.request(method, path, headers=headers["admin"], **body).status_code != 403


def test_tokens_are_issued_listed_and_revoked(guarded):
    client, headers = guarded
    made = client.post("/v1/tokens", json={"user": "cid"}, headers=headers["admin"]).json()["token"]
    own = {"Authorization": f"Bearer {made}"}
    assert client.put("/v1/users/cid/preference", json=EVEN, headers=own).status_code == 200
    listed = client.get("/v1/tokens", headers=headers["admin"]).json()["tokens"]
    (token,) = (entry["id"] for entry in listed if entry["user"] == "cid")
    assert client.delete(f"/v1/tokens/{token}", headers=headers["admin"]).status_code == 204
    assert client.delete(f"/v1/tokens/{token}", headers=headers["admin"]).status_code == 404
    assert client.get("/v1/users/cid/preference", headers=own).status_code == 401


def test_only_digests_are_kept(tmp_path):
    engine = database.open_database(f"sqlite:///{tmp_path}/users.sqlite")
    token = Tokens(engine).issue("ann")
    secret = token.rsplit("_", 1)[1]
    with engine.connect() as connection:
        everything = str(connection.execute(text("SELECT * FROM tokens")).all())
    assert secret not in everything
    assert len(token) > 43
    engine.dispose()
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes()


def test_the_first_token_is_not_made_over_the_network(client):
    assert client.post("/v1/tokens", json={}).status_code == 409


def test_without_tokens_only_this_machine_is_answered(client):
    assert client.get("/v1/tasks", headers={"Host": "evil.example"}).status_code == 403
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
        assert client.get("/v1/tasks", headers={"Host": host}).status_code == 200


def test_pages_have_security_headers_and_data_is_never_stored_or_guessed_at(client):
    for path in ("/", "/page/explorer.js", "/nowhere", "/health"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
    for path in ("/v1/tasks", "/v1/users/nobody/preference", "/v1/nowhere"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def chunks(size):
    for _ in range(size // 1000):
        yield b"x" * 1000


@pytest.mark.parametrize("body", [b"x" * 5_000, chunks(5_000)])
def test_bodies_are_limited(base, body):
    with TestClient(create_app(Settings(base, body_limit=2_000))) as client:
        answer = client.post(
            "/v1/predict", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 413
        assert client.put("/v1/users/ann/preference", json=EVEN).status_code == 200


# A prediction's request, as a server hands it over before its body.
SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/v1/predict",
    "headers": [(b"content-type", b"application/json")],
    "client": ("127.0.0.1", 1),
}


def test_a_caller_who_hangs_up_is_no_fault(client, caplog):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    with caplog.at_level(logging.INFO, logger="ibcl.serve"):
        asyncio.run(client.app(dict(SCOPE), receive, send))
    assert sent == []
    (line,) = (json.loads(JsonLines().format(record)) for record in caplog.records)
    assert (line["event"], line["status"]) == ("request", 499)


def test_a_caller_for_whom_there_is_no_time_is_told_to_come_back(client, caplog):
    """The server cancels what is still under way some time after it was told to stop."""
    sent = []

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    async def stop_soon():
        asked = asyncio.create_task(client.app(dict(SCOPE), receive, send))
        await asyncio.sleep(0.1)
        asked.cancel()
        await asked

    with caplog.at_level(logging.INFO, logger="ibcl.serve"):
        asyncio.run(stop_soon())
    begin, body = sent
    assert begin["status"] == 503
    assert (b"retry-after", b"1") in begin["headers"]
    assert "stopping" in json.loads(body["body"])["error"]
    (line,) = (json.loads(JsonLines().format(record)) for record in caplog.records)
    assert (line["event"], line["status"]) == ("request", 503)


def test_rows_and_preferences_are_limited(client):
    too_many = {"rows": [{"year": 1}] * 10_001, "preference": EVEN}
    assert client.post("/v1/predict", json=too_many).status_code == 422
    long = {f"task {n}": 0.001 for n in range(2**16 + 1)}
    assert (
        client.post("/v1/predict", json={"rows": [{"year": 1}], "preference": long}).status_code
        == 422
    )


def test_callers_are_limited_in_how_often_they_ask(base):
    with TestClient(create_app(Settings(base, rate=5))) as client:
        answers = [client.get("/v1/tasks") for _ in range(40)]
    statuses = [answer.status_code for answer in answers]
    assert statuses[:10] == [200] * 10
    assert 429 in statuses
    assert answers[statuses.index(429)].headers["retry-after"] == "1"


def test_a_fault_inside_is_told_without_its_details(client, monkeypatch, caplog):
    service = client.app.state.service

    def fail(*_):
        raise RuntimeError("the secret of row 17")

    monkeypatch.setattr(service.versions.active, "predict", fail)
    with caplog.at_level(logging.INFO, logger="ibcl.serve"):
        answer = client.post("/v1/predict", json={"rows": rows("sci-fi", 1), "preference": EVEN})
    assert answer.status_code == 500
    assert set(answer.json()) == {"error"}
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    lines = [JsonLines().format(record) for record in caplog.records]
    assert any(json.loads(line)["event"] == "fault" for line in lines)
    assert not any("secret" in line for line in lines)


def test_logs_are_json_lines_without_anything_personal(client, caplog):
    with caplog.at_level(logging.INFO, logger="ibcl.serve"):
        client.put(
            "/v1/users/ann-of-green-gables/preference",
            json={"sci-fi": 0.123456, "horror": 0.876544},
        )
        client.post(
            "/v1/predict",
            json={
                "rows": [{"year": 12.3456, "minutes": 1, "mood": "gloomy"}],
                "user": "ann-of-green-gables",
            },
        )
    lines = [JsonLines().format(record) for record in caplog.records]
    requests = [json.loads(line) for line in lines]
    assert [r["route"] for r in requests] == ["/v1/users/{user}/preference", "/v1/predict"]
    assert [r["status"] for r in requests] == [200, 200]
    for private in ("12.3456", "gloomy", "0.123456", "gables"):
        assert not any(private in line for line in lines)


def test_metrics_tell_what_happens(client):
    client.post("/v1/predict", json={"rows": rows("sci-fi", 7), "preference": {"horror": 1.0}})
    text = client.get("/metrics").text
    assert 'ibcl_requests_total{route="/v1/predict",status="200"} 1.0' in text
    assert "ibcl_rows_total 7.0" in text
    assert 'ibcl_preference_share{task="horror"} 1.0' in text
    drift = next(line for line in text.splitlines() if line.startswith("ibcl_gate_drift "))
    assert float(drift.split()[1]) == pytest.approx(0.0, abs=1e-9)


def test_times_come_with_their_zone(base):
    app = create_app(Settings(base))
    headers = {"Authorization": f"Bearer {app.state.service.tokens.issue()}", **JSON}
    with TestClient(app, headers=headers) as client:
        client.put("/v1/users/ann/preference", json={"sci-fi": 1.0})
        times = [
            client.get("/v1/tokens").json()["tokens"][0]["created"],
            client.get("/v1/users/ann/preference").json()["changed"],
            client.get("/v1/users/ann/history").json()["entries"][0]["changed"],
        ]
    assert all(datetime.fromisoformat(each).utcoffset() == timedelta(0) for each in times)


def test_warnings_are_json_lines_without_anything_personal():
    program = (
        "import warnings\n"
        "from ibcl.serve.logs import start_logging\n"
        "start_logging()\n"
        "warnings.warn('The column income holds 12345.')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["event"], line["warning"]) == ("warning", "UserWarning")
    assert "12345" not in done.stderr
