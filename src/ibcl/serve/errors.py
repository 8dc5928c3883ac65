"""What a caller is told when something cannot be done."""

from __future__ import annotations


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
