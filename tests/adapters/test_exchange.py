"""Adapters in and out: folders of peft, averages, and what does not fit."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

import ibcl

pytest.importorskip("peft")
pytest.importorskip("transformers")

import peft
import transformers
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from worlds import NAMES, base, config, seeded, task, taught, texts

from ibcl.experts import ExpertPart


def learner_for(network: nn.Module) -> ibcl.IBCL:
    return ibcl.IBCL(network, expert=ibcl.adapters.LoRA(rank=2))


def foreign(folder, network: nn.Module, seed: int, **settings: object) -> nn.Module:
    """An adapter that peft alone made, with weights that matter, written by peft itself."""
    settings = {"r": 3, "target_modules": ["query", "value"], **settings}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = peft.get_peft_model(copy.deepcopy(network), peft.LoraConfig(**settings))
        for name, value in model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                nn.init.normal_(value, std=0.5)
    model.save_pretrained(str(folder))
    return model.eval()


def test_what_was_exported_is_taken_back_as_it_was(tmp_path):
    source, target = taught(), learner_for(base())
    for name in NAMES:
        source.export_adapter(name, tmp_path / name)
        target.add_adapter(name, tmp_path / name, moments_from=task(NAMES.index(name), 200)[0])
    x = np.concatenate([task(number, 20, seed=2)[0] for number in (0, 1)])
    for row in np.eye(2):
        ours, theirs = (it.model(row).predict_proba(x) for it in (target, source))
        assert np.allclose(ours, theirs, atol=1e-6)
    # Densities of inputs alone route them.
    assert (target.model([0.5, 0.5]).routing(x).argmax(1) == np.repeat([0, 1], 20)).mean() > 0.9


def test_adapters_with_the_bases_own_classification_layer_answer_as_peft_does(tmp_path):
    network = seeded(transformers.BertForSequenceClassification, num_labels=3)
    learner = learner_for(ibcl.networks.with_backbone(network, outputs=3))
    tokens = texts(0, 20, seed=2)
    for number, name in enumerate(NAMES):
        model = foreign(tmp_path / name, network, number, modules_to_save=["classifier"])
        inputs = ibcl.networks.token_ids(texts(number, 150))
        learner.add_adapter(name, tmp_path / name, moments_from=inputs)
        with torch.no_grad():
            expected = torch.softmax(model(**tokens).logits, 1).numpy()
        vertex = np.eye(number + 1)[number]
        found = learner.model(vertex).predict_proba(ibcl.networks.token_ids(tokens))
        assert np.allclose(found, expected, atol=1e-6)
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base", network=ibcl.networks.with_backbone(network, outputs=3))
    x = ibcl.networks.token_ids(tokens)
    assert np.array_equal(
        again.model([0.5, 0.5]).predict_proba(x), learner.model([0.5, 0.5]).predict_proba(x)
    )


def test_adapters_of_a_language_model_are_routed_to_and_have_no_classes(tmp_path):
    config = transformers.GPT2Config(
        vocab_size=60,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = transformers.GPT2LMHeadModel(config).eval()
    learner = learner_for(network)
    for number, name in enumerate(NAMES):
        foreign(tmp_path / name, network, number, target_modules=["c_attn"], fan_in_fan_out=True)
        learner.add_adapter(name, tmp_path / name, moments_from=task(number, 100)[0])
    model = learner.model([0.5, 0.5])
    x = task(1, 30, seed=3)[0]
    table = model.routing_table(x)
    assert np.mean([next(iter(row)) == "high" for row in table]) > 0.9
    assert all(abs(sum(row.values()) - 1) < 1e-6 for row in table)
    with pytest.raises(ValueError, match=r"without a head has no answer of its own.*\.$"):
        model.predict(x)


def test_labels_make_the_tasks_classes_known(tmp_path):
    source, target = taught(), ibcl.IBCL(base(), expert=ibcl.adapters.LoRA(rank=2), calibration=0.3)
    source.export_adapter("low", tmp_path / "low")
    x, y = task(0, 100, seed=1)
    target.add_adapter("low", tmp_path / "low", moments_from=x, y=y)
    assert target.model("low").predict_set(x).shape == (100, 2)
    source.export_adapter("high", tmp_path / "high")
    target.add_adapter("high", tmp_path / "high", moments_from=task(1)[0])
    with pytest.raises(ValueError, match="The task 'high' has weight but no calibration"):
        target.model([0.5, 0.5]).predict_set(x)


def test_the_average_is_one_lora_whose_change_is_the_weighted_sum(tmp_path):
    learner = taught()
    learner.export_adapter({"low": 0.3, "high": 0.7}, tmp_path / "both")
    for name in NAMES:
        learner.export_adapter(name, tmp_path / name)
    merged = [
        peft.PeftModel.from_pretrained(copy.deepcopy(base()), str(tmp_path / name))
        .merge_and_unload()
        .state_dict()
        for name in ("both", *NAMES)
    ]
    for name, value in base().state_dict().items():
        both, low, high = (it[name] - value for it in merged)
        assert torch.allclose(both, 0.3 * low + 0.7 * high, atol=1e-6)
    assert any(not torch.equal(it, base().state_dict()[name]) for name, it in merged[0].items())
    assert (
        "scores below the adapters behind their gate" in (tmp_path / "both/README.md").read_text()
    )


def spoil_configuration(folder, **changes):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def spoil_weights(folder, change):
    file = folder / "adapter_model.safetensors"
    save_file(change(load_file(file)), file)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda it: (it / "adapter_config.json").unlink(), "no folder of an adapter"),
        (lambda it: (it / "adapter_config.json").write_text("{"), "is not valid"),
        (lambda it: (it / "adapter_model.safetensors").unlink(), "pickle, are not read"),
        (lambda it: (it / "adapter_model.safetensors").write_bytes(b"no"), "cannot be read"),
        (lambda it: spoil_configuration(it, peft_type="IA3"), "only LORA is known"),
        (lambda it: spoil_configuration(it, megatron_config={"a": 1}), "is not understood"),
        (lambda it: spoil_configuration(it, init_lora_weights="pissa"), "changes the base's own"),
        (lambda it: spoil_configuration(it, target_modules=["nothing"]), "does not fit the base"),
        (lambda it: spoil_configuration(it, r=5), "has the shape"),
        (lambda it: spoil_weights(it, lambda kept: dict([*kept.items()][1:])), "lacks"),
        (lambda it: spoil_weights(it, lambda kept: {**kept, "more": torch.ones(1)}), "no place"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_in_a_sentence(tmp_path, spoil, said):
    foreign(tmp_path, base(), 0)
    spoil(tmp_path)
    learner = learner_for(base())
    with pytest.raises(ValueError, match=rf"(?s)^[^\n]*{said}[^\n]*\.$"):
        learner.add_adapter("other", tmp_path, moments_from=task(0)[0])
    assert learner.tasks == ()


def test_other_bases_and_learners_without_one_are_refused_in_a_sentence(tmp_path):
    foreign(tmp_path, seeded(transformers.BertForSequenceClassification, num_labels=3), 0)
    with pytest.raises(ValueError, match=r"cannot be taken: the adapter lacks .*\.$"):
        learner_for(base()).add_adapter("other", tmp_path, moments_from=task(0)[0])
    with pytest.raises(ValueError, match=r"^Adapters stand behind a base model.*\.$"):
        ibcl.IBCL(ibcl.networks.with_backbone(base())).add_adapter("other", tmp_path, task(0)[0])
    heads = ibcl.IBCL(ibcl.networks.with_backbone(base()))
    heads.learn(*task(0), task="low")
    with pytest.raises(ValueError, match=r"^Task 'low' has no adapter to export\.$"):
        heads.export_adapter("low", tmp_path / "out")


def test_labels_give_an_adapter_without_a_head_one(tmp_path):
    """An encoder's adapter alone: a logistic regression on what it returns is its head."""
    model = foreign(tmp_path, base(), 0, target_modules=["query", "value"])
    learner = learner_for(base())
    x, y = task(0, 150, seed=1)
    learner.add_adapter("low", tmp_path, moments_from=x, y=y)
    tokens = texts(0, 40, seed=2)

    def features(given):
        with torch.no_grad():
            hidden, mask = model(**given).last_hidden_state, given["attention_mask"][:, :, None]
        return ((hidden * mask).sum(1) / mask.sum(1)).double().numpy()

    known = features(texts(0, 150, seed=1))
    scale = np.sqrt(np.square(known).sum(1).mean())
    oracle = LogisticRegression(C=10.0, max_iter=300).fit(known / scale, y)
    expected = oracle.predict_proba(features(tokens) / scale)
    found = learner.model("low").predict_proba(ibcl.networks.token_ids(tokens))
    assert np.allclose(found, expected, atol=1e-3)
    # Of one class nothing can be fitted.
    learner.add_adapter("one class", tmp_path, moments_from=x, y=np.zeros(150, int))
    with pytest.raises(ValueError, match=r"labelled inputs of two classes or more\.$"):
        learner.model([0.0, 1.0]).predict(x)


