"""Served bases on networks of their users' own: texts as token ids, images, plain modules."""

from __future__ import annotations

import json
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from torch import nn

import ibcl
from ibcl.serve import Settings, create_app
from ibcl.serve.client import Client

transformers = pytest.importorskip("transformers")

WORDS, LONGEST = 30, 16
WEIGHTS = {"one": 0.3, "two": 0.7}


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LONGEST,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.BertModel(config).eval()


def ids(seed: int = 0, rows: int = 40, length: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, WORDS, (rows, length))


@contextmanager
def serving(folder, data, **settings: object):
    made = create_app(Settings(folder, data=data, **settings))
    with TestClient(made, raise_server_exceptions=False) as client:
        yield client


def through(served: TestClient) -> httpx.BaseTransport:
    """Carry what the typed client sends to an app of this process."""

    def handle(request: httpx.Request) -> httpx.Response:
        kind = {"content-type": request.headers["content-type"]}
        path = request.url.path
        answer = served.request(request.method, path, content=request.content, headers=kind)
        return httpx.Response(answer.status_code, content=answer.content)

    return httpx.MockTransport(handle)


@pytest.fixture(scope="module", params=["heads", "adapters"])
def texts(request, tmp_path_factory):
    """The learner, where it and its base model are, and a client."""
    expert = None
    if request.param == "adapters":
        pytest.importorskip("peft")
        expert = ibcl.adapters.LoRA(2, epochs=1)
    network = ibcl.networks.with_backbone(bert(), layers=["encoder.layer.0", "encoder.layer.1"])
    learner = ibcl.IBCL(network, expert=expert, calibration=0.3)
    for number, name in enumerate(WEIGHTS):
        x = ids(number, 80)
        tokens = ibcl.networks.token_ids({"input_ids": x})
        learner.learn(tokens, x[:, number] > WORDS // 2, task=name)
    folder = tmp_path_factory.mktemp("texts")
    learner.save(folder / "kb")
    bert().save_pretrained(folder / "bert")
    with serving(folder / "kb", folder / "data", network=str(folder / "bert")) as client:
        yield learner, client


def test_token_ids_are_answered_as_by_the_library(texts):
    learner, client = texts
    x = ids(5, 9)
    tokens, model = ibcl.networks.token_ids({"input_ids": x}), learner.model(WEIGHTS)
    body = {
        "inputs": {"input_ids": x.tolist()},
        "preference": WEIGHTS,
        "bounds": True,
        "uncertainty": True,
        "routing": True,
        "set": 0.8,
    }
    answer = client.post("/v1/predict", json=body)
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["predictions"] == model.predict(tokens).tolist()
    assert np.allclose(said["probabilities"], model.predict_proba(tokens), atol=1e-5)
    assert np.allclose(said["bounds"]["lower"], model.credal_bounds(tokens).lower, atol=1e-5)
    assert np.allclose(said["routing"]["novelty"], model.novelty(tokens), atol=1e-4)
    inside = model.predict_set(tokens, alpha=0.2)
    assert [len(each) for each in said["sets"]] == inside.sum(1).tolist()
    inferred = client.post("/v1/infer", json={"inputs": body["inputs"]}).json()["preference"]
    assert inferred == pytest.approx(dict(learner.infer_preference(tokens)), abs=1e-5)
    known = client.get("/v1/tasks").json()
    assert (known["inputs"], known["columns"], known["classes"]) == ("token ids", [], [0, 1])
    assert client.get("/v1/explorer").status_code == 200


def test_texts_of_several_lengths_need_no_padding_and_change_nobodys_answer(texts):
    learner, client = texts
    short, long = ids(6, 3, 4), ids(7, 3, 9)
    listed = [*short.tolist(), *long.tolist()]
    body = {"inputs": {"input_ids": listed}, "preference": WEIGHTS}
    said = np.array(client.post("/v1/predict", json=body).json()["probabilities"])
    padded = ibcl.networks.token_ids({"input_ids": short})
    assert np.allclose(said[:3], learner.model(WEIGHTS).predict_proba(padded), atol=1e-5)
    mask = [[1] * len(row) for row in listed]
    body["inputs"]["attention_mask"] = mask
    again = client.post("/v1/predict", json=body).json()["probabilities"]
    assert np.allclose(again, said, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "status", "sentence"),
    [
        ({"input_ids": [[5, WORDS]]}, 409, f"The token id {WORDS} is not one"),
        ({"input_ids": [[5] * (LONGEST + 1)]}, 409, "A text has 17 tokens, but"),
        ({"input_ids": [[5, 6]], "attention_mask": [[1]]}, 409, "one number for every token"),
        ({"input_ids": [[5, -1]]}, 422, "greater than or equal to 0"),
        ({"input_ids": [[]]}, 422, "at least 1 item"),
        ({"input_ids": [[5, "6"]]}, 422, "valid number"),
        ({"input_ids": [[1.5]]}, 422, "multiple of 1"),
        ([[1.0, 2.0]], 409, "This knowledge base reads token ids"),
    ],
)
def test_texts_that_do_not_fit_are_refused(texts, inputs, status, sentence):
    _, client = texts
    answer = client.post("/v1/predict", json={"inputs": inputs, "preference": WEIGHTS})
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["error"]


