"""L2P: prompts chosen by key, weighted by preference."""

import pytest
import torch

from ibcl import networks
from ibcl.experiments.methods.l2p import L2P, PromptPool


def test_each_sample_uses_the_prompts_of_its_nearest_keys():
    method = L2P(networks.linear(2), pool=3, selected=2)
    pool = PromptPool(
        prompts=torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 100.0]]),
        keys=torch.tensor([[1.0, 0.0], [1.0, 0.1], [-5.0, 0.0]]),
    )
    prompt, similarity = method.prompt(torch.tensor([[7.0, 0.0]]), pool)
    torch.testing.assert_close(prompt, torch.tensor([[2.0, 0.0]]))
    torch.testing.assert_close(similarity, torch.tensor([[1.0, 1.01**-0.5]]))


def test_prediction_adds_the_preference_weighted_sum_of_the_tasks_prompts(three_tasks):
    method = L2P(networks.mlp(3, hidden=4), pool=4, selected=2, epochs=3)
    method.learn("first", three_tasks[0], None, [[1.0]])
    method.learn("second", three_tasks[1], None, [[0.3, 0.7], [1.0, 0.0]])
    x = three_tasks[2].x
    prompts = [method.prompt(x, pool)[0] for pool in method.pools]
    head = method.thetas[0]
    logits = method.predict_logits(x)
    weighted = method.network(head, x + 0.3 * prompts[0] + 0.7 * prompts[1])
    torch.testing.assert_close(logits[0], weighted)
    torch.testing.assert_close(logits[1], method.network(head, x + prompts[0]))


def test_earlier_prompts_stay_while_the_head_moves(three_tasks):
    method = L2P(networks.mlp(3, hidden=4), epochs=2)
    method.learn("first", three_tasks[0], None, [[1.0]])
    prompts, head = method.pools[0].prompts.clone(), method.thetas[0].clone()
    method.learn("second", three_tasks[1], None, [[0.5, 0.5]])
    assert torch.equal(method.pools[0].prompts, prompts)
    assert not torch.equal(method.thetas[0], head)


def test_keys_move_towards_the_queries_that_chose_them(three_tasks):
    means = {}
    for strength in (0.0, 1.0):
        method = L2P(
            networks.linear(3), pool=2, selected=1, key_strength=strength, learning_rate=0.05
        )
        method.learn("first", three_tasks[0], None, [[1.0]])
        means[strength] = float(method.prompt(three_tasks[0].x, method.pools[0])[1].mean())
    assert means[1.0] > means[0.0] + 0.05


def test_cannot_select_more_prompts_than_there_are():
    with pytest.raises(ValueError, match="Cannot select 6 prompts from a pool of 5"):
        L2P(networks.linear(2), pool=5, selected=6)