def test_adapters_of_values_and_of_classes_are_not_mixed(tmp_path):
    network = seeded(transformers.BertForSequenceClassification, num_labels=1)
    model = foreign(tmp_path / "value", network, 0, modules_to_save=["classifier"])
    learner = ibcl.IBCL(network, expert=ibcl.adapters.LoRA(), likelihood="normal")
    tokens = texts(0, 20, seed=2)
    x = ibcl.networks.token_ids(tokens)
    learner.add_adapter("value", tmp_path / "value", moments_from=task(0)[0])
    with torch.no_grad():
        expected = model(**tokens).logits.flatten().numpy()
    assert np.allclose(learner.model("value").predict(x), expected, atol=1e-6)

    two = seeded(transformers.BertForSequenceClassification, num_labels=2)
    foreign(tmp_path / "classes", two, 0, modules_to_save=["classifier"])
    values = ibcl.IBCL(two, expert=ibcl.adapters.LoRA(), likelihood="normal")
    with pytest.raises(ValueError, match=r"classification layer has 2 classes, the learner 1\.$"):
        values.add_adapter("classes", tmp_path / "classes", moments_from=task(0)[0])

    source, target = taught(), ibcl.IBCL(base(), expert=ibcl.adapters.LoRA(), likelihood="normal")
    source.export_adapter("low", tmp_path / "low")
    with pytest.raises(ValueError, match=r"answers with values, but its head with classes\.$"):
        target.add_adapter("low", tmp_path / "low", moments_from=task(0)[0])


