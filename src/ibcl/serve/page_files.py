"""The explorer's files: one page, with answers from this service or, in the demo, from itself.

`choose.html` and the shared scripts are the explorer wherever its answers come from; the service's
page adds single inputs (`inputs.js`) and asks over HTTP (`service.js`).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

SHARED = ("simplex.js", "charts.js", "explorer.js")
"""Scripts of every page with an explorer, in their order; its source of answers follows them."""
FILES = ("index.html", "page.css", *SHARED, "inputs.js", "service.js")
"""What the service's page is made of."""


@cache
def page_file(name: str) -> str:
    """Return one of the page's files.

    Examples
    --------
    >>> "Choose what matters" in page_file("index.html")
    True
    """
    text = files("ibcl.serve").joinpath("page", name).read_text(encoding="utf-8")
    return Template(text).substitute(choose=page_file("choose.html")) if name == FILES[0] else text
