"""What earlier versions saved opens, and answers as it did then."""

import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from answers import answers, preferences, probes
from write import further, own_module

import ibcl

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("version-*.zip"))
CASES = [
    (archive, name)
    for archive in ARCHIVES
    for name in json.loads(zipfile.ZipFile(archive).read("answers.json"))
]
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    for archive in ARCHIVES:
        zipfile.ZipFile(archive).extractall(folder / archive.stem)
    return folder


def _expected(folder, archive, name):
    return json.loads((folder / archive.stem / "answers.json").read_text())[name]


def _assert_same(found, expected, what):
    if np.asarray(expected).dtype.kind == "U":
        assert found == expected, what
    else:
        np.testing.assert_allclose(
            np.asarray(found, float), expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what
        )


@pytest.mark.parametrize(("archive", "name"), CASES, ids=[f"{a.stem}-{n}" for a, n in CASES])
def test_a_base_of_an_earlier_version_answers_as_it_did(opened, archive, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ibcl.EvidenceWarning)
        found = answers(ibcl.load(opened / archive.stem / name), probes(name))
    expected = _expected(opened, archive, name)
    assert found.keys() == expected.keys()
    for question, answer in expected.items():
        _assert_same(found[question], answer, f"{name}: {question}")


@pytest.mark.parametrize(("archive", "name"), CASES, ids=[f"{a.stem}-{n}" for a, n in CASES])
def test_a_model_of_an_earlier_version_answers_as_it_did(opened, archive, name):
    model = ibcl.load_model(opened / archive.stem / f"{name}.safetensors")
    expected = _expected(opened, archive, name)
    assert list(model.preference.values()) == preferences(len(model.preference))[0]
    task = "a" if name == "told-tasks" else None
    outputs = model.outputs(probes(name), task=task)
    _assert_same(outputs.tolist(), expected["0 outputs"], name)


def test_a_module_of_version_0_2_goes_on_learning_from_drawn_weights(tmp_path):
    """Version 0.2 took no module's weights as trained; what it began goes on that way."""
    zipfile.ZipFile(HERE / "module-0.2.zip").extractall(tmp_path)
    learner = further(ibcl.load(tmp_path / "module", network=own_module()))
    expected = json.loads((tmp_path / "module.json").read_text())
    for question, answer in answers(learner, probes("module")).items():
        _assert_same(answer, expected[question], question)
