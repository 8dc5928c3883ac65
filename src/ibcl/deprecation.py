"""Old names of settings, which keep working for one version with a warning."""

from __future__ import annotations

import warnings


def renamed_setting(old: str, value: object, new: str, *, opposite: bool = False) -> None:
    """Warn that a setting goes by another name now.

    Parameters
    ----------
    opposite
        Whether the new one means the opposite.
    """
    meaning = f"{new}={not value}" if opposite else f"{new}={value!r}"
    warnings.warn(
        f"{old}= is called {new}= now: write {meaning}; the old name goes with version 0.4.",
        DeprecationWarning,
        stacklevel=4,
    )


def independent_from(continual: bool | None, independent: bool | None) -> bool | None:
    """Return `independent`, also where it was given by its old name and opposite, `continual`.

    Examples
    --------
    >>> independent_from(None, True)
    True
    """
    if continual is None:
        return independent
    renamed_setting("continual", continual, "independent", opposite=True)
    if independent is not None:
        raise ValueError("Give independent=, not also its old name continual=.")
    return not continual
