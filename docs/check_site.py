"""Check a built site: every internal link has its target, and nothing comes from the network.

    python docs/check_site.py build/docs

Links to other sites are left alone: they are for people to follow, not for pages to load.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a page loads by itself, by tag; what a person may follow is an anchor's href.
LOADED = {
    "link": "href",
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
}
# Links that announce something without loading it.
ANNOUNCED = {"canonical", "author", "index", "search", "next", "prev", "alternate"}
IMPORTS = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"](?:https?:)?//")


class Page(HTMLParser):
    """Anchors of a page, links it offers and files it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what the tag points to."""
        values = {name: value or "" for name, value in attributes}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a":
            if "name" in values:
                self.anchors.add(values["name"])
            if "href" in values:
                self.links.append(values["href"])
        elif tag == "link" and ANNOUNCED & set(values.get("rel", "").split()):
            self.links.append(values.get("href", ""))
        elif tag in LOADED and values.get(LOADED[tag]):
            self.loaded.append(values[LOADED[tag]])
        for part in values.get("srcset", "").split(","):
            if tag in LOADED and part.strip():
                self.loaded.append(part.split()[0])


def faults(folder: Path) -> Iterator[str]:
    """Yield a sentence for everything that is wrong."""
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
        if "_static" not in path.parts
    }
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for address in page.loaded:
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                yield f"{name} loads {address} from the network"
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            anchor = unquote(parts.fragment)
            if not target.exists():
                yield f"{name} points to {address}, which does not exist"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{name} points to {address}, but that page has no such place"
    for path in sorted(folder.rglob("*.css")):
        if IMPORTS.search(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(folder)} loads something from the network"


def main() -> None:
    """Print the faults, if any, and fail."""
    folder = Path(sys.argv[1])
    if not (folder / "index.html").exists():
        sys.exit(f"{folder} holds no site: build it first.")
    found = sorted(set(faults(folder)))
    for sentence in found:
        print(sentence)
    if found:
        sys.exit(f"{len(found)} faults in {folder}.")


if __name__ == "__main__":
    main()
