"""What a head would answer to a row it had not learnt, without learning it again."""

import numpy as np
import pytest
import torch

import ibcl
from ibcl.experts import leave_one_out
from ibcl.likelihoods import Bernoulli, Normal, OneVsRest
from ibcl.tasks import TaskData


def _posterior(x, y, **settings):
    learner = ibcl.IBCL(ibcl.networks.linear(x.shape[1], settings.pop("outputs", 1)), **settings)
    learner.learn(x, y, task="only")
    return learner, learner.knowledge.extremes("only")[0]


def _answers_without(x, y, row, **settings):
    kept = torch.arange(len(x)) != row
    learner, _ = _posterior(x[kept], y[kept], **settings)
    return learner.model("only")


def test_it_is_exact_for_values():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 2, generator=generator)
    y = x @ torch.tensor([1.0, -2.0]) + 0.5 * torch.randn(12, generator=generator)
    settings = {"priors": [1.0], "likelihood": Normal(0.5)}
    learner, posterior = _posterior(x, y, **settings)
    found = leave_one_out(
        learner.state.network.head, Normal(0.5), posterior, TaskData(x, y[:, None])
    )
    for row in range(len(x)):
        without = _answers_without(x, y, row, **settings).predict(x[row : row + 1])
        assert float(found[row]) == pytest.approx(float(np.asarray(without).item()), abs=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_close_for_classes(classes):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 3, generator=generator)
    noise = 0.7 * torch.randn(40, classes, generator=generator)
    y = (x[:, :classes] + noise).argmax(1)
    settings = {"priors": [1.0], "outputs": 1 if classes == 2 else 3}
    settings["pooling"] = ibcl.RoutedEvidence(head_share=1.0)
    learner, posterior = _posterior(x, y, **settings)
    likelihood = Bernoulli() if classes == 2 else OneVsRest()
    data = TaskData(x, y if classes > 2 else y.float())
    found = leave_one_out(learner.state.network.head, likelihood, posterior, data).numpy()
    seen = np.asarray(learner.model("only").predict_proba(x))
    refitted = np.concatenate(
        [
            _answers_without(x, y, row, **settings).predict_proba(x[row : row + 1])
            for row in range(40)
        ]
    )
    optimism = np.abs(seen - refitted).mean()
    assert np.abs(found - refitted).mean() < 0.25 * optimism
