"""What is kept of users: their preferences, how they came about, and how they follow feedback."""

from __future__ import annotations

import pandas as pd
import pytest
from served_bases import films, rows

import ibcl

ANN = "/v1/users/ann/preference"


@pytest.mark.parametrize(
    "body", [{"preference": {"sci-fi": 0.3, "horror": 0.7}}, {"sci-fi": 0.3, "horror": 0.7}]
)
def test_a_preference_is_stored_read_used_and_deleted(client, body):
    stored = client.put(ANN, json=body)
    assert stored.status_code == 200
    assert stored.json()["preference"] == {"sci-fi": 0.3, "horror": 0.7}
    assert client.get(ANN).json() == stored.json()
    given = rows("horror", 3)
    by_user = client.post("/v1/predict", json={"rows": given, "user": "ann"}).json()
    direct = client.post(
        "/v1/predict", json={"rows": given, "preference": {"sci-fi": 0.3, "horror": 0.7}}
    ).json()
    assert by_user == direct
    assert client.delete(ANN).status_code == 204
    assert client.get(ANN).status_code == 404
    assert client.delete(ANN).status_code == 404
    assert client.post("/v1/predict", json={"rows": given, "user": "ann"}).status_code == 404


def test_history_tells_every_change_the_newest_first(client):
    client.put(ANN, json={"sci-fi": 1.0})
    client.put(ANN, json={"horror": 1.0})
    client.post("/v1/users/ann/infer", json={"rows": rows("sci-fi", 3)})
    client.delete(ANN)
    entries = client.get("/v1/users/ann/history").json()["entries"]
    assert [entry["source"] for entry in entries] == ["deleted", "inferred", "set", "set"]
    assert [entry["preference"] for entry in entries[2:]] == [
        {"sci-fi": 0.0, "horror": 1.0},
        {"sci-fi": 1.0, "horror": 0.0},
    ]
    assert entries[0]["preference"] == {}
    assert len(client.get("/v1/users/ann/history?limit=2").json()["entries"]) == 2
    assert client.get("/v1/users/bob/history").json()["entries"] == []


def test_history_can_be_erased_with_the_preference(client):
    client.put(ANN, json={"sci-fi": 1.0})
    assert client.delete(ANN + "?history=true").status_code == 204
    assert client.get("/v1/users/ann/history").json()["entries"] == []


@pytest.mark.parametrize("labelled", [True, False])
def test_a_first_inference_is_the_librarys(client, base, labelled):
    frames = [films("sci-fi", 14, seed=5), films("horror", 6, seed=5)]
    given = [row for frame, _ in frames for row in frame.to_dict("records")]
    labels = [label for _, labels in frames for label in labels]
    body = {"rows": given, **({"labels": labels} if labelled else {})}
    answer = client.post("/v1/users/ann/infer", json=body).json()
    expected = ibcl.load(base).infer_preference(pd.DataFrame(given), labels if labelled else None)
    assert answer["preference"] == pytest.approx(dict(expected), abs=1e-6)
    assert answer["preference"]["sci-fi"] == pytest.approx(0.7, abs=0.1)
    assert answer["examples"] == 20
    assert client.get(ANN).json()["preference"] == answer["preference"]
    assert client.get(ANN).json()["std"] == pytest.approx(answer["std"])


def test_clicks_count_and_what_was_only_shown_does_not(client):
    shown = rows("sci-fi", 8) + rows("horror", 8)
    clicked = [False] * 8 + [True] * 8
    by_clicks = client.post("/v1/users/ann/infer", json={"rows": shown, "clicked": clicked}).json()
    directly = client.post("/v1/users/bob/infer", json={"rows": rows("horror", 8)}).json()
    assert by_clicks == directly
    assert by_clicks["preference"]["horror"] > 0.9


def test_a_preference_follows_a_user_whose_taste_changes(client):
    path = "/v1/users/ann/infer"
    for seed in range(5):
        client.post(path, json={"rows": rows("sci-fi", 10, seed), "forgetting": 0.9})
    before = client.get(ANN).json()["preference"]
    for seed in range(3):
        client.post(path, json={"rows": rows("horror", 10, seed), "forgetting": 0.9})
    after = client.get(ANN).json()["preference"]
    assert before["sci-fi"] > 0.9
    assert after["horror"] > 0.85
    kept = client.post(path, json={"rows": rows("sci-fi", 1), "store": False}).json()
    assert client.get(ANN).json()["preference"] == after != kept["preference"]


def test_what_a_user_says_outweighs_a_single_example(client):
    client.put(ANN, json={"sci-fi": 0.0, "horror": 1.0})
    client.post("/v1/users/ann/infer", json={"rows": rows("sci-fi", 1)})
    assert client.get(ANN).json()["preference"]["horror"] > 0.8
    restarted = client.post(
        "/v1/users/ann/infer", json={"rows": rows("sci-fi", 9), "restart": True}
    )
    assert restarted.json()["preference"]["sci-fi"] > 0.9


def test_inference_for_nobody_stores_nothing(client):
    found = client.post("/v1/infer", json={"rows": rows("sci-fi", 9)}).json()
    assert found["preference"]["sci-fi"] > 0.9
    assert client.get(ANN).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"labels": ["liked"]}, 409, "one per row"),
        ({"clicked": [True]}, 409, "one per row"),
        ({"labels": ["adored", "not"]}, 409, "adored"),
        ({"rows": [{"year": 1}]}, 422, "lacks the column"),
    ],
)
def test_examples_that_do_not_fit_are_refused(client, body, status, said):
    answer = client.post("/v1/users/ann/infer", json={"rows": rows("sci-fi", 2), **body})
    assert answer.status_code == status
    assert said in answer.json()["error"]
    assert client.get(ANN).status_code == 404


@pytest.mark.parametrize("user", ["a b", "ä", "x" * 129, "a%2Fb", "%00"])
def test_odd_names_of_users_are_refused(client, user):
    answer = client.put(f"/v1/users/{user}/preference", json={"sci-fi": 1.0})
    assert answer.status_code in (404, 422)
