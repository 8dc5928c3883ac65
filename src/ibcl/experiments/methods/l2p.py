"""L2P: learning to prompt, with preference-weighted prompts, on frozen features."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.registration import ONE_MODEL, Registration, register
from ibcl.tasks import TaskData, as_inputs


class PromptPool(NamedTuple):
    """A task's prompts and the keys they are chosen by, each of shape (pool, features)."""

    prompts: Tensor
    keys: Tensor


class L2P(Baseline):
    r"""Wang et al., *Learning to Prompt for Continual Learning*, CVPR 2022, adapted to features.

    L2P prepends learnt tokens to the input of a frozen transformer. Here there is no transformer
    to prompt, only the features x a frozen backbone gave, so this is an **adaptation**: a prompt
    is a vector *added to the features* before a trainable head, which all tasks share. What
    remains of L2P: a pool of prompts with keys; the query is the frozen feature itself; each
    sample uses the mean of the `selected` prompts whose keys are most similar by cosine; keys are
    pulled towards the queries that chose them (equation 5 of the paper),

        min over head, prompts, keys of loss(head(x + prompt(x)), y) + λ Σ_m (1 − cos(x, k_m)).

    Preferences act on prompts only, as the IBCL paper has it: each task learns a pool of its own,
    and the model of preference w adds Σ_k w_k prompt_k(x). The head goes on training at every
    task, and nothing protects it from forgetting.

    One run per task, whatever the number of preferences. Updates at task i: n_i · e / b.

    Parameters
    ----------
    pool, selected
        Prompts of a task, and how many of them a sample uses.
    key_strength
        λ.
    """

    name = "l2p"

    def __init__(
        self,
        network: nn.Module,
        *,
        pool: int = 20,
        selected: int = 5,
        key_strength: float = 0.5,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        self.pool = at_least("pool", pool, 1)
        self.selected = at_least("selected", selected, 1)
        if self.selected > self.pool:
            raise ValueError(f"Cannot select {selected} prompts from a pool of {pool}.")
        self.key_strength = positive("key_strength", key_strength, or_zero=True)
        self.pools: list[PromptPool] = []

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Train the shared head together with the present task's prompts and keys."""
        generator = self.generator()
        start = (
            self.network.initial_parameters(generator) if self.thetas is None else self.thetas[0]
        )
        width = current.x[0].numel()
        keys = torch.randn(self.pool * width, generator=generator)
        together = torch.cat([start, torch.zeros_like(keys), keys])[None]

        def parts(together: Tensor) -> tuple[Tensor, PromptPool]:
            sizes = [self.network.dimension, len(keys), len(keys)]
            head, *pool = torch.split(together, sizes, dim=1)
            return head, PromptPool(*(part.reshape(self.pool, width) for part in pool))

        def gradient(together: Tensor, rows: Tensor, _: int) -> Tensor:
            x = current.x[rows]
            leaf = together.detach().requires_grad_()
            head, pool = parts(leaf)
            prompt, similarity = self.prompt(x, pool)
            losses = self.loss(self.models(head, x + prompt), current.y[rows])
            pull = (1 - similarity).sum(1).mean()
            return torch.autograd.grad(losses.mean() + self.key_strength * pull, leaf)[0]

        self.descend(together, current.size, gradient, generator)
        head, pool = parts(together)
        self.pools.append(PromptPool(*(part.clone() for part in pool)))
        self.preferences = preferences
        return head.repeat(len(preferences), 1)

    def prompt(self, x: Tensor, pool: PromptPool) -> tuple[Tensor, Tensor]:
        """Mean of each sample's chosen prompts, and the cosines between it and their keys."""
        query = functional.normalize(x.flatten(1), dim=1)
        cosines = query @ functional.normalize(pool.keys, dim=1).T
        similarity, chosen = cosines.topk(self.selected, dim=1)
        uses = torch.zeros_like(cosines).scatter(1, chosen, 1 / self.selected)
        return (uses @ pool.prompts).reshape(x.shape), similarity

    def predict_logits(self, x: Any) -> Tensor:
        """Return the head's outputs on x + Σ_k w_k prompt_k(x), for every preference w."""
        if self.thetas is None:
            return super().predict_logits(x)
        inputs = as_inputs(x)
        head = self.thetas[:1]
        with torch.no_grad():
            prompts = torch.stack([self.prompt(inputs, pool)[0] for pool in self.pools])
            return torch.cat(
                [
                    self.models(head, inputs + torch.tensordot(weights, prompts, 1))
                    for weights in self.preferences
                ]
            )

    @property
    def stored_bytes(self) -> int:
        """Bytes of the head and of every task's prompts and keys."""
        pools = sum(pool.prompts.nbytes + pool.keys.nbytes for pool in self.pools)
        return pools + (0 if self.thetas is None else self.thetas[0].nbytes)


register(Registration("l2p", "L2P (adapted)", L2P, ONE_MODEL, MLP, 10.0, GRADIENT, DECAYED))
