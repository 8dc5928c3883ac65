"""What is kept of a task to calibrate with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl.conformal import Calibration, held_out, rounded

ROWS = Calibration.of_rows(torch.randn(6, 3), torch.arange(6) % 2)
SCORES = Calibration.of_scores(torch.tensor([0.3, -1.0, 0.2]), b"f")


@pytest.mark.parametrize("kept", [ROWS, SCORES], ids=["rows", "scores"])
def test_it_is_what_it_was_after_storing(kept: Calibration) -> None:
    again = Calibration.from_tensors(kept.tensors())
    assert again.rows == kept.rows
    assert again.n == kept.n
    assert all(
        torch.equal(tensor, again.tensors()[name]) for name, tensor in kept.tensors().items()
    )


def test_rows_are_rounded_once_and_for_all() -> None:
    features = torch.tensor([[0.1, 1e30, -1e30, 1e-30]])
    kept = Calibration.of_rows(features, torch.zeros(1)).features
    assert kept is not None
    assert torch.equal(kept, rounded(features))
    assert torch.equal(rounded(kept), kept)
    assert torch.equal(rounded(features.double()), kept)


def test_bytes_that_are_no_calibration_are_refused() -> None:
    with pytest.raises(ValueError, match="not a safetensors file"):
        Calibration.decode(b"nothing of the kind")


def test_scores_do_not_tell_the_order_of_the_samples() -> None:
    assert SCORES.scores is not None
    assert SCORES.scores.tolist() == sorted(SCORES.scores.tolist())


def test_batches_of_a_task_unite() -> None:
    both = ROWS + ROWS
    assert both.n == 12
    assert both.features is not None
    assert ROWS.features is not None
    assert torch.equal(both.features[6:], ROWS.features)
    united = SCORES + Calibration.of_scores(torch.tensor([0.25]), b"f")
    assert united.scores is not None
    assert torch.allclose(united.scores, torch.tensor([-1, 0.2, 0.25, 0.3]).double())
    with pytest.raises(ValueError, match="cannot be united"):
        ROWS + SCORES
    with pytest.raises(ValueError, match="different functions"):
        SCORES + Calibration.of_scores(torch.tensor([0.25]), b"g")
    with pytest.raises(ValueError, match="different features"):
        ROWS + Calibration.of_rows(torch.randn(2, 4), torch.zeros(2))


BYTES = torch.zeros(1, dtype=torch.uint8)
BAD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "both": {"features": ROWS.features, "answers": ROWS.answers, "scores": SCORES.scores},
    "no answers": {"features": ROWS.features},
    "other number of answers": {"features": ROWS.features, "answers": torch.zeros(5)},
    "full precision": {"features": torch.zeros(6, 3), "answers": torch.zeros(6)},
    "not finite": {"features": torch.full((1, 1), torch.inf).half(), "answers": torch.zeros(1)},
    "answers not finite": {
        "features": torch.zeros(1, 1).half(),
        "answers": torch.tensor([torch.nan]),
    },
    "score is no number": {"scores": torch.tensor([torch.nan]), "fingerprint": BYTES},
    "table of scores": {"scores": torch.zeros(2, 2), "fingerprint": BYTES},
    "no sample": {"scores": torch.zeros(0), "fingerprint": BYTES},
    "scores of nothing": {"scores": torch.zeros(2)},
    "foreign tensor": {"rows": torch.zeros(2)},
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_calibration_is_refused(case: str) -> None:
    with pytest.raises(ValueError, match=r"^(A c|C)alibration"):
        Calibration.from_tensors(BAD[case])


@given(st.integers(2, 300), st.integers(1, 299), st.integers(0, 5))
def test_samples_are_held_out_without_loss(n: int, size: int, seed: int) -> None:
    if size >= n:
        with pytest.raises(ValueError, match=f"^{size} of {n} samples cannot be held out"):
            held_out(n, size, seed)
        return
    learn, calibrate = held_out(n, size, seed)
    assert len(calibrate) == size
    assert sorted([*learn, *calibrate]) == list(range(n))
    assert all(map(np.array_equal, held_out(n, size, seed), (learn, calibrate)))


@pytest.mark.parametrize("calibration", [0, -1, 0.0, 1.5, -0.1, True, "half", None, np.nan])
def test_what_is_no_number_of_rows_is_refused(calibration: Any) -> None:
    with pytest.raises(ValueError, match=r"calibrat"):
        held_out(10, calibration, seed=0)
