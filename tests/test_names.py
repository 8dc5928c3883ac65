"""Names: what cannot be printed, stored or read back is refused, and nothing else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibcl.names import check_name, printable


@pytest.mark.parametrize(
    "name", ["", " ", "\t", "a\0b", "\x1b[31mred", "a\x9bb", "a\nb", "a\x7f", "\udcff", "a\u2028b"]
)
def test_names_that_a_terminal_or_a_file_would_take_otherwise_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^A task's name must") as caught:
        check_name(name)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a", "x[/b]", "naïve", "日本語", "emoji 🎬", "a b", "-- drop"])
def test_other_names_are_taken_as_they_are(name: str) -> None:
    assert check_name(name) == name == printable(name)


def test_only_text_is_a_name() -> None:
    with pytest.raises(ValueError, match=r"^A column must be text, not int\.$"):
        check_name(3, what="A column")  # type: ignore[arg-type]


@given(st.text(st.characters(exclude_categories=())))
def test_anything_can_be_shown_and_what_is_accepted_can_be_stored(text: str) -> None:
    assert printable(text).isprintable()
    try:
        check_name(text)
    except ValueError:
        refused = {"Cc", "Cs", "Zl", "Zp"}
        assert not text.strip() or any(unicodedata.category(c) in refused for c in text)
    else:
        assert text.encode().decode() == text
