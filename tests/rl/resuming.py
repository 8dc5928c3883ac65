"""A run that was broken off and is given again ends as one that never was."""

import numpy as np
import pytest


class InterruptedRunError(Exception):
    pass


def interrupting(after):
    """Return a progress callback that breaks a run off after so many updates."""
    updates = 0

    def count(_):
        nonlocal updates
        updates += 1
        if updates == after:
            raise InterruptedRunError

    return count


def assert_resumes_exactly(run, folder, stop):
    """``run(folder, progress)`` learns with checkpoints in the folder and returns its `IBCRL`."""
    straight = run(folder / "straight", None)
    with pytest.raises(InterruptedRunError):
        run(folder / "broken", interrupting(stop))
    resumed = run(folder / "broken", None)
    for task in straight.knowledge.tasks:
        (ours,), (theirs,) = straight.knowledge.extremes(task), resumed.knowledge.extremes(task)
        np.testing.assert_array_equal(ours.mean, theirs.mean)
        np.testing.assert_array_equal(ours.std, theirs.std)
        one, other = straight.results[task], resumed.results[task]
        assert (one.steps, one.updates) == (other.steps, other.updates)
        np.testing.assert_array_equal(one.history, other.history)