def test_rows_by_name_are_refused_and_so_is_nothing_at_all(texts):
    _, client = texts
    for body, status, sentence in (
        ({"rows": [{"a": 1}]}, 409, "reads token ids: send them as inputs."),
        ({}, 422, "Give either rows or inputs."),
        ({"rows": [{"a": 1}], "inputs": {"input_ids": [[1]]}}, 422, "Give either rows or inputs."),
    ):
        for path in ("/v1/predict", "/v1/infer"):
            whose = {"preference": WEIGHTS} if path == "/v1/predict" else {}
            answer = client.post(path, json={**body, **whose})
            assert answer.status_code == status, answer.text
            assert sentence in answer.json()["error"]


def test_the_typed_client_sends_what_a_tokenizer_returns(texts):
    learner, served = texts
    x = ids(8, 4)
    with Client("http://testserver", transport=through(served)) as client:
        found = client.predict({"input_ids": x, "attention_mask": np.ones_like(x)}, WEIGHTS)
    tokens = ibcl.networks.token_ids({"input_ids": x})
    expected = learner.model(WEIGHTS).predict_proba(tokens)
    assert np.allclose(found.probabilities, expected, atol=1e-5)


def test_without_its_network_it_is_not_served(texts, tmp_path):
    learner, _ = texts
    learner.save(tmp_path / "kb")
    with pytest.raises(ibcl.StoreError, match="give that module as network="):
        create_app(Settings(tmp_path / "kb"))
    (tmp_path / "rows.csv").write_text("a,label\n1,0\n")
    bert().save_pretrained(tmp_path / "bert")
    settings = Settings(
        tmp_path / "kb",
        network=str(tmp_path / "bert"),
        validation={"one": tmp_path / "rows.csv"},
        label="label",
    )
    with pytest.raises(ValueError, match=r"^Validation rows are tables"):
        create_app(settings)


def stack() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3))


