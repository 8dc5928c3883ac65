"""Names that people give: which are refused, and how any text is shown on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import islice

# Control characters, halves of a surrogate pair, and separators of lines and paragraphs.
_REFUSED = {"Cc", "Cs", "Zl", "Zp"}
# Of very many names a sentence says so many.
_SAID = 20


def check_name(text: str, what: str = "A task's name") -> str:
    r"""Return a name that can be shown, stored and read back unchanged, or refuse it.

    Examples
    --------
    >>> check_name("sci-fi")
    'sci-fi'
    >>> check_name("red" + chr(27) + "[31m")
    Traceback (most recent call last):
        ...
    ValueError: A task's name must be text that can be printed, without '\x1b' (in 'red\x1b[31m').
    """
    if not isinstance(text, str):
        raise ValueError(f"{what} must be text, not {type(text).__name__}.")
    if not text.strip():
        raise ValueError(f"{what} must not be empty or blank.")
    for character in text:
        if unicodedata.category(character) in _REFUSED:
            raise ValueError(
                f"{what} must be text that can be printed, without '{printable(character)}' "
                f"(in '{printable(text)}')."
            )
    return text


def printable(text: object) -> str:
    r"""Write any text so that a terminal shows it and does nothing else.

    Examples
    --------
    >>> printable("naïve" + chr(7) + chr(0x9B) + chr(0xDCFF))
    'naïve\\x07\\x9b\\udcff'
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in str(text)
    )


def listed(names: Sequence[str]) -> str:
    """Name things in a sentence, and of very many the first ones.

    Examples
    --------
    >>> listed(["a", "b"])
    'a, b'
    >>> listed([str(number) for number in range(10_000)]).split(", ")[-1]
    '19 and 9,980 more'
    """
    more = len(names) - _SAID
    said = ", ".join(islice(names, _SAID))
    return f"{said} and {more:,} more" if more > 0 else said
