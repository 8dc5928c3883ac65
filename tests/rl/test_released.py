"""Policies of others: every format against the network it was written from, and nothing is run."""

import os
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

pytest.importorskip("mujoco")
pytest.importorskip("moocore")

from ibcl.cli import app
from ibcl.rl.compare import compare, comparison_table, score_actor
from ibcl.rl.expected_utility import even_preferences, expected_utility
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.released import module_actor, read_actor, read_returns

OBSERVATIONS, ACTIONS = 17, 6  # of mo-halfcheetah
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(9, OBSERVATIONS))
PREFERENCES = even_preferences(9)


class PreferenceSeen(nn.Module):
    """PD-MORL's network: the preference beside the state."""

    def __init__(self, layers):
        super().__init__()
        self.affine_in = nn.Linear(OBSERVATIONS + 2, 11)
        self.affine_hid = nn.ModuleList(nn.Linear(11, 11) for _ in range(layers))
        self.affine_out = nn.Linear(11, ACTIONS)

    def forward(self, state, preference):
        values = torch.relu(self.affine_in(torch.cat([state, preference], dim=1)))
        for layer in self.affine_hid:
            values = torch.relu(layer(values))
        return torch.tanh(self.affine_out(values))


class RunningMeanStd:
    """What Hyper-MORL pickles beside its policies, by these names."""

    def __init__(self, mean, var):
        self.mean, self.var, self.count = mean, var, 1.0


class NormalizationRecorder:
    def __init__(self, mean, var):
        self.norm = {"ob_rms": RunningMeanStd(mean, var), "obj_rms": None}


class Hypernet(nn.Module):
    """Hyper-MORL's policy: a network for each preference, all of its parameters f(w) W + b."""

    def __init__(self):
        super().__init__()
        self.target_policy = nn.ModuleDict(
            {
                "base": nn.ModuleDict(
                    {
                        part: nn.Sequential(
                            nn.Linear(OBSERVATIONS, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh()
                        )
                        for part in ("actor", "critic")
                    }
                ),
                "dist": nn.ModuleDict({"fc_mean": nn.Linear(5, ACTIONS)}),
            }
        )
        count = sum(each.numel() for each in self.target_policy.parameters())
        self.hypernet = nn.Module()
        self.hypernet.W = nn.Parameter(torch.randn(3, count) / 3)
        self.hypernet.b = nn.Parameter(torch.randn(count) / 3)
        self.hypernet.pref_mlp = nn.Sequential(
            nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)
        )

    def act(self, scaled, preference):
        flat = self.hypernet.pref_mlp(preference) @ self.hypernet.W + self.hypernet.b
        torch.nn.utils.vector_to_parameters(flat, self.target_policy.parameters())
        features = self.target_policy["base"]["actor"](scaled)
        return self.target_policy["dist"]["fc_mean"](features)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_a_pd_morl_actor_acts_as_its_network(tmp_path, layers):
    network = PreferenceSeen(layers)
    torch.save(network.state_dict(), tmp_path / "actor.pkl")
    method, actor = read_actor(tmp_path / "actor.pkl")
    assert method == "PD-MORL"
    expected = network(*(torch.tensor(each).float() for each in (STATES, PREFERENCES)))
    np.testing.assert_allclose(actor(STATES, PREFERENCES), expected.detach(), atol=1e-6)


def hyper_morl_files(folder, recorder):
    folder.mkdir(exist_ok=True)
    torch.manual_seed(1)
    network = Hypernet().double()
    torch.save(network.state_dict(), folder / "policy.pt")
    (folder / "normalization.pkl").write_bytes(pickle.dumps(recorder))
    return network


@torch.no_grad()
def test_a_hyper_morl_policy_acts_as_its_networks(tmp_path):
    mean, variance = RNG.normal(size=OBSERVATIONS), RNG.uniform(0.5, 2, OBSERVATIONS)
    network = hyper_morl_files(tmp_path, NormalizationRecorder(mean, variance))
    method, actor = read_actor(tmp_path / "policy.pt")
    assert method == "Hyper-MORL"
    found = actor(STATES, PREFERENCES)
    scaled = torch.tensor((STATES - mean) / np.sqrt(variance))
    for row, preference in enumerate(torch.tensor(PREFERENCES)):
        np.testing.assert_allclose(found[row], network.act(scaled[row], preference), atol=1e-6)


def test_any_module_from_a_state_or_a_state_and_a_preference(tmp_path):
    for network in (nn.Linear(OBSERVATIONS, ACTIONS), PreferenceSeen(1)):
        file = tmp_path / "actor.pt"
        torch.jit.script(network).save(file)
        plain = module_actor(network)(STATES, PREFERENCES)
        method, actor = read_actor(file)
        assert method == "TorchScript"
        np.testing.assert_allclose(actor(STATES, PREFERENCES), plain, atol=1e-6)
    with pytest.raises(ValueError, match="takes 3 arguments"):
        module_actor(ThreeArguments())


class ThreeArguments(nn.Module):
    def forward(self, one, two, three):
        return one + two + three


