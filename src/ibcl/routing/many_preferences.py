r"""Answers of all tasks behind a gate, for many preferences at once.

For rows × preferences there is not even a softmax. With the gate's densities e, shifted by their
largest for safety, and the tasks' answers p, those to all preferences W are

    (W (e ∘ p)ᵀ) / (W eᵀ),

two matrix products and a division, with W of shape (preferences, tasks), e and p of (rows, tasks).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ibcl.predictive import Answers
from ibcl.routing.predictive import TaskHeads, mixed, row_blocks

# Answers that are divided while they and their denominators are still in the processor's cache.
_CACHED_NUMBERS = 2**17
# Columns up to which every number has a denominator of its own.
_FEW_COLUMNS = 4
# Below this, single precision has lost too much of Σ_k w_k e_k: those answers are computed again.
_SMALLEST_SHARE = 1e-25


class RoutedAnswers(Answers):
    """Answers of routed models whose heads are the same for all preferences.

    Parameters
    ----------
    heads
        Parameters of all tasks' heads, shape (tasks, D).
    vertices
        Parameters that answer at the vertices, where those are not the heads'.
    """

    def __init__(
        self,
        task_heads: TaskHeads,
        heads: Tensor,
        features: Tensor,
        columns: int,
        vertices: Tensor | None = None,
    ) -> None:
        super().__init__(features, columns)
        self._task_heads, self._heads, self._vertices = task_heads, heads, vertices
        self._known: tuple[Tensor, Tensor] | None = None

    @cached_property
    def _joint(self) -> Tensor:
        return self._task_heads.joint(self.features)

    @cached_property
    def densities(self) -> Tensor:
        """Log e_k(φ) up to a term that all tasks share, of shape (rows, tasks)."""
        return self._task_heads.gate.of_joint(self._joint)

    @cached_property
    def of_tasks(self) -> Tensor:
        """p_k(y | φ) of every task, of shape (tasks, rows, columns)."""
        return self._where_run(torch.ones_like(self.densities, dtype=torch.bool))

    @cached_property
    def _without_costly(self) -> Tensor:
        """What tasks answer whose costly experts are not run, of shape (tasks, rows, columns)."""
        none = torch.zeros_like(self.densities, dtype=torch.bool)
        return self._of(self._heads, slice(None), none)

    def _where_run(self, run: Tensor) -> Tensor:
        """p_k(y | φ) where experts are run, of shape (rows, tasks), or were before; kept."""
        if self._known is None:
            self._known = self._of(self._heads, slice(None), run), run
        found, before = self._known
        if bool((missing := run & ~before).any()):
            fresh = self._of(self._heads, slice(None), missing)
            self._known = torch.where(missing.T[:, :, None], fresh, found), before | missing
        return self._known[0]

    def _of(self, thetas: Tensor, rows: slice | Tensor, run: Tensor | None = None) -> Tensor:
        tasks = torch.arange(len(thetas), device=thetas.device)
        features, joint = self.features[rows], self._joint[rows]
        return self._task_heads.answers(thetas, features, joint, tasks, run)

    @cached_property
    def _at_vertices(self) -> Tensor:
        return self.of_tasks if self._vertices is None else self._of(self._vertices, slice(None))

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor, int]:
        """(e ∘ p)ᵀ and eᵀ in single precision, and how often a row's e is repeated.

        Of few columns each has a denominator of its own, since dividing number by number is far
        faster than dividing pairs; of many, a row's is shared.
        """
        shifted = torch.exp(self.densities - self.densities.amax(1, keepdim=True)).T
        weighted = (shifted[:, :, None] * self.of_tasks).flatten(1).float()
        repeated = self.columns if self.columns <= _FEW_COLUMNS else 1
        return weighted, shifted.float().repeat_interleave(repeated, 1), repeated

    def crossed(self, preferences: Tensor) -> Tensor:
        """(W (e ∘ p)ᵀ) / (W eᵀ); where experts are costly, each is run once on all its rows."""
        if self._task_heads.costly:
            return self._crossed_where_shared(preferences.to(self.features.device))
        numerator, denominator, repeated = self._factors
        users = preferences.to(numerator.device)
        result = _room_for(len(users), self.rows * self.columns, numerator.device)
        weights = users.to(numerator)
        # The largest e of a row is 1, so no denominator is below a user's smallest weight.
        doubtful = bool(len(users)) and float(weights.min()) < _SMALLEST_SHARE
        step = max(1, _CACHED_NUMBERS // max(1, self.rows * self.columns))
        room = denominator.new_empty(min(step, len(users)), denominator.shape[1])
        for begin in range(0, len(users), step):
            part = weights[begin : begin + step]
            answer = result[begin : begin + step]
            shares = room[: len(part)]
            torch.mm(part, numerator, out=answer)
            torch.mm(part, denominator, out=shares)
            divided = answer.view(len(part), shares.shape[1], self.columns // repeated)
            divided.div_(shares[:, :, None])
            if doubtful and shares.numel() and float(shares.min()) < _SMALLEST_SHARE:
                self._mend(users[begin : begin + step], shares[:, ::repeated], answer)
        answers = result.view(len(users), self.rows, self.columns)
        # Whoever has no small weight has weight on every task.
        if doubtful or users.shape[1] == 1:
            vertex = torch.nonzero((users > 0).sum(1) == 1).flatten()
            if len(vertex):
                answers[vertex] = self._at_vertices.float()[users[vertex].argmax(1)]
        return answers

    def _crossed_where_shared(self, users: Tensor) -> Tensor:
        """Σ_k r_k p_k of one preference after another."""
        wanted = torch.zeros_like(self.densities, dtype=torch.bool)
        for user in users:
            wanted |= self._runs(user)
        answers = self._where_run(wanted)
        found = torch.empty(len(users), self.rows, self.columns, device=self.features.device)
        for number, user in enumerate(users):
            run = self._runs(user).T[:, :, None]
            own = torch.where(run, answers, self._without_costly)
            found[number] = mixed(self._shares(user), own).float()
        return found

    def _shares(self, weights: Tensor) -> Tensor:
        """Shares under one preference, or one per row: (rows, tasks)."""
        return self._task_heads.shares(self.densities, weights)

    def _runs(self, weights: Tensor) -> Tensor:
        """Which tasks' experts are run under one preference: (rows, tasks)."""
        run = self._task_heads.runs(self._shares(weights))
        return torch.ones_like(self.densities, dtype=torch.bool) if run is None else run

    def _mend(self, users: Tensor, shares: Tensor, answer: Tensor) -> None:
        """Answer again, with a softmax, where a user's tasks are all far from a row's own."""
        user, row = torch.nonzero(shares < _SMALLEST_SHARE, as_tuple=True)
        routing = torch.softmax(self.densities[row] + users[user].to(self.densities).log(), 1)
        exact = mixed(routing, self.of_tasks[:, row])
        answer.view(len(users), self.rows, self.columns)[user, row] = exact.float()

    def paired(self, preferences: Tensor) -> Tensor:
        """Σ_k r_k(φ, w) p_k(y | φ), with each row's own w."""
        weights = preferences.to(self.features.device)
        shares, found, begin = self._shares(weights), [], 0
        run = self._task_heads.runs(shares)
        for part in row_blocks(self.features, len(self._heads), self.columns):
            rows = slice(begin, begin + len(part))
            own = self._of(self._heads, rows, None if run is None else run[rows])
            found.append(mixed(shares[rows], own.double()))
            begin += len(part)
        result = torch.cat(found)
        alone = torch.nonzero((weights > 0).sum(1) == 1).flatten()
        if self._vertices is not None and len(alone):
            own = self._of(self._vertices, alone).double()
            result[alone] = own[weights[alone].argmax(1), torch.arange(len(alone))]
        return result


def _room_for(users: int, numbers: int, device: torch.device) -> Tensor:
    """Return a tensor that is not filled yet.

    Where it can, numpy asks for large arrays in huge pages, which torch does not. Touching the
    memory of millions of answers for the first time page by page takes as long as the products.
    """
    if device.type != "cpu":
        return torch.empty(users, numbers, device=device)
    return torch.from_numpy(np.empty((users, numbers), dtype=np.float32))
