"""Docstrings as they are written in the code, read as reStructuredText.

In the code an equation is an indented block after a paragraph, and ``|`` means what it does in
mathematics. To reStructuredText the first is a quotation and the second a substitution.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_LITERAL = re.compile(r"(``.*?``|`[^`]*`)")


# The names of one or several parameters, and their type where there is one.
_NAMES = re.compile(r"\*{0,2}\w+(, \*{0,2}\w+)*( : .*)?$")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def equations(lines: list[str]) -> list[str]:
    """Mark indented blocks outside of sections and lists as literal text.

    Examples
    --------
    >>> equations(["With the noise,", "", "    y = f + e"])
    ['With the noise,', '', '.. code-block:: text', '', '    y = f + e']
    """
    marked: list[str] = []
    inside = section = False
    previous = ""
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line and not line.startswith(" "):
            inside = False
            if following and set(following) == {"-"} and len(following) >= len(line):
                section = True
        starts = _indent(line) >= 4 and line.strip() and not inside and marked
        if starts and not section and not marked[-1].strip() and not _listed(previous):
            marked += [".. code-block:: text", ""]
            inside = True
        marked.append(line)
        if line.strip() and not line.startswith(" "):
            previous = line
    return marked


def parameters(lines: list[str]) -> list[str]:
    """Put paragraphs that stand after the parameters before them, where they belong on a page.

    Examples
    --------
    >>> parameters(["Parameters", "----------", "a", "    It.", "", "What is None is chosen."])
    ['What is None is chosen.', '', 'Parameters', '----------', 'a', '    It.', '']
    """
    if "Parameters" not in lines:
        return lines
    begin = lines.index("Parameters")
    kept, moved = lines[: begin + 2], []
    moving = False
    for number, line in enumerate(lines[begin + 2 :], begin + 2):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if following and set(following) == {"-"}:
            return [*kept[:begin], *moved, *kept[begin:], *lines[number:]]
        if line and not line.startswith(" "):
            moving = (moving and bool(lines[number - 1])) or not _NAMES.match(line)
        (moved if moving else kept).append(line)
    if moved and moved[-1]:
        moved.append("")
    return [*kept[:begin], *moved, *kept[begin:]]


def _listed(line: str) -> bool:
    """Whether a line begins an item, a directive or an example, whose blocks are its own."""
    return line.startswith(("* ", "- ", ".. ", ">>>")) or line.endswith("::")


def bars(line: str) -> str:
    r"""Escape ``|`` outside of literals.

    Examples
    --------
    >>> print(bars("p(y | x) in ``a | b``"))
    p(y \| x) in ``a | b``
    """
    parts = _LITERAL.split(line)
    return "".join(
        part if index % 2 else part.replace("|", "\\|") for index, part in enumerate(parts)
    )


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    marked = equations(parameters(lines))
    literal = False
    for number, line in enumerate(marked):
        if line.strip() and not line.startswith(" "):
            literal = line == ".. code-block:: text" or line.endswith("::")
        if not literal and ">>>" not in line and "|" in line:
            marked[number] = bars(line)
    lines[:] = marked


def _skip(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator for its metadata."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Come before napoleon, which reads the sections."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