def test_a_head_that_was_learnt_behind_something_else_is_refused(tmp_path):
    source = taught()
    source.export_adapter("low", tmp_path / "low")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        other = transformers.BertModel(config()).eval()
    with pytest.raises(ValueError, match=r"learnt behind another base model\.$"):
        learner_for(other).add_adapter("low", tmp_path / "low", moments_from=task(0)[0])
    depth = ibcl.networks.with_backbone(base(), layers=["encoder.layer.0"])
    with pytest.raises(ValueError, match=r"learnt behind other depths of the base model\.$"):
        learner_for(depth).add_adapter("low", tmp_path / "low", moments_from=task(0)[0])


def test_what_is_asked_wrongly_is_refused_in_a_sentence(tmp_path):
    learner = taught()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^The adapter cannot be written to .*\.$"):
        learner.export_adapter("low", tmp_path / "file")
    x = task(0, 3)[0]
    for tolerance in (-0.1, 1.0, float("nan"), None):
        with pytest.raises(ValueError, match=r"^tolerance must be .*\.$"):
            learner.model([0.5, 0.5]).routing_table(x, tolerance=tolerance)
    for targets in ("(", ["nothing"]):
        broken = ibcl.IBCL(base(), expert=ibcl.adapters.LoRA(target_modules=targets))
        with pytest.raises(ValueError, match=r"(?s)^No adapter can be learnt: .*\.$"):
            broken.learn(*task(0), task="low")


def test_damaged_parts_are_refused_and_never_run():
    part = taught().knowledge.parts[0][ExpertPart.kind]
    data = part.encode()
    again = ExpertPart.decode(data)
    assert again.encode() == data
    for damaged in (data[:40], data[:-9], data.replace(b'"r": 2', b'"r": "x"')):
        with pytest.raises(ValueError, match=r"no adapter|no expert"):
            ExpertPart.decode(damaged)
