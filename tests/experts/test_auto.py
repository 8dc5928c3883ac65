"""Boosting beside heads: how many trees it has, and what it reads of a table."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss

import ibcl
from ibcl.experts import Auto, ExpertPart
from ibcl.experts.auto import MOST_TREES
from ibcl.tasks import TaskData, as_task

pytest.importorskip("skops")


def stripes(rows: int, seed: int) -> TaskData:
    """Noisy stripes, on which many trees are too many."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 2)).astype(np.float32)
    return as_task(x, (np.sin(3 * x[:, 0]) + random.normal(size=rows) > 0).astype(np.float32))


def halves(rows: int, seed: int) -> tuple[TaskData, TaskData]:
    data = stripes(2 * rows, seed)
    return TaskData(data.x[:rows], data.y[:rows]), TaskData(data.x[rows:], data.y[rows:])


def test_boosting_stops_where_held_out_rows_are_most_probable():
    learnt, kept = halves(300, 0)
    trial = Auto().trial(learnt, kept, 2, seed=0)
    whole = HistGradientBoostingClassifier(early_stopping=False, random_state=0)
    whole.fit(learnt.x.numpy(), learnt.y.long().numpy())
    losses = [log_loss(kept.y, each) for each in whole.staged_predict_proba(kept.x.numpy())]
    assert trial.trees == int(np.argmin(losses)) + 1 < MOST_TREES
    stages = list(whole.staged_predict_proba(kept.x.numpy()))
    assert np.allclose(trial.answers, stages[trial.trees - 1], atol=1e-5)


def test_values_stop_too():
    learnt, kept = (TaskData(part.x, part.x[:, :1] + 0.0) for part in halves(200, 1))
    trial = Auto().trial(learnt, kept, None, seed=0)
    whole = HistGradientBoostingRegressor(early_stopping=False, random_state=0)
    whole.fit(learnt.x.numpy(), learnt.y.double().numpy()[:, 0])
    stages = list(whole.staged_predict(kept.x.numpy()))
    errors = [np.square(each - kept.y.numpy()[:, 0]).mean() for each in stages]
    assert trial.trees == int(np.argmin(errors)) + 1
    assert np.allclose(trial.answers[:, 0], stages[trial.trees - 1], atol=1e-5)


def test_held_out_rows_of_classes_that_were_not_learnt_are_answered_all_the_same():
    learnt, kept = halves(150, 2)
    others = TaskData(kept.x, torch.where(kept.x[:, 1] > 1, 2, kept.y.long()))
    trial = Auto().trial(TaskData(learnt.x, learnt.y.long()), others, 3, seed=0)
    assert trial.answers.shape == (150, 3)
    assert not trial.answers[:, 2].any()


def test_weights_count_in_learning_and_in_stopping():
    learnt, kept = halves(120, 3)
    counts = torch.randint(1, 4, (120,), generator=torch.Generator().manual_seed(0))
    weighted = [TaskData(part.x, part.y, counts.float()) for part in (learnt, kept)]
    repeated = [
        TaskData(part.x.repeat_interleave(counts, 0), part.y.repeat_interleave(counts))
        for part in (learnt, kept)
    ]
    # Leaves have a least number of rows, so that only what is stopped by can be compared.
    once = Auto().trial(learnt, weighted[1], 2, seed=0)
    often = Auto().trial(learnt, repeated[1], 2, seed=0)
    assert once.trees == often.trees
    assert Auto().trial(*weighted, 2, seed=0).answers.shape == (120, 2)


def towns(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """What is bought depends on the town, in no order of their names."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "town": random.choice([f"town {number}" for number in range(12)], size=rows),
            "size": random.normal(size=rows),
            "kind": random.choice(["old", "new", None], size=rows),
        }
    )
    odd = frame["town"].str.split().str[1].astype(int) % 2 == 1
    return frame, np.where(odd == (frame["size"] > 0), "yes", "no")


def test_boosting_reads_a_column_of_categories_as_one(tmp_path):
    frame, bought = towns(600, 0)
    estimator = ibcl.IBCLClassifier("linear", expert="auto").fit(frame, bought, task="shops")
    part = estimator.learner_.knowledge.parts[0][ExpertPart.kind]
    assert part.fitted.estimator.n_features_in_ == 3
    assert ExpertPart.decode(part.encode()).groups == part.groups
    assert ExpertPart.decode(part.encode()).encode() == part.encode()
    fresh, right = towns(300, 1)
    fresh.loc[0, "town"] = "nowhere"
    assert (estimator.predict(fresh) == right).mean() > 0.9
    estimator.learner_.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base").model("shops")
    assert np.array_equal(
        again.predict_proba(fresh), estimator.learner_.model("shops").predict_proba(fresh)
    )


def test_columns_of_categories_beyond_an_experts_own_are_refused():
    frame, bought = towns(400, 0)
    estimator = ibcl.IBCLClassifier("linear", expert="auto").fit(frame, bought, task="shops")
    data = estimator.learner_.knowledge.parts[0][ExpertPart.kind].encode()
    line, _, rest = data.partition(b"\n")
    assert b'"groups": [[1, ' in line
    with pytest.raises(ValueError, match="among its own"):
        ExpertPart.decode(line.replace(b"[[1, ", b"[[90, ") + b"\n" + rest)
