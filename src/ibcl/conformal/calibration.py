r"""What is kept of a task to calibrate with: some of its rows, or no more than their scores.

* Rows kept: features φ of held-out samples, in half precision, with their answers. Scores are those
  of the served model, computed again for any preference and after any new task.
* Scores only: s_k(x, y) of held-out samples under a function that was fixed when task k was learnt,
  and the fingerprint of that function.

Neither may have been learnt from. Both belong to their task and go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional

from ibcl.backbones import NO_TOKEN

CalibrationRows = Literal["kept", "scores"]
_LARGEST = torch.finfo(torch.float16).max
_TENSORS = ("features", "answers", "scores", "tokens", "fingerprint")


def rounded(features: Tensor) -> Tensor:
    """Return features as they are kept: in half precision, the largest ones cut to its range.

    Inputs to come must be rounded in the same way before they are scored. Then rows kept and inputs
    to come have the same score of the same features, and half precision costs nothing of the
    guarantee.

    Examples
    --------
    >>> rounded(torch.tensor([0.1, 1e9]))
    tensor([9.9976e-02, 6.5504e+04], dtype=torch.float16)
    """
    return features.clamp(-_LARGEST, _LARGEST).half()


def as_kept(features: Tensor, tokens_from: int | None = None) -> Tensor:
    """Return features as rows kept come back: `rounded`, but for token ids, which stay exact.

    Parameters
    ----------
    tokens_from
        The first column of token ids, where features carry any.

    Examples
    --------
    >>> as_kept(torch.tensor([[0.1, 30521.0]]), tokens_from=1)
    tensor([[9.9976e-02, 3.0521e+04]])
    """
    kept = rounded(features[:, :tokens_from]).float()
    return kept if tokens_from is None else torch.cat([kept, features[:, tokens_from:].float()], 1)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration samples of one task: rows or scores, never both.

    Attributes
    ----------
    features
        Rows kept: shape (n, ...), in half precision.
    tokens
        Token ids that these rows carry, shape (n, length), exactly; None where they carry none.
    answers
        Of these rows: numbers of classes or values, shape (n,).
    scores
        Scores only: shape (n,), in double precision.
    fingerprint
        Of the function that scores were taken of: bytes, as whole numbers.

    Examples
    --------
    >>> kept = Calibration.of_rows(torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1]))
    >>> kept.n, kept.rows, kept.features.dtype
    (5, 'kept', torch.float16)
    >>> Calibration.of_scores(torch.tensor([0.2, 0.9]), b"function").rows
    'scores'
    """

    kind: ClassVar[str] = "calibration"
    """What a knowledge base keeps it under."""

    features: Tensor | None = None
    answers: Tensor | None = None
    scores: Tensor | None = None
    tokens: Tensor | None = None
    fingerprint: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.features is None) != (self.answers is None):
            raise ValueError("Calibration rows are features with their answers.")
        if (self.features is None) == (self.scores is None):
            raise ValueError("A calibration holds rows or scores, one of the two.")
        if (self.scores is None) != (self.fingerprint is None):
            raise ValueError("Calibration scores come with the fingerprint of their function.")
        if self.features is not None and self.answers is not None:
            if self.features.ndim < 2 or self.answers.shape != self.features.shape[:1]:
                raise ValueError(
                    f"Calibration features of shape {tuple(self.features.shape)} do not fit "
                    f"answers of shape {tuple(self.answers.shape)}."
                )
            if self.features.dtype != torch.float16 or not bool(self.features.isfinite().all()):
                raise ValueError("Calibration features must be finite and in half precision.")
            if self.answers.is_floating_point() and not bool(self.answers.isfinite().all()):
                raise ValueError("Calibration answers must be finite.")
        if self.tokens is not None:
            rows = None if self.features is None else self.features.shape[:1]
            if self.tokens.dtype != torch.int32 or self.tokens.shape[:1] != rows:
                raise ValueError("Calibration tokens must be whole numbers, one row per sample.")
            if self.tokens.ndim != 2 or bool((self.tokens < NO_TOKEN).any()):
                raise ValueError("Calibration tokens must be ids, one row per sample.")
        if self.scores is not None and (self.scores.ndim != 1 or bool(self.scores.isnan().any())):
            raise ValueError("Calibration scores must be numbers, one for each sample.")
        if self.n == 0:
            raise ValueError("A calibration needs at least one sample.")

    @classmethod
    def of_rows(
        cls, features: Tensor, answers: Tensor, tokens_from: int | None = None
    ) -> Calibration:
        """Keep rows; their features are rounded to half precision.

        Parameters
        ----------
        tokens_from
            The first column of token ids, where features carry any: these are kept exactly.
        """
        tokens = None if tokens_from is None else features[:, tokens_from:].int().contiguous()
        return cls(features=rounded(features[:, :tokens_from]), answers=answers, tokens=tokens)

    def kept(self, length: int = 0) -> Tensor:
        """Return the rows' features as they are answered from, in single precision.

        Parameters
        ----------
        length
            Tokens that rows are to have at least.
        """
        if self.features is None:
            raise ValueError("Calibration scores have no features.")
        if self.tokens is None:
            return self.features.float()
        return torch.cat([self.features.float(), _longer(self.tokens, length).float()], 1)

    @property
    def length(self) -> int:
        """How many tokens its rows carry."""
        return 0 if self.tokens is None else self.tokens.shape[1]

    @classmethod
    def of_scores(cls, scores: Tensor, fingerprint: bytes) -> Calibration:
        """Keep scores, in their order of size, which says nothing of the order of the samples."""
        known = torch.tensor(list(fingerprint), dtype=torch.uint8)
        return cls(scores=scores.double().sort().values, fingerprint=known)

    @property
    def n(self) -> int:
        """How many samples."""
        held = self.scores if self.scores is not None else self.answers
        return 0 if held is None else len(held)

    @property
    def rows(self) -> CalibrationRows:
        """What is kept."""
        return "kept" if self.scores is None else "scores"

    def grown(self, width: int, positions: Tensor) -> Calibration:
        """Return rows kept among more features, which were zero when they were taken.

        Parameters
        ----------
        width
            How many features there are now.
        positions
            Where those of the rows are among them.
        """
        if self.features is None:
            raise ValueError("Calibration scores have no features.")
        features = self.features.new_zeros(len(self.features), width)
        features[:, positions] = self.features
        return replace(self, features=features)

    def rescored(self, fingerprint: bytes) -> Calibration:
        """Return the same scores of a function that is the same by another fingerprint."""
        known = torch.tensor(list(fingerprint), dtype=torch.uint8)
        return replace(self, fingerprint=known)

    def __add__(self, other: Calibration) -> Calibration:
        """Unite the samples of two batches of one task."""
        if self.rows != other.rows:
            raise ValueError("Calibration rows and calibration scores cannot be united.")
        mine, theirs = self.tensors(), other.tensors()
        if self.scores is not None and other.scores is not None:
            if not torch.equal(mine["fingerprint"], theirs["fingerprint"]):
                raise ValueError("Calibration scores of different functions cannot be united.")
            united = torch.cat([self.scores, other.scores])
            return Calibration.of_scores(united, bytes(mine["fingerprint"].tolist()))
        if mine["features"].shape[1] != theirs["features"].shape[1]:
            raise ValueError("Calibration rows of different features cannot be united.")
        if mine.keys() != theirs.keys():
            raise ValueError("Calibration rows with and without tokens cannot be united.")
        length = max(self.length, other.length)
        for each in (mine, theirs):
            each.update({"tokens": _longer(each["tokens"], length)} if "tokens" in each else {})
        return Calibration(**{name: torch.cat([mine[name], theirs[name]]) for name in mine})

    def tensors(self) -> dict[str, Tensor]:
        """Return what there is to store, by its name."""
        parts = {name: getattr(self, name) for name in _TENSORS}
        return {name: tensor for name, tensor in parts.items() if tensor is not None}

    @property
    def nbytes(self) -> int:
        """Bytes its tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def encode(self) -> bytes:
        """Return it as bytes of a safetensors file."""
        return save({name: tensor.cpu().contiguous() for name, tensor in self.tensors().items()})

    @classmethod
    def decode(cls, data: bytes) -> Calibration:
        """Return what `encode` wrote."""
        try:
            return cls.from_tensors(load(data))
        except SafetensorError:
            raise ValueError("A calibration is not a safetensors file.") from None

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Calibration:
        """Return what `tensors` gave."""
        if not set(tensors) <= {*_TENSORS}:
            raise ValueError(f"A calibration cannot consist of {', '.join(sorted(tensors))}.")
        return cls(**tensors)


def _longer(tokens: Tensor, length: int) -> Tensor:
    """Return rows of at least so many tokens; there are none where they were shorter."""
    return functional.pad(tokens, (0, max(0, length - tokens.shape[1])), value=int(NO_TOKEN))


def held_out(n: int, calibration: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split n samples at random into those to learn from and those to calibrate with.

    The split depends on n and the seed alone, so that a task has the same one wherever and
    whenever it is learnt.

    Parameters
    ----------
    calibration
        How many to calibrate with: a whole number, or a share between 0 and 1.

    Examples
    --------
    >>> learn, calibrate = held_out(10, 0.2, seed=0)
    >>> len(learn), len(calibrate), sorted([*learn, *calibrate]) == list(range(10))
    (8, 2, True)
    """
    if isinstance(calibration, bool) or not isinstance(calibration, Real):
        raise ValueError(f"calibration must be a number of rows or a share, not {calibration!r}.")
    size = float(calibration)
    if 0 < size < 1:
        size = max(1, round(size * n))
    elif not size >= 1 or not size.is_integer():
        raise ValueError(
            f"calibration must be a whole number of rows or a share between 0 and 1, not "
            f"{calibration!r}."
        )
    if not size < n:
        raise ValueError(
            f"{size:.0f} of {n} samples cannot be held out to calibrate with, since none would be "
            "left to learn from; give more samples, or a share such as calibration=0.2."
        )
    order = np.random.default_rng(abs(seed)).permutation(n)
    return np.sort(order[int(size) :]), np.sort(order[: int(size)])
