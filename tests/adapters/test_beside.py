"""An adapter beside its task's head: λ adapter + (1 − λ) head, with λ from held-out rows."""

import numpy as np
import pytest
import torch
from torch import nn

import ibcl

pytest.importorskip("peft")
pytest.importorskip("transformers")

from worlds import NAMES, base, task, taught

from ibcl.experts import ExpertPart

LEARNT = {"rank": 2, "epochs": 2, "learning_rate": 1e-2}


def shares(learner: ibcl.IBCL) -> list[float]:
    return [parts[ExpertPart.kind].share for parts in learner.knowledge.parts]


@pytest.fixture(scope="module")
def learner() -> ibcl.IBCL:
    return taught(expert=ibcl.adapters.LoRA(**LEARNT))


def test_the_answer_is_adapter_and_head_in_these_shares(learner):
    heads = ibcl.IBCL(ibcl.networks.with_backbone(base()))
    for number, name in enumerate(NAMES):
        heads.learn(*task(number), task=name)
    x = np.concatenate([task(number, 20, seed=2)[0] for number in (0, 1)])
    for row, share in zip(np.eye(2), shares(learner), strict=True):
        assert 0 < share < 1
        alone, head = (it.model(row).predict_proba(x) for it in (taught(), heads))
        expected = share * alone + (1 - share) * head
        assert np.allclose(learner.model(row).predict_proba(x), expected, atol=1e-6)
        assert np.allclose(learner.predict_many(x, [row])[0], expected, atol=1e-6)


def test_held_out_rows_give_the_answer_to_the_better_one():
    """Whether a word occurs twice is no linear function of mean hidden states, nor of noise."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 30, (300, 6), generator=generator)
    y = torch.arange(300) % 2
    ids[:, 1] = torch.where(y == 1, 7, 8)
    ids[:, 4] = torch.where(torch.rand(300, generator=generator) < 0.5, 7, 8)
    repeated = (ids[:, 1] == ids[:, 4]).long()
    able = ibcl.adapters.LoRA(
        rank=8, epochs=25, learning_rate=2e-2, target_modules=("query", "key", "value", "dense")
    )
    lost = ibcl.adapters.LoRA(rank=8, epochs=2, learning_rate=10.0)
    depths = ibcl.networks.with_backbone(base(), layers=["encoder.layer.0", "encoder.layer.1"])
    found = []
    for expert, labels in ((able, repeated), (lost, y)):
        learner = ibcl.IBCL(depths, expert=expert)
        learner.learn(ids.numpy(), labels.numpy(), task="words")
        found += shares(learner) if ExpertPart.kind in learner.knowledge.parts[0] else [0.0]
    assert found[0] > 0.6
    assert found[1] < 0.2


def test_what_is_forgotten_leaves_nothing_and_files_keep_the_shares(learner, tmp_path):
    alone = ibcl.IBCL(base(), expert=learner.given.expert)
    alone.learn(*task(1), task="high")
    learner.save(tmp_path / "base")
    kept = ibcl.load(tmp_path / "base", network=base())
    assert shares(kept) == shares(learner)
    kept.forget("low")
    x = task(1, 30, seed=3)[0]
    answers = (it.model("high").predict_proba(x) for it in (kept, alone))
    assert np.array_equal(*answers)


def test_values_have_shares_too():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        stack = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    x = torch.randn(120, 6, generator=torch.Generator().manual_seed(0))
    network = ibcl.networks.with_backbone(stack, example=x)
    learner = ibcl.IBCL(network, expert=ibcl.adapters.LoRA(**LEARNT))
    learner.learn(x, x[:, 0] * 3, task="first")
    assert 0 < shares(learner)[0] < 1
    assert learner.model("first").predict(x).shape == (120,)


def test_few_rows_leave_most_to_the_head():
    """Four rows of which one is held out cannot say anything where the others are of one class."""
    x, _ = task(0, 4)
    learner = ibcl.IBCL(base(), expert=ibcl.adapters.LoRA(**LEARNT))
    for rare in range(4):
        learner.learn(x, np.eye(4, dtype=int)[rare], task=f"{rare} is rare")
    assert max(shares(learner)) <= 0.4
    assert min(abs(np.array(shares(learner)) - 0.25)) == 0


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan")])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(ValueError, match=r"^share must be above 0 and at most 1, not .*\.$"):
        ibcl.adapters.LoRA(share=share)
