r"""Gaussians as safetensors files, exactly or compactly; the manifest says of which family.

*Exact* files hold a family's own tensors as they are in memory.

*Compact* files hold a posterior's evidence Λ = P − P_prior, the precision it adds to the one it was
learnt from, because that is what evidence pooling uses. Every family with a compact form makes it
positive semi-definite by construction, whatever is rounded, so that the posterior stays positive
definite; a family without one is kept exactly.

* ``float16``: the family's own rounding of Λ.
* ``eigenvectors:r``: Λ ≈ S (W Wᵀ + diag ρ) S, with W from the r leading eigenvectors in float16 and
  ρ such that the diagonal stays right. Loaded, it is a few directions in memory too. Where a family
  has no such projection, its own rounding stands in.

Means are kept in float32, and pooled means of a chain with uniform weights therefore stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ibcl.gaussians import FAMILIES, Gaussian, NaturalParameters, family_named
from ibcl.store.files import StoreError, sha256
from ibcl.store.manifest import FileEntry

EXACT, FLOAT16, EIGENVECTORS = "exact", "float16", "eigenvectors"
_COMPACT = ":float16"
# Folders written before manifests named the family know these four kinds of file.
_UNNAMED = {
    "diagonal": {"mean", "std"},
    "dense": {"mean", "precision"},
    "dense:float16": {"mean", "scale", "triangle"},
    "low_rank:float16": {"mean", "scale", "factor", "remainder"},
}
Tensors = dict[str, Tensor]


def check_storage(storage: str) -> str:
    """Return the name of a way to store dense posteriors, or refuse it.

    Examples
    --------
    >>> check_storage("eigenvectors:64")
    'eigenvectors:64'
    """
    kind, _, rank = storage.partition(":") if isinstance(storage, str) else ("", "", "")
    if storage in (EXACT, FLOAT16) or (
        kind == EIGENVECTORS and rank.isascii() and rank.isdecimal() and 0 < int(rank[:9]) < 10**6
    ):
        return storage
    raise ValueError(
        f"storage must be 'exact', 'float16' or 'eigenvectors:64' (with any number), not "
        f"{storage!r}."
    )


@dataclass(frozen=True)
class Encoding:
    """A Gaussian as a file: what names it, and how it was made."""

    entry: FileEntry
    storage: str
    offered: str | None
    """Hash of the prior it could have been written as a difference to."""
    data: bytes | None
    """The bytes of a compact file; exact ones are made again from the Gaussian when needed."""


# A compact file cannot be made again bit for bit from the Gaussian it unfolds into, so Gaussians
# that came from one remember it: loading and saving again changes nothing.
_ENCODINGS: WeakKeyDictionary[Gaussian, Encoding] = WeakKeyDictionary()


def encode(
    gaussian: Gaussian, storage: str = EXACT, prior: tuple[str, Gaussian] | None = None
) -> Encoding:
    """Return the file a Gaussian is kept in.

    Parameters
    ----------
    prior
        Hash of the file of, and the Gaussian it was learnt from.
    """
    offered = prior[0] if prior else None
    known = _ENCODINGS.get(gaussian)
    if known and (known.storage, known.offered) == (storage, offered):
        return known
    if FAMILIES.get(gaussian.family) is not type(gaussian):
        kind = type(gaussian).__name__
        raise StoreError(f"A {kind} cannot be saved: make it known by ibcl.gaussians.register.")
    compact = None
    if storage != EXACT:
        compact = _compact(gaussian, storage, prior[1] if prior else None)
    data = save(compact.tensors if compact else _exact(gaussian))
    entry = FileEntry(
        sha256=sha256(data),
        bytes=len(data),
        base=offered if compact and compact.on_prior else None,
        family=compact.family if compact else gaussian.family,
    )
    encoding = Encoding(entry, storage, offered, data if compact else None)
    _ENCODINGS[gaussian] = encoding
    return encoding


def contents(gaussian: Gaussian, encoding: Encoding) -> bytes:
    """Return the bytes of a Gaussian's file."""
    return save(_exact(gaussian)) if encoding.data is None else encoding.data


def decode(
    data: bytes,
    entry: FileEntry,
    dimension: int,
    storage: str,
    base: Gaussian | None,
    offered: str | None = None,
) -> Gaussian:
    """Read a Gaussian from its file; every fault is a `StoreError`."""
    try:
        tensors = {name: _own(tensor) for name, tensor in load(data).items()}
        family = entry.family or _family_of(tensors)
        gaussian = _unfold(tensors, family, dimension, base)
    except (ValueError, RuntimeError, TypeError, KeyError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error) else "unreadable"
        raise StoreError(f"The posterior file {entry.sha256} is not valid: {reason}.") from None
    compact = family.endswith(_COMPACT)
    _ENCODINGS[gaussian] = Encoding(entry, storage, offered, data if compact else None)
    return gaussian


def _family_of(tensors: Tensors) -> str:
    """Tell the family by the names of the tensors, as in folders that do not say it."""
    for family, names in _UNNAMED.items():
        if set(tensors) == names:
            return family
    raise ValueError(f"it holds {', '.join(sorted(tensors)) or 'nothing'}")


def _exact(gaussian: Gaussian) -> Tensors:
    return {name: _own(tensor) for name, tensor in gaussian.tensors().items()}


def _own(tensor: Tensor) -> Tensor:
    """Return a copy that shares no memory, which safetensors insists on."""
    return tensor.clone(memory_format=torch.contiguous_format)


class _Compact(NamedTuple):
    tensors: Tensors
    family: str
    on_prior: bool


def _compact(gaussian: Gaussian, storage: str, prior: Gaussian | None) -> _Compact | None:
    """Return the compact form, on the prior if it can be; None where none is safe."""
    posterior = gaussian.natural_parameters()
    # In units of the posterior's own precision, so that features of any size count alike.
    unit = posterior.precision_diagonal().sqrt()
    for base in (prior, None) if prior else (None,):
        evidence = posterior if base is None else posterior - base.natural_parameters()
        try:
            if storage != FLOAT16:
                evidence = evidence.low_rank(int(storage.partition(":")[2]), unit) or evidence
            parts = evidence.half(unit)
            if parts is None:
                continue
            tensors = {"mean": gaussian.mean.float(), **parts}
            tensors = {name: _own(tensor) for name, tensor in tensors.items()}
            family = _family_with(evidence) + _COMPACT
            _unfold(tensors, family, gaussian.dimension, base)
        except ValueError:
            continue
        return _Compact(tensors, family, base is not None)
    return None


def _family_with(natural: NaturalParameters) -> str:
    """Name the family with these natural parameters."""
    return next(name for name, family in FAMILIES.items() if family.natural is type(natural))


def _unfold(tensors: Tensors, family: str, dimension: int, base: Gaussian | None) -> Gaussian:
    """Rebuild the Gaussian from the tensors of its file: exactly, or as base + evidence."""
    name, compact, _ = family.partition(_COMPACT)
    if not compact:
        return family_named(name).from_tensors(tensors, dimension)
    parts = dict(tensors)
    mean = parts.pop("mean").double()
    if mean.shape != (dimension,):
        raise ValueError(f"mean does not have {dimension} numbers")
    precision = family_named(name).natural.from_half(parts, dimension)
    if base is not None:
        precision = base.natural_parameters() + precision
    return precision.around(mean)
