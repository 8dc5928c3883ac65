"""Folders for the Hugging Face hub open as what they were, from a folder and from a hub."""

import json

import pytest
import torch

import hub_server
import ibcl

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))


def learner(**metadata):
    made = ibcl.IBCL(ibcl.networks.linear(3), [2.0], d=0)
    made.learn(X, X[:, 0] > 0, task="sci-fi")
    made.learn(X + 1, X[:, 1] > 0, task="horror")
    made.metadata.update(metadata)
    return made


def files(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_a_learner_comes_back_from_its_folder(tmp_path):
    made = learner(licence="MIT")
    made.save_pretrained(tmp_path / "movies")
    again = ibcl.from_pretrained(tmp_path / "movies")
    preference = {"sci-fi": 0.3, "horror": 0.7}
    expected = made.model(preference).predict_proba(X)
    assert torch.equal(again.model(preference).predict_proba(X), expected)
    assert again.metadata == made.metadata
    # It goes on from there, and is saved to where it came from.
    again.learn(X - 1, X[:, 2] > 0, task="drama")
    again.save_pretrained(tmp_path / "movies")
    assert ibcl.from_pretrained(tmp_path / "movies").tasks == ("sci-fi", "horror", "drama")
    config = json.loads((tmp_path / "movies/config.json").read_text())
    assert config["tasks"] == ["sci-fi", "horror", "drama"]


def test_a_model_comes_back_from_its_folder(tmp_path):
    model = learner().model([0.3, 0.7])
    model.save_pretrained(tmp_path / "movies")
    assert files(tmp_path / "movies") == {"README.md", "config.json", "model.safetensors"}
    again = ibcl.from_pretrained(tmp_path / "movies")
    assert torch.equal(again.predict_proba(X), model.predict_proba(X))
    assert dict(again.preference) == dict(model.preference)


def test_a_folder_holds_one_or_the_other(tmp_path):
    made = learner()
    made.save_pretrained(tmp_path / "movies")
    with pytest.raises(ibcl.StoreError, match="holds knowledge already"):
        made.model([0.5, 0.5]).save_pretrained(tmp_path / "movies")
    with pytest.raises(ibcl.StoreError, match="was not loaded from"):
        learner(other="one").save_pretrained(tmp_path / "movies")
    made.model([1.0, 0.0]).save_pretrained(tmp_path / "one")
    with pytest.raises(ibcl.StoreError, match="exists already"):
        made.model([0.0, 1.0]).save_pretrained(tmp_path / "one")
    made.model([0.0, 1.0]).save_pretrained(tmp_path / "one", overwrite=True)
    assert ibcl.from_pretrained(tmp_path / "one").preference["horror"] == 1


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        (None, {}),
        ("CC-BY-4.0", {"license": "cc-by-4.0"}),
        ('our own: "see\nbelow"', {"license": "other", "license_name": 'our own: "see\nbelow"'}),
    ],
)
def test_the_card_begins_with_what_the_hub_reads(licence, expected, tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="cards are read by huggingface_hub")
    made = learner(licence=licence) if licence else learner()
    made.save_pretrained(tmp_path / "movies")
    card = hub.ModelCard.load(tmp_path / "movies/README.md")
    found = card.data.to_dict()
    assert found["library_name"] == "ibcl"
    assert "continual-learning" in found["tags"]
    assert {k: v for k, v in found.items() if k.startswith("license")} == expected
    assert made.card().strip() in card.text


def test_a_table_says_what_is_done_with_it(tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="cards are read by huggingface_hub")
    estimator = ibcl.IBCLRegressor("linear").fit(X.numpy(), X[:, 0].numpy())
    estimator.learner_.save_pretrained(tmp_path / "movies")
    card = hub.ModelCard.load(tmp_path / "movies/README.md")
    assert card.data.pipeline_tag == "tabular-regression"


def test_what_is_neither_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ibcl.StoreError, match="save_pretrained did not write it"):
        ibcl.from_pretrained(tmp_path)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    constants = pytest.importorskip(
        "huggingface_hub", reason="the hub is reached by huggingface_hub"
    ).constants
    with hub_server.running() as (address, repositories):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield repositories


def test_a_learner_goes_to_a_hub_and_back(hub, tmp_path):
    made = learner()
    made.push_to_hub("somebody/movies", token="hf_ours")
    cache = tmp_path / "cache"
    again = ibcl.from_pretrained("somebody/movies", cache_dir=cache)
    expected = made.model([0.3, 0.7]).predict_proba(X)
    assert torch.equal(again.model([0.3, 0.7]).predict_proba(X), expected)
    before = set(hub["somebody/movies"])
    assert {"README.md", "config.json", "knowledge/manifest.json"} < before
    # What is forgotten is not in what the repository then holds.
    made.forget("sci-fi")
    made.push_to_hub("somebody/movies", token="hf_ours")
    after = set(hub["somebody/movies"])
    assert ibcl.from_pretrained("somebody/movies", cache_dir=cache).tasks == ("horror",)
    posteriors = {name for name in before if name.startswith("knowledge/posteriors")}
    assert not posteriors <= after


@pytest.mark.usefixtures("hub")
def test_what_no_hub_has_is_said_in_a_sentence(tmp_path):
    with pytest.raises(ibcl.StoreError, match="somebody/else is no folder here, and the hub"):
        ibcl.from_pretrained("somebody/else", cache_dir=tmp_path / "cache")
