import pickle

import pytest
import torch
from torch import nn

from ibcl.networks import FlatNetwork, build, linear, mlp, random_features, with_backbone

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.normalisation = nn.BatchNorm2d(2)
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(torch.relu(self.normalisation(self.convolution(x))).mean((2, 3)))


@pytest.mark.parametrize(
    "module",
    [
        linear(4, 2),
        mlp(4, hidden=(6, 5)),
        random_features(4, 8),
        random_features(4, 8, 2, skip=True),
        nn.Linear(4, 1),
    ],
)
def test_the_flat_view_computes_what_the_module_does(module):
    network = FlatNetwork(module)
    theta = torch.randn(3, network.dimension)
    outputs = network.outputs_of_many(theta, X)
    for row, expected in zip(theta, outputs, strict=True):
        torch.testing.assert_close(network.module(row)(X), expected)
        torch.testing.assert_close(network(row, X), expected)


def test_any_module_works_and_stays_untouched():
    module = Convolution()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = FlatNetwork(module)
    x = torch.randn(4, 1, 6, 6)
    theta = network.initial_parameters(torch.Generator().manual_seed(0))
    assert network(theta, x).shape == (4, 3)
    assert network.outputs_of_many(theta.expand(5, -1), x).shape == (5, 4, 3)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_frozen_parameters_are_not_part_of_theta():
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    module[0].requires_grad_(False)
    network = FlatNetwork(module)
    assert network.dimension == 4
    assert set(network.frozen_state) == {"0.weight", "0.bias"}
    assert network.linear_layers() is None
    assert network.linear_head().layer.in_features == 3
    assert torch.equal(network.module(torch.zeros(4))[0].weight, module[0].weight)


@pytest.mark.parametrize(
    "module",
    [
        linear(4, 2),
        mlp(4, 6, 2, "tanh"),
        random_features(4, 8),
        random_features(4, 8, 2, skip=True),
    ],
)
def test_a_specification_rebuilds_the_same_network(module):
    again = build(module.specification)
    assert FlatNetwork(again).fingerprint == FlatNetwork(module).fingerprint
    theta = torch.randn(FlatNetwork(module).dimension)
    torch.testing.assert_close(FlatNetwork(again)(theta, X), FlatNetwork(module)(theta, X))


def test_with_skip_the_inputs_come_first_and_the_random_features_stay_the_same():
    plain, skipping = random_features(4, 8, seed=2), random_features(4, 8, seed=2, skip=True)
    torch.testing.assert_close(skipping[0](X), torch.cat([X, plain[0](X)], 1))
    # Every linear function of x is among its models, whatever the random features are.
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0])
    theta = torch.cat([weights, torch.zeros(8), torch.tensor([0.7])])
    torch.testing.assert_close(FlatNetwork(skipping)(theta, X)[:, 0], X @ weights + 0.7)


def test_fingerprints_tell_networks_apart():
    networks = [
        linear(4),
        linear(4, 2),
        mlp(4),
        random_features(4),
        random_features(4, seed=1),
        random_features(4, width=252, skip=True),
    ]
    assert len({FlatNetwork(network).fingerprint for network in networks}) == len(networks)


def test_the_start_is_seeded_and_scaled_by_the_fan_in():
    network = FlatNetwork(mlp(400, hidden=200))
    one, two = (network.initial_parameters(torch.Generator().manual_seed(s)) for s in (1, 1))
    assert torch.equal(one, two)
    parameters = network.unflatten(one)
    assert float(parameters["0.weight"].std()) == pytest.approx(400**-0.5, rel=0.05)
    assert float(parameters["0.bias"].abs().max()) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear(0), "inputs must be"),
        (lambda: mlp(3, hidden=[4, 0]), "hidden"),
        (lambda: mlp(3, activation="step"), "activation"),
        (lambda: random_features(3, width=1.5), "width"),
        (lambda: random_features(3, skip="yes"), "skip must be True or False"),
        (lambda: random_features(3, seed=2**64), "seed must be a whole number"),
        (lambda: random_features(3, seed=-(2**63) - 1), "seed must be a whole number"),
        (lambda: random_features(3, seed=0.5), "seed must be a whole number"),
        (lambda: build({"kind": "transformer"}), "Unknown network kind"),
        (lambda: build({"kind": "linear", "colour": 1}), "not valid"),
        (lambda: FlatNetwork("linear"), "torch.nn.Module"),
        (lambda: FlatNetwork(nn.ReLU()), "no trainable parameters"),
    ],
)
def test_bad_networks_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_many_rows_are_embedded_in_blocks_that_do_not_show():
    network = FlatNetwork(random_features(4, 8))
    x = torch.randn(4096 + 5, 4, generator=torch.Generator().manual_seed(1))
    whole = network.features(x)
    assert whole.shape == (4101, 8)
    torch.testing.assert_close(whole[4090:], network.features(x[4090:]))
    assert network.features(x[:0]).shape == (0, 8)


def test_networks_say_how_wide_their_features_are():
    assert FlatNetwork(random_features(4, 8)).columns == 8
    assert FlatNetwork(random_features(4, 8, skip=True)).columns == 12
    assert FlatNetwork(mlp(4)).columns == 4
    assert FlatNetwork(Convolution()).columns is None
    positions = FlatNetwork(linear(2, 3)).linear_head().positions
    assert positions.tolist() == [[0, 1, 6], [2, 3, 7], [4, 5, 8]]
    bare = FlatNetwork(nn.Linear(2, 3, bias=False)).linear_head().positions
    assert bare.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_network_can_be_pickled_and_goes_on_the_same():
    network = FlatNetwork(mlp(4, 3))
    theta = torch.randn(network.dimension)
    before = network(theta, X)
    again = pickle.loads(pickle.dumps(network))
    assert torch.equal(again(theta, X), before)


def test_rows_of_another_width_are_refused_where_the_width_is_known():
    network = FlatNetwork(linear(4))
    network.check_width(X)
    with pytest.raises(ValueError, match="needs rows of 4 numbers"):
        network.check_width(X[:, :3])
    with pytest.raises(ValueError, match="needs rows of 4 numbers"):
        network.check_width(X[None])
    FlatNetwork(nn.Linear(4, 1)).check_width(X[:, :3])


def test_a_backbone_is_copied_and_frozen_in_evaluation_mode():
    backbone = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.9), nn.BatchNorm1d(6))
    network = FlatNetwork(with_backbone(backbone, 6, outputs=2))
    assert network.is_linear
    assert network.dimension == 14
    assert torch.equal(network.features(X), network.features(X))
    torch.testing.assert_close(network.features(X), backbone.eval()(X).detach())
    with pytest.raises(ValueError, match="features must be"):
        with_backbone(backbone, 0)
