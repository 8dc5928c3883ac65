"""DER: dark experience replay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import positive
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.descent import Gradient
from ibcl.experiments.methods.per_sample import per_sample_gradients
from ibcl.experiments.methods.registration import REHEARSAL, Range, Registration, register
from ibcl.experiments.methods.rehearsal import Pool, Rehearsal
from ibcl.tasks import TaskData


class Reservoir:
    """A uniform sample, of fixed size, of a stream of unknown length (Vitter, 1985).

    The first `capacity` items are kept; item number t > capacity replaces a random one with
    probability capacity / t. At every moment each item seen so far is kept with equal probability.

    Examples
    --------
    >>> reservoir = Reservoir(2, torch.Generator().manual_seed(0))
    >>> for item in range(10):
    ...     reservoir.add(torch.tensor([item]))
    >>> len(reservoir.items), reservoir.seen
    (2, 10)
    """

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.generator = generator
        self.items: list[tuple[Tensor, ...]] = []
        self.seen = 0

    def add(self, *item: Tensor) -> None:
        """Offer one item of the stream, which may be several tensors."""
        self.seen += 1
        if len(self.items) < self.capacity:
            self.items.append(item)
            return
        slot = int(torch.randint(self.seen, (1,), generator=self.generator))
        if slot < self.capacity:
            self.items[slot] = item

    def stacked(self) -> tuple[Tensor, ...]:
        """Return the kept items, one tensor a part."""
        return tuple(torch.stack(part) for part in zip(*self.items, strict=True))


class DER(Rehearsal):
    r"""Buzzega et al., *Dark Experience for General Continual Learning*, NeurIPS 2020, equation 6.

    The memory holds samples x with the logits z the model gave them when they were inserted; their
    labels are not used. With h_θ(x) the model's logits, current data and memory give

        L_w(θ) = w_i L_i(θ) + α Σ_{k<i} w_k  mean over (x, z) in memory k of ‖z − h_θ(x)‖².

    Insertion is reservoir sampling, one reservoir per task. It runs over the stream of the task's
    last epoch, so that no sample enters twice and the logits are those of models that have learnt
    the task. The preferences' models differ, and other preferences follow at the next task: what is
    stored is the average of the models' logits.

    Parameters
    ----------
    alpha
        α, how strongly the stored logits bind.
    """

    name = "der"
    beta = 0.0

    def __init__(self, network: nn.Module, *, alpha: float = 0.5, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.alpha = positive("alpha", alpha, or_zero=True)
        self.logits: list[Tensor] = []

    def direction(self, pool: Pool, preferences: Tensor, generator: torch.Generator) -> Gradient:
        """Gradient of L_w on the minibatch; in the last epoch the stream fills the reservoir."""
        data, importance, current = pool.data, pool.importance(preferences), pool.current
        self.reservoir = Reservoir(self.memory, generator)
        # The pool holds the memories first, in the order of their logits.
        remembered = torch.cat(self.logits) if self.logits else None

        def gradient(thetas: Tensor, rows: Tensor, epoch: int) -> Tensor:
            now = current[rows]
            past = torch.nonzero(~now).flatten()

            def slopes(outputs: Tensor) -> Tensor:
                each = self.slope(outputs, data.y[rows]) * torch.where(now, 1.0, self.beta)[:, None]
                if remembered is not None:
                    each[:, past] += 2 * self.alpha * (outputs[:, past] - remembered[rows[past]])
                return each

            samples = per_sample_gradients(self.models, thetas, data.x[rows], slopes)
            if epoch == self.descent.epochs - 1:
                for row, logits in zip(rows[now], samples.outputs.mean(0)[now], strict=True):
                    self.reservoir.add(data.x[row], data.y[row], logits)
            return samples.combine(importance[:, rows] / len(rows), out=thetas.grad)

        return gradient

    def remember(self, current: TaskData, generator: torch.Generator) -> TaskData:
        """Keep what the reservoir holds."""
        x, y, logits = self.reservoir.stacked()
        self.logits.append(logits)
        return TaskData(x, y)

    @property
    def stored_bytes(self) -> int:
        """Bytes of samples, logits and the model the next task starts from."""
        return super().stored_bytes + sum(logits.nbytes for logits in self.logits)


register(
    Registration(
        "der",
        "DER",
        DER,
        REHEARSAL,
        MLP,
        10.0,
        {**GRADIENT, "alpha": 0.5},
        {**DECAYED, "alpha": Range(0.01, 3.0)},
    )
)