def images(seed: int = 0, rows: int = 60) -> torch.Tensor:
    return torch.randn(rows, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    learner = ibcl.IBCL(ibcl.networks.with_backbone(stack(), example=images()))
    learner.learn(images(1), images(1).mean((1, 2, 3)) > 0, task="one")
    learner.learn(images(2), images(2)[:, 0, 0, 0] > 0, task="two")
    folder = tmp_path_factory.mktemp("pictures")
    learner.save(folder / "kb")
    with pytest.MonkeyPatch.context() as patch:
        # As an operator's own module in the current folder.
        (folder / "pictures_network.py").write_text(
            "import torch\nfrom torch import nn\n\n\ndef stack():\n    torch.manual_seed(0)\n"
            "    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3))\n"
        )
        patch.chdir(folder)
        network = "pictures_network:stack"
        with serving(folder / "kb", folder / "data", network=network) as client:
            yield learner, client


def test_images_are_answered_as_by_the_library(pictures):
    learner, client = pictures
    x, model = images(3, 5), learner.model(WEIGHTS)
    answer = client.post("/v1/predict", json={"inputs": x.tolist(), "preference": WEIGHTS})
    assert answer.status_code == 200, answer.text
    assert np.allclose(answer.json()["probabilities"], model.predict_proba(x), atol=1e-5)
    assert client.get("/v1/tasks").json()["inputs"] == [1, 6, 6]
    with Client("http://testserver", transport=through(client)) as typed:
        found = typed.predict(x.numpy(), WEIGHTS)
    assert found.predictions == model.predict(x).tolist()
    assert client.post("/v1/model", json={"preference": WEIGHTS}).status_code == 200


@pytest.mark.parametrize(
    ("inputs", "status", "sentence"),
    [
        (images(3, 2)[:, :, 1:].tolist(), 409, "the shape (1, 6, 6), but these inputs have"),
        ([[1, 2], [3]], 422, "the same length throughout"),
        ([], 422, "body.inputs"),
        ([["1"]], 422, "finite numbers and nothing else"),
        ([[None]], 422, "finite numbers and nothing else"),
        ([[True]], 422, "finite numbers and nothing else"),
        ([[1e39]], 422, "finite numbers and nothing else"),
        ([[10**30]], 422, "finite numbers and nothing else"),
        ({"input_ids": [[1]]}, 409, "not token ids"),
    ],
)
def test_images_that_do_not_fit_are_refused(pictures, inputs, status, sentence):
    _, client = pictures
    answer = client.post("/v1/predict", json={"inputs": inputs, "preference": WEIGHTS})
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["error"]


def test_no_number_that_json_has_not_gets_in(pictures):
    _, client = pictures
    row = images(3, 1).tolist()
    row[0][0][0][0] = float("nan")
    answer = client.post(
        "/v1/predict",
        content=json.dumps({"inputs": row, "preference": WEIGHTS}),
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 422


def test_a_body_has_a_largest_size_that_can_be_chosen(pictures, tmp_path):
    learner, _ = pictures
    learner.save(tmp_path / "kb")
    torch.save(stack().state_dict(), tmp_path / "unused")
    network = "pictures_network:stack"
    body = {"inputs": images(3, 20).tolist(), "preference": WEIGHTS}
    for limit, status in ((2048, 413), (2**20, 200)):
        data = tmp_path / str(limit)
        with serving(tmp_path / "kb", data, network=network, body_limit=limit) as client:
            assert client.post("/v1/predict", json=body).status_code == status


def test_arrays_go_to_a_base_without_names_of_columns_too(tmp_path):
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    learner = ibcl.IBCL(ibcl.networks.linear(4))
    learner.learn(x, x[:, 0] > 0, task="one")
    learner.learn(x, x[:, 1] > 0, task="two")
    learner.save(tmp_path / "kb")
    with serving(tmp_path / "kb", tmp_path / "data") as client:
        answer = client.post("/v1/predict", json={"inputs": x[:5].tolist(), "preference": WEIGHTS})
        expected = learner.model(WEIGHTS).predict_proba(x[:5])
        assert np.allclose(answer.json()["probabilities"], expected, atol=1e-6)
        wrong = client.post("/v1/predict", json={"inputs": [[1, 2]], "preference": WEIGHTS})
        assert (wrong.status_code, "4 numbers per row" in wrong.json()["error"]) == (409, True)


def test_a_module_of_ones_own_is_served_where_its_shape_can_be_told(tmp_path, monkeypatch):
    """The first linear layer says it; of anything else it is refused when the service starts."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_networks.py").write_text(
        "from torch import nn\n\n\ndef two():\n"
        "    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))\n\n\n"
        "def norm():\n    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))\n"
    )
    from own_networks import norm, two

    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    for name, made in (("two", two()), ("norm", norm())):
        learner = ibcl.IBCL(made)
        learner.learn(x, x[:, 0] > 0, task="one")
        learner.learn(x, x[:, 1] > 0, task="two")
        learner.save(tmp_path / name)
    with serving(tmp_path / "two", tmp_path / "data", network="own_networks:two") as client:
        body = {"inputs": x[:3].tolist(), "preference": WEIGHTS}
        assert client.post("/v1/predict", json=body).status_code == 200
    with pytest.raises(ValueError, match=r"^The shape of this network's inputs is not known"):
        create_app(Settings(tmp_path / "norm", network="own_networks:norm"))
