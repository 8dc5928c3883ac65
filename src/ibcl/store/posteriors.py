r"""Gaussians as safetensors files, exactly or compactly.

*Exact* files hold mean and std, or mean and precision, as they are in memory. (Where all
coordinates are alike, as in most priors, one stands for all.)

*Compact* files hold a dense posterior's evidence Λ = P − P_prior, the precision it adds to the one
it was learnt from, because that is what evidence pooling uses. Both forms are positive
semi-definite by construction, whatever is rounded, so that the posterior stays positive definite:

* ``float16``: Λ = S G Gᵀ S with S² = diag Λ; the triangular G has rows of length one, which
  float16 holds without overflow. Rounding a factor, and not Λ itself, leaves directions that
  the task knows little about almost untouched.
* ``eigenvectors:r``: Λ ≈ S (W Wᵀ + diag ρ) S, with W from the r leading eigenvectors in float16 and
  ρ such that the diagonal stays right.

Means are kept in float32, and pooled means of a chain with uniform weights therefore stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ibcl.gaussians import DenseGaussian, DiagonalGaussian, Gaussian
from ibcl.store.files import StoreError, sha256
from ibcl.store.manifest import FileEntry

EXACT, FLOAT16, EIGENVECTORS = "exact", "float16", "eigenvectors"
LARGEST_COMPACT = 2**14
"""Parameters up to which compact files are used: they unfold into a matrix of D² numbers."""
LARGEST_UNFOLDED, UNFOLDING = 2**27, 2**10
"""Bytes that any compact file may unfold into; and how many for each of its own beyond that."""

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
    compact = None
    if storage != EXACT and isinstance(gaussian, DenseGaussian):
        compact = _compact(gaussian, storage, prior[1] if prior else None)
    data = save(compact[0] if compact else _exact(gaussian))
    base = offered if compact and compact[1] else None
    entry = FileEntry(sha256=sha256(data), bytes=len(data), base=base)
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
        gaussian = _unfold(tensors, dimension, base)
    except (ValueError, RuntimeError, TypeError, KeyError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error) else "unreadable"
        raise StoreError(f"The posterior file {entry.sha256} is not valid: {reason}.") from None
    exact = "std" in tensors or "precision" in tensors
    _ENCODINGS[gaussian] = Encoding(entry, storage, offered, None if exact else data)
    return gaussian


def _exact(gaussian: Gaussian) -> Tensors:
    if isinstance(gaussian, DenseGaussian):
        return {"mean": _own(gaussian.mean), "precision": _own(gaussian.precision)}
    assert isinstance(gaussian, DiagonalGaussian)
    mean, std = gaussian.mean, gaussian.std
    # Compared as bits, since −0 equals 0 but is another file.
    alike = all(
        bool((value.view(torch.uint8).reshape(len(value), -1) == value[:1].view(torch.uint8)).all())
        for value in (mean.contiguous(), std.contiguous())
    )
    rows = 1 if alike else len(mean)
    return {"mean": _own(mean[:rows]), "std": _own(std[:rows])}


def _own(tensor: Tensor) -> Tensor:
    """Return a copy that shares no memory, which safetensors insists on."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _compact(
    gaussian: DenseGaussian, storage: str, prior: Gaussian | None
) -> tuple[Tensors, bool] | None:
    """Return the compact form and whether it builds on the prior; None where none is safe."""
    if gaussian.dimension > LARGEST_COMPACT:
        return None
    for base in (prior, None) if prior else (None,):
        evidence = gaussian.precision.double()
        # In units of the posterior's own precision, so that features of any size count alike.
        unit = evidence.diagonal().sqrt()
        if base is not None:
            evidence = evidence - base.dense().precision.double()
        evidence = evidence / unit / unit[:, None]
        values, vectors = torch.linalg.eigh((evidence + evidence.T) / 2)
        if float(values[0]) < -1e-10:
            continue
        # A factor of the evidence, weakest direction first, and of the scaled one: Λ = S B Bᵀ S.
        factor = vectors * values.clamp(min=0).sqrt() * unit[:, None]
        scale = factor.norm(dim=1).clamp(min=1e-30).float()
        factor = factor / scale.double()[:, None]
        tensors = {"mean": gaussian.mean.float(), "scale": scale}
        if storage == FLOAT16:
            triangular = torch.linalg.qr(factor.T, mode="r").R.T
            rows, columns = torch.tril_indices(len(factor), len(factor))
            tensors["triangle"] = triangular[rows, columns].half()
        else:
            rank = min(int(storage.partition(":")[2]), len(factor))
            tensors["factor"] = factor[:, -rank:].half().contiguous()
            explained = tensors["factor"].double().square().sum(1)
            tensors["remainder"] = (factor.square().sum(1) - explained).clamp(min=0).float()
        try:
            _unfold(tensors, gaussian.dimension, base)
        except ValueError:
            continue
        return tensors, base is not None
    return None


def _unfold(tensors: Tensors, dimension: int, base: Gaussian | None) -> Gaussian:
    """Rebuild the Gaussian from the tensors of its file."""
    names = set(tensors)
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise ValueError(f"{name} holds {tensor.dtype} instead of floating-point numbers")
    if names == {"mean", "std"}:
        if all(len(value.reshape(-1)) == 1 for value in tensors.values()):
            return DiagonalGaussian(
                *(tensors[name].reshape(1).repeat(dimension) for name in ("mean", "std"))
            )
        return _of_dimension(DiagonalGaussian(tensors["mean"], tensors["std"]), dimension)
    if names == {"mean", "precision"}:
        return _of_dimension(DenseGaussian(tensors["mean"], tensors["precision"]), dimension)
    triangle = names == {"mean", "scale", "triangle"}
    if not triangle and names != {"mean", "scale", "factor", "remainder"}:
        raise ValueError(f"it holds {', '.join(sorted(names)) or 'nothing'}")
    held = sum(tensor.nbytes for tensor in tensors.values())
    if dimension > LARGEST_COMPACT or 8 * dimension**2 > max(LARGEST_UNFOLDED, UNFOLDING * held):
        raise ValueError("it is too large to unfold")
    shapes = {"mean": (dimension,), "scale": (dimension,), "remainder": (dimension,)}
    for name in names & set(shapes):
        if tensors[name].shape != shapes[name]:
            raise ValueError(f"{name} does not have {dimension} numbers")
    scale = tensors["scale"].double()
    if triangle:
        evidence = _from_triangle(tensors["triangle"], dimension)
    else:
        factor, remainder = tensors["factor"].double(), tensors["remainder"].double()
        if factor.ndim != 2 or len(factor) != dimension or not bool((remainder >= 0).all()):
            raise ValueError("its eigenvectors do not fit")
        evidence = factor @ factor.T + torch.diag(remainder)
    precision = scale[:, None] * evidence * scale
    if base is not None:
        precision = precision + base.dense().precision.double()
    return DenseGaussian(tensors["mean"].double(), (precision + precision.T) / 2)


def _from_triangle(triangle: Tensor, dimension: int) -> Tensor:
    if triangle.shape != (dimension * (dimension + 1) // 2,):
        raise ValueError("its triangle does not fit")
    factor = torch.zeros(dimension, dimension, dtype=torch.float64)
    rows, columns = torch.tril_indices(dimension, dimension)
    factor[rows, columns] = triangle.double()
    return factor @ factor.T


def _of_dimension(gaussian: Gaussian, dimension: int) -> Gaussian:
    if gaussian.dimension != dimension:
        raise ValueError(f"it has {gaussian.dimension} parameters, the network {dimension}")
    return gaussian
