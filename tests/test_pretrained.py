"""Networks that are trained already: the start of learning and the centre of the prior."""

import pytest
import torch
from torch import nn

import ibcl
from ibcl.defaults import as_priors
from kinds import probes, task


def trained_network(seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network trained on many rows, and fresh inputs with their labels."""
    generator = torch.Generator().manual_seed(seed)
    slope = torch.randn(20, generator=generator)
    x = torch.randn(3000, 20, generator=generator)
    y = (x @ slope + 2 * x[:, 0] * x[:, 1] > 0).float()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(150):
        loss = nn.functional.binary_cross_entropy_with_logits(network(x[:2000])[:, 0], y[:2000])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network, x[2000:], y[2000:]


def test_a_trained_network_keeps_what_it_knows_after_a_few_rows():
    network, x, y = trained_network(0)
    before = float(((network(x)[:, 0] > 0) == y.bool()).float().mean())
    assert before > 0.9
    learnt = {}
    for name, given in (("trained", network), ("drawn", ibcl.networks.redrawn(network))):
        learner = ibcl.IBCL(given)
        learner.learn(x[:40], y[:40], task="few")
        answers = learner.model("few").predict(x[40:])
        learnt[name] = float((answers == y[40:]).float().mean())
    assert learnt["trained"] > before - 0.015
    assert learnt["drawn"] < before - 0.05


def modules(outputs: int) -> dict[str, nn.Module]:
    """Modules as torch draws them."""
    return {
        "linear": nn.Linear(6, outputs),
        "network": nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, outputs)),
    }


@pytest.mark.parametrize("rows", [60, 600])
@pytest.mark.parametrize("module", ["linear", "network"])
@pytest.mark.parametrize("labels", ["two", "three", "values"])
def test_a_module_that_nobody_trained_learns_as_a_built_one_does(labels, module, rows):
    """Weights just drawn say nothing of the task, and must not hold it back."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows + 500, 6, generator=generator)
    found = {
        "two": (x[:, 0] > 0).float(),
        "three": x[:, :3].argmax(1),
        "values": 2 * x[:, 0] + 0.1 * torch.randn(len(x), generator=generator),
    }
    y = found[labels]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = modules(3 if labels == "three" else 1)[module]
    learner = ibcl.IBCL(network)
    learner.learn(x[:rows], y[:rows], task="first")
    answers = learner.model("first").predict(x[rows:])
    if labels == "values":
        assert float((answers - y[rows:]).square().mean() / y.var()) < 0.25
    else:
        assert float((answers == y[rows:]).float().mean()) > 0.75


def test_a_loaded_learner_goes_on_from_the_weights_it_began_with(tmp_path):
    def fresh() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    learner = ibcl.IBCL(fresh())
    learner.learn(x, x[:, 0] > 0, task="first")
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base", network=fresh())
    for each in (learner, again):
        each.learn(x, x[:, 1] > 0, task="second")
    ours, theirs = (each.model([0.5, 0.5]).predict_proba(x) for each in (learner, again))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("std", [0.1, 2.0])
def test_priors_given_by_their_width_are_around_trained_weights(std):
    layer = nn.Linear(3, 1)
    own = torch.cat([layer.weight.flatten(), layer.bias]).detach()
    flat = ibcl.networks.FlatNetwork(layer)
    (prior,) = as_priors([std], flat)
    assert torch.equal(prior.mean, own)
    (drawn,) = as_priors([std], ibcl.networks.FlatNetwork(ibcl.networks.redrawn(layer)))
    assert not drawn.mean.any()


def test_a_trained_linear_regression_is_its_own_prior_mean():
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, -2.0]]))
        layer.bias.fill_(1.0)
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    learner = ibcl.IBCL(layer, likelihood="gaussian")
    learner.learn(x, layer(x).detach()[:, 0] + 0.01 * torch.tensor([1.0, -1.0, 1.0, -1.0]))
    far = 10 * torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    answers = learner.model([1.0]).predict(far)
    assert torch.allclose(answers, layer(far).detach()[:, 0], atol=0.5)


def test_the_head_behind_a_fixed_part_knows_whether_it_is_trained():
    backbone = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    for network, trained in (
        (ibcl.networks.with_backbone(backbone, 4), False),
        (ibcl.networks.random_features(3, 4), False),
        (nn.Sequential(backbone.requires_grad_(False), nn.Linear(4, 1)), True),
    ):
        assert ibcl.networks.FlatNetwork(network).head.pretrained is trained


def test_a_base_remembers_that_weights_were_drawn(tmp_path):
    """Opened with the plain module, it goes on learning as it would have without leaving."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    quick = ibcl.MeanFieldVI(epochs=2)
    stayed = ibcl.IBCL(ibcl.networks.redrawn(module), inference=quick)
    stayed.learn(*task("binary", 0), task="a")
    stayed.save(tmp_path / "kb")
    opened = ibcl.load(tmp_path / "kb", network=module)
    for learner in (stayed, opened):
        learner.learn(*task("binary", 1), task="b")
    x = probes(8)
    assert torch.equal(opened.model("b").predict_proba(x), stayed.model("b").predict_proba(x))
    started = ibcl.IBCL(module, [1.0], quick)
    started.learn(*task("binary", 1), task="b")
    assert not torch.equal(started.model("b").predict_proba(x), stayed.model("b").predict_proba(x))