class Runs:
    """A pickle that would make a folder when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_no_file_of_others_can_run_anything(tmp_path):
    trap = tmp_path / "made"
    for name, write in [("torch.pt", torch.save), ("plain.pkl", _pickle_to)]:
        write({"affine_in.weight": Runs(trap)}, tmp_path / name)
        with pytest.raises(ValueError, match="cannot be read as weights without running code"):
            read_actor(tmp_path / name)
    for recorder in (Runs(trap), NormalizationRecorder(Runs(trap), np.ones(OBSERVATIONS))):
        hyper_morl_files(tmp_path / "hyper", recorder)
        with pytest.raises(ValueError, match="holds more than arrays"):
            read_actor(tmp_path / "hyper" / "policy.pt")
    assert not trap.exists()


def _pickle_to(what, path):
    path.write_bytes(pickle.dumps(what))


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        read_actor(tmp_path / "none.pt")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="none of PD-MORL or Hyper-MORL; save the policy by"):
        read_actor(tmp_path / "other.pt")
    torch.save({"affine_in.weight": torch.zeros(2)}, tmp_path / "half.pt")
    with pytest.raises(ValueError, match=r"have no entry 'affine_in\.bias'"):
        read_actor(tmp_path / "half.pt")
    hyper_morl_files(tmp_path / "hyper", {"norm": 3})
    with pytest.raises(ValueError, match="does not hold the mean and variance"):
        read_actor(tmp_path / "hyper" / "policy.pt")
    for text in ("", "hv=1\n", "a,b\n", "1,2\n3\n", "nan,1\n"):
        (tmp_path / "objs.txt").write_text(text)
        with pytest.raises(ValueError, match="has no rows of returns"):
            read_returns(tmp_path / "objs.txt")


def test_an_actor_for_another_problem_is_one_sentence():
    with pytest.raises(ValueError, match="does not take 17 observations and 2 weights"):
        score_actor("mo-halfcheetah", module_actor(nn.Linear(3, 6)), preferences=2)
    with pytest.raises(ValueError, match=r"gives actions of shape \(2,\), but mo-halfcheetah"):
        score_actor("mo-halfcheetah", module_actor(nn.Linear(OBSERVATIONS, 2)), preferences=2)


class Pair(nn.Module):
    """Gives more than the action, under another name for itself."""

    def __init__(me):  # noqa: N805
        super().__init__()
        me.layer = nn.Linear(OBSERVATIONS, ACTIONS)

    def forward(me, state):  # noqa: N805
        return me.layer(state), state


def test_what_gives_no_finite_actions_is_one_sentence(tmp_path):
    state = PreferenceSeen(1).state_dict()
    state["affine_out.bias"] = torch.full((ACTIONS,), torch.nan)
    torch.save(state, tmp_path / "actor.pkl")
    with pytest.raises(ValueError, match="actions that are not finite"):
        compare("mo-halfcheetah", [tmp_path / "actor.pkl"], preferences=2)
    torch.jit.script(Pair()).save(tmp_path / "pair.pt")
    with pytest.raises(ValueError, match="gives a tuple, not the actions alone"):
        compare("mo-halfcheetah", [tmp_path / "pair.pt"], preferences=2)


def test_weights_in_any_precision_act(tmp_path):
    network = PreferenceSeen(1).to(torch.bfloat16)
    torch.save(network.state_dict(), tmp_path / "actor.pkl")
    _, actor = read_actor(tmp_path / "actor.pkl")
    plain = module_actor(network.float())(STATES, PREFERENCES)
    np.testing.assert_allclose(actor(STATES, PREFERENCES), plain, atol=0.05)


def test_a_damaged_torchscript_file_is_one_sentence(tmp_path):
    file = tmp_path / "actor.pt"
    torch.jit.script(nn.Linear(OBSERVATIONS, ACTIONS)).save(file)
    whole = bytearray(file.read_bytes())
    # In the weights, which torch itself would read without a word.
    place = whole.find(b"data/0") + 100
    whole[place] ^= 0xFF
    file.write_bytes(bytes(whole))
    with pytest.raises(ValueError, match="is a damaged TorchScript file"):
        read_actor(file)


def test_the_command_scores_what_it_is_given_beside_what_was_printed(tmp_path):
    torch.save(PreferenceSeen(1).state_dict(), tmp_path / "actor.pkl")
    points = [(500.0, 2500.0), (2400.0, 2000.0)]
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("hv=1\ntime=2\n" + "".join(f"{a},{b}\n" for a, b in points))
    files = [tmp_path / name for name in ("actor.pkl", "one.txt", "two.txt")]
    played, *read = compare("mo-halfcheetah", files, preferences=3)
    assert played.returns.shape == (3, 2)
    assert [each.source for each in (played, *read)] == ["scored here", *["their returns"] * 2]
    text = comparison_table("mo-halfcheetah", [played, *read], (0.0, 0.0))
    volume = f"{hypervolume(points) / 1e6:.3f}"
    assert text.count(f"| {volume} | {expected_utility(points):.0f} |") == 2
    assert f"mean of 2, 95 % interval** | {volume} ± 0.000" in text
    assert "| PSL-MORL | 5.92 | | | as printed |" in text
    arguments = ["rl", "compare", "mo-halfcheetah", "--preferences", "2"]
    output = tmp_path / "all.json"
    given = [part for file in files for part in ("--actor", str(file))]
    outcome = CliRunner().invoke(app, [*arguments, *given, "--output", str(output)])
    assert outcome.exit_code == 0, outcome.output
    assert "as printed" in outcome.output
    assert output.exists()
    outcome = CliRunner().invoke(app, [*arguments, "--actor", str(tmp_path / "none.pt")])
    assert outcome.exit_code != 0
    assert outcome.output.startswith("Error: There is no file")
    assert outcome.output.count("\n") == 1
