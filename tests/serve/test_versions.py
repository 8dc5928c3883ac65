"""A knowledge base that changes under a running service."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from s3_buckets import new_bucket, start_server
from served_bases import JSON, films, grown, rows

import ibcl
from ibcl.serve import Settings, create_app
from ibcl.serve.versions import Versions

EVEN = {"sci-fi": 0.5, "horror": 0.5}


def wait_for(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def tasks(client):
    return client.get("/v1/tasks").json()["tasks"]


def test_a_new_task_is_picked_up_without_failing_a_request(client, base):
    client.put("/v1/users/ann/preference", json=EVEN)
    given = rows("sci-fi", 2)
    before = client.post("/v1/predict", json={"rows": given, "user": "ann"}).json()
    statuses, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            for whose in ({"user": "ann"}, {"preference": EVEN}):
                statuses.append(
                    client.post("/v1/predict", json={"rows": given, **whose}).status_code
                )

    asking = threading.Thread(target=ask)
    asking.start()
    grown(base, 3)
    wait_for(lambda: len(tasks(client)) == 3)
    stop.set()
    asking.join()
    assert set(statuses) == {200}
    after = client.post("/v1/predict", json={"rows": given, "user": "ann"}).json()
    assert before["filled"] == {}
    assert after["filled"] == {"romance": 0.0}
    assert after["version"] != before["version"]
    model = ibcl.load(base).model({**EVEN, "romance": 0.0})
    assert np.allclose(after["probabilities"], model.predict_proba(pd.DataFrame(given)))


def test_what_a_writer_removes_meanwhile_keeps_no_version_back(base, tmp_path, monkeypatch):
    """A manifest is replaced before the files that only the earlier one named are removed."""
    versions = Versions(base, tmp_path / "kept", limit=5)
    learner = ibcl.load(base)
    learner.forget("sci-fi")
    learner.save(base)
    leftover, link = base / "a-leftover.safetensors", os.link

    def late(source, copy):
        leftover.unlink(missing_ok=True)
        link(source, copy)

    leftover.write_bytes(b"no manifest names it any more")
    monkeypatch.setattr(os, "link", late)
    assert versions.look()
    assert versions.active.tasks == ("horror",)


@pytest.mark.parametrize("whose", ["service", "user"])
def test_new_tasks_get_the_share_that_was_chosen(base, whose):
    share = {"share_of_new_tasks": 0.2}
    chosen = Settings(base, poll=0.02, **(share if whose == "service" else {}))
    with TestClient(create_app(chosen)) as client:
        body = {"preference": EVEN, **(share if whose == "user" else {})}
        client.put("/v1/users/ann/preference", json=body)
        grown(base, 3)
        wait_for(lambda: len(tasks(client)) == 3)
        stored = client.get("/v1/users/ann/preference").json()
    assert stored["preference"] == pytest.approx({"sci-fi": 0.4, "horror": 0.4, "romance": 0.2})
    assert stored["filled"] == {"romance": 0.2}


def test_versions_side_by_side_and_rolled_back(client, base):
    first = client.get("/ready").json()["version"]
    client.put("/v1/users/ann/preference", json=EVEN)
    grown(base, 3)
    wait_for(lambda: len(tasks(client)) == 3)
    second = client.get("/ready").json()["version"]
    body = {"rows": rows("horror", 3), "user": "ann"}
    answers = [
        client.post("/v1/predict", json={**body, "version": name}).json()
        for name in (first, first[:12], second)
    ]
    assert answers[0] == answers[1]
    assert [answer["version"] for answer in answers] == [first, first, second]
    assert answers[0]["probabilities"] != answers[2]["probabilities"]
    listed = client.get("/v1/versions").json()
    assert [(v["version"], v["active"]) for v in listed["versions"]] == [
        (first, False),
        (second, True),
    ]
    assert client.delete(f"/v1/versions/{second}").status_code == 409

    assert client.post(f"/v1/versions/{first}/activate").json()["version"] == first
    assert len(tasks(client)) == 2
    assert client.post("/v1/predict", json=body).json() == answers[0]
    assert not client.get("/v1/versions").json()["following"]
    client.put("/v1/users/bob/preference", json=EVEN)
    assert client.post("/v1/versions/newest/activate").json()["version"] == second
    assert client.delete(f"/v1/versions/{first}").status_code == 204
    assert client.post("/v1/predict", json={**body, "version": first}).status_code == 404


def test_a_rollback_outlives_the_process_and_what_was_added_since(base):
    settings = Settings(base, poll=0.02)
    with TestClient(create_app(settings), headers=JSON) as client:
        first = client.get("/ready").json()["version"]
        grown(base, 3)
        wait_for(lambda: len(tasks(client)) == 3)
        client.put("/v1/users/ann/preference", json={"sci-fi": 0.5, "romance": 0.5})
        client.post(f"/v1/versions/{first}/activate")
    with TestClient(create_app(settings), headers=JSON) as client:
        assert client.get("/ready").json()["version"] == first
        stored = client.get("/v1/users/ann/preference").json()
        assert stored["preference"] == {"sci-fi": 1.0, "horror": 0.0}
        assert stored["dropped"] == {"romance": 0.5}
        client.put("/v1/users/bob/preference", json={"horror": 1.0})
        client.post("/v1/versions/newest/activate")
        only_gone = client.put("/v1/users/cid/preference", json={"romance": 1.0})
        assert only_gone.status_code == 200
        client.post(f"/v1/versions/{first}/activate")
        assert client.get("/v1/users/cid/preference").status_code == 409


def test_a_damaged_version_is_refused_and_the_old_one_goes_on(client, base):
    version = client.get("/ready").json()["version"]
    manifest = base / "manifest.json"
    whole = manifest.read_bytes()
    contents = json.loads(whole)
    contents["tasks"][0]["samples"] += 1
    manifest.write_text(json.dumps(contents))
    wait_for(lambda: "ibcl_versions_refused_total 1.0" in client.get("/metrics").text)
    assert client.get("/ready").json()["version"] == version
    manifest.write_bytes(b"no manifest")
    time.sleep(0.1)
    assert (
        client.post("/v1/predict", json={"rows": rows("horror", 1), "preference": EVEN}).status_code
        == 200
    )
    manifest.write_bytes(whole)
    grown(base, 3)
    wait_for(lambda: len(tasks(client)) == 3)


def test_where_all_tasks_are_forgotten_nothing_is_answered(client, base):
    """Neither by the version from before, nor with what users said of the forgotten tasks."""
    client.put("/v1/users/ann/preference", json=EVEN)
    asked = {"rows": rows("horror", 1), "user": "ann"}
    learner = ibcl.load(base)
    for task in learner.tasks:
        learner.forget(task)
    learner.save(base)
    wait_for(lambda: client.get("/ready").status_code == 503)
    assert "were forgotten" in client.post("/v1/predict", json=asked).json()["error"]
    assert client.get("/v1/tasks").status_code == 503
    kept = client.get("/v1/versions").json()["versions"]
    assert [(version["tasks"], version["active"]) for version in kept][-1] == ([], True)
    assert client.delete(f"/v1/versions/{kept[0]['version']}").status_code == 204
    learner.learn(*films("horror", 80, seed=9), task="horror")
    learner.save(base)
    wait_for(lambda: client.get("/ready").status_code == 200)
    assert client.post("/v1/predict", json=asked).status_code == 409
    assert "are gone" in client.get("/v1/users/ann/preference").json()["error"]


def test_a_damaged_base_is_said_by_its_own_file(base):
    damaged = next((base / "posteriors").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"^{damaged} is damaged"):
        create_app(Settings(base))


def test_only_so_many_versions_are_kept(base):
    with TestClient(create_app(Settings(base, poll=0.02, versions=1))) as client:
        grown(base, 3)
        wait_for(lambda: len(tasks(client)) == 3)
        assert len(client.get("/v1/versions").json()["versions"]) == 1


def test_without_a_knowledge_base_there_is_no_service(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        create_app(Settings(tmp_path / "nothing.ibcl"))
    ibcl.IBCL(ibcl.networks.linear(2)).save(tmp_path / "empty.ibcl")
    with pytest.raises(ValueError, match="no task yet"):
        create_app(Settings(tmp_path / "empty.ibcl"))


def test_a_version_that_a_full_disk_kept_away_is_taken_up_later(client, base, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*_):
        raise full

    monkeypatch.setattr("ibcl.serve.versions._RETRY_SECONDS", 0.1)
    with monkeypatch.context() as disk:
        disk.setattr("ibcl.serve.origins._link_or_copy", refuse)
        grown(base, 3)
        wait_for(lambda: "ibcl_versions_refused_total 1.0" in client.get("/metrics").text)
        time.sleep(0.5)
        assert "ibcl_versions_refused_total 1.0" in client.get("/metrics").text
        assert len(tasks(client)) == 2
    wait_for(lambda: len(tasks(client)) == 3)


@pytest.fixture(params=["memory", "s3"])
def url(request, tmp_path):
    if request.param == "memory":
        yield f"memory://{tmp_path.name}/movies.ibcl"
        return
    server, endpoint = start_server()
    try:
        with pytest.MonkeyPatch.context() as patch:
            yield new_bucket(endpoint, patch)
    finally:
        server.kill()
        server.wait()


def test_a_base_behind_a_url_is_served_and_followed(base, url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ibcl.serve.versions._RETRY_SECONDS", 0.1)
    ibcl.load(base).save(url)
    asked = {"rows": rows("horror", 3), "preference": EVEN}
    with TestClient(create_app(Settings(Path(url), poll=0.05)), headers=JSON) as client:
        first = client.post("/v1/predict", json=asked).json()
        expected = ibcl.load(base).model(EVEN).predict_proba(pd.DataFrame(asked["rows"]))
        assert np.allclose(first["probabilities"], expected)
        learner = ibcl.load(url)
        learner.learn(*films("romance", 80), task="romance")
        learner.save(url)
        wait_for(lambda: len(tasks(client)) == 3)
        assert client.post(f"/v1/versions/{first['version']}/activate").status_code == 200
        assert client.post("/v1/predict", json=asked).json() == first
    name = url.rpartition("/")[2]
    assert {path.name for path in tmp_path.iterdir()} == {"movies.ibcl", f"{name}.service"}
