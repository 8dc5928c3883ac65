"""Memory is asked for before it is taken."""

import os

import pytest
import torch

from ibcl import IBCL, DiagonalGaussian, MeanFieldVI, OneVsRestVI, networks, ram
from ibcl.inference.sites import needed_bytes
from ibcl.likelihoods import OneVsRest
from ibcl.networks import FlatNetwork, linear
from ibcl.ram import available_memory, check_memory
from ibcl.tasks import TaskData


def test_there_is_memory_and_no_more_than_the_machine_has():
    available = available_memory()
    assert available is not None
    assert 2**24 < available <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_what_fits_is_let_through_and_what_does_not_is_refused():
    available = available_memory()
    check_memory(available // 4, "This", "nothing")
    with pytest.raises(ValueError, match=r"This needs about .* GiB .*; use less\."):
        check_memory(4 * available, "This", "use less")


def test_the_estimate_grows_with_what_is_computed():
    """D×D matrices and the two of every remembered step in doubles, and the features in floats."""
    assert needed_bytes(0, 10, 3) == 8 * (7 + 2 * 10) * 30**2
    per_sample = needed_bytes(1, 10, 3) - needed_bytes(0, 10, 3)
    assert per_sample == 4 * (10 + 3)
    assert needed_bytes(5, 10, 3) == needed_bytes(0, 10, 3) + 5 * per_sample


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Sets what the system says of its memory and of a container's limit; None where nothing."""

    def set_up(free=None, limit=None, physical=2**50):
        for name, text in (("_STATE", free), ("_LIMIT", limit)):
            path = tmp_path / name
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
            monkeypatch.setattr(ram, name, path)
        monkeypatch.setattr(ram, "_physical", lambda: physical)

    return set_up


def test_the_least_of_what_the_system_says_is_available(machine):
    state = "MemTotal:  9000 kB\nMemAvailable:  5000 kB\nMemFree:  10 kB\n"
    machine(free=state)
    assert available_memory() == 5000 * 1024
    machine(free=state, limit="2048\n")
    assert available_memory() == 2048
    machine(free=state, limit="max\n")
    assert available_memory() == 5000 * 1024
    machine(free=state, limit="max\n", physical=77)
    assert available_memory() == 77
    machine(free="MemTotal:  9000 kB\n")
    assert available_memory() == 2**50
    machine(physical=None)
    assert available_memory() is None
    check_memory(2**60, "What nobody can judge", "nothing")


def test_what_fits_to_the_last_byte_is_let_through(machine):
    machine(limit="1000")
    check_memory(1000, "This", "nothing")
    with pytest.raises(ValueError, match="more than there is"):
        check_memory(1001, "This", "use less")


def test_one_covariance_a_class_is_asked_for(machine):
    machine(limit=str(2**24))

    def learn(classes, columns):
        network = FlatNetwork(linear(columns, classes))
        zero = torch.zeros(network.dimension)
        data = TaskData(torch.randn(6, columns), torch.arange(6) % classes)
        prior = DiagonalGaussian(zero, torch.ones_like(zero))
        return OneVsRestVI().infer(network, OneVsRest(), [prior], data)

    assert len(learn(3, 20).posteriors) == 1
    # Too many classes, and too many columns: classes · columns² numbers, a few times.
    for classes, columns in ((2000, 20), (3, 600)):
        with pytest.raises(ValueError, match=f"covariances of {classes} classes"):
            learn(classes, columns)


@pytest.mark.parametrize(
    "build",
    [
        lambda: networks.linear(10**6, 10**6),
        lambda: networks.random_features(2, 10**12),
        lambda: networks.mlp(4, hidden=[10**7, 10**7]),
    ],
)
def test_networks_are_refused_before_they_are_made(build):
    with pytest.raises(ValueError, match=r"A network of layers of .* needs about .* use narrower"):
        build()


def test_features_are_refused_before_they_are_computed(machine):
    machine(limit=str(2**28))
    learner = IBCL(networks.random_features(2, 20_000))
    with pytest.raises(ValueError, match=r"covariance of 20,001 parameters needs about .* GiB"):
        learner.learn(torch.randn(20, 2), torch.arange(20) % 2)
    # Without covariances it can be learnt.
    machine()
    learner = IBCL(networks.random_features(2, 20), inference=MeanFieldVI(epochs=1))
    machine(limit=str(2**12))
    learner.learn(torch.randn(20, 2), torch.arange(20) % 2)


def test_where_the_system_says_no_more_it_is_the_whole_memory(monkeypatch, tmp_path):
    for name in ("_STATE", "_LIMIT"):
        monkeypatch.setattr(ram, name, tmp_path / "nowhere")
    assert available_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
