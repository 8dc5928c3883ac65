"""What can go wrong with files, each as one sentence; subclasses where a caller can help further.

No sentence names an option of a function or a command: whoever shows it knows how the way out is
called there.
"""

from __future__ import annotations

import os


class StoreError(ValueError):
    """What is on disk cannot be used, or must not be written over; its text says why."""


class ExistsError(StoreError):
    """A file is there already, and replacing it was not asked for."""


class OccupiedError(StoreError):
    """A folder holds a knowledge base that the learner to be saved was not loaded from."""


class ChangedSinceError(StoreError):
    """Another writer saved to the folder after the learner had been loaded or saved."""


class BusyError(StoreError):
    """Another process is writing."""


def reason(error: OSError) -> str:
    """Say what the system found wrong, also where it gives no more than a number.

    Examples
    --------
    >>> reason(OSError(28, None)), reason(OSError(28))
    ('No space left on device', 'No space left on device')
    """
    number = error.errno
    if number is None and len(error.args) == 1 and isinstance(error.args[0], int):
        number = error.args[0]
    # Libraries put numbers and paths of their own into the text; the system's words are clearer.
    text = os.strerror(number) if number else error.strerror or str(error)
    return " ".join(text.split()).rstrip(".") or type(error).__name__
