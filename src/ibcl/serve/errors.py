"""API errors: what a caller gets when something cannot be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST_NAME = 100
# How pydantic calls the kinds of a value that may be of several.
_KINDS = frozenset({"float", "int", "constrained-int", "bool", "str", "constrained-str"})


class ApiError(Exception):
    """An answer other than the one asked for: a status and one sentence.

    400s say what the caller can change; 409 means that a well-formed request does not fit the
    knowledge base as it is (its tasks, columns or classes).
    """

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_after = status, sentence, retry_after


def readable(text: str) -> str:
    r"""Return one line of text that any reader of JSON can take, however odd what it quotes.

    Examples
    --------
    >>> readable("no\nsuch\ud800task")
    'no such?task'
    """
    return " ".join(text.encode("utf-8", "replace").decode().split())[:1000]


def fault(errors: Sequence[Mapping[str, Any]]) -> str:
    """Say where and why, by the first error of a message that is not well formed.

    Of a value that may be of several kinds there is an error for each: what counts is the one that
    is about the kind it is of.

    Examples
    --------
    >>> number = {"loc": ("a", "float"), "type": "float_type", "msg": "No number"}
    >>> long = {"loc": ("a", "constrained-str"), "type": "string_too_long", "msg": "Too long"}
    >>> fault([number, long]), fault([{"loc": ("b",), "type": "missing", "msg": "Required"}])
    ('a: Too long.', 'b: Required.')
    """
    first = errors[0]
    where, why = first["loc"], first["msg"]
    kinds = [each for each in errors if each["loc"][:-1] == where[:-1]]
    if len(kinds) > 1 and all(each["loc"][-1] in _KINDS for each in kinds):
        about = [each["msg"] for each in kinds if not each["type"].endswith("_type")]
        where = where[:-1]
        why = about[0] if about else "Input should be a number, a text, true or false"
    return f"{'.'.join(shortened(str(each)) for each in where)}: {why}."


def shortened(name: str) -> str:
    """Return enough of a name to know it by, so that what is said of it is not cut off.

    Examples
    --------
    >>> shortened("year"), len(shortened("year" * 1000))
    ('year', 100)
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
