"""Check a built site: ``python scripts/check_site.py build/site``.

Every link and anchor within it must lead somewhere, nothing may be loaded from elsewhere when it is read, and links to
elsewhere must be well-formed. Nothing is asked of the network.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
"""What a browser fetches by itself; ``a`` it does not."""
IN_CSS = re.compile(r"""(?:@import\s+|url\(\s*)["']?(?:https?:)?//[^"')\s]*""")


@dataclass
class Parsed(HTMLParser):
    """A page's anchors and links."""

    anchors: set[str] = field(default_factory=set)
    links: list[tuple[str, str]] = field(default_factory=list)
    diagrams: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what an element has."""
        has = {name: value or "" for name, value in attrs}
        self.anchors |= {has[name] for name in ("id", "name") if name in has and (name == "id" or tag == "a")}
        self.diagrams |= "mermaid" in has.get("class", "").split()
        attribute = "href" if tag == "a" else LOADED.get(tag)
        if attribute in has:
            self.links.append((tag, has[attribute]))


def parse(path: Path) -> Parsed:
    """A page."""
    parsed = Parsed()
    parsed.feed(path.read_text())
    return parsed


def is_well_formed(link: str) -> bool:
    """Whether a link to elsewhere could be one."""
    if link.startswith("mailto:"):
        return re.fullmatch(r"mailto:[^@\s]+@[^@\s]+\.[^@\s]+", link) is not None
    try:
        parts = urlsplit(link)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    known = "." in host.strip(".") or host == "localhost"
    return parts.scheme in ("http", "https") and known and not re.search(r"\s", link)


def problems(site: Path) -> list[str]:
    """What is wrong with it, a line each."""
    pages = {path.relative_to(site).as_posix(): parse(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for name, page in pages.items():
        if page.diagrams:
            found.append(f"{name}: has a diagram that the browser would load a program for")
        for tag, link in page.links:
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link, re.IGNORECASE):
                if tag != "a" and not link.startswith("data:"):
                    found.append(f"{name}: loads {link} from elsewhere")
                elif tag == "a" and not is_well_formed(link):
                    found.append(f"{name}: {link} is no address")
                continue
            path, _, anchor = link.partition("#")
            path = unquote(path.partition("?")[0])
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            target = path.lstrip("/") or "." if path.startswith("/") else target
            if (site / target).is_dir():
                target = posixpath.normpath(f"{target}/index.html")
            if not (site / target).is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif anchor and unquote(anchor) not in pages[target].anchors:
                found.append(f"{name}: {link}: there is no such anchor")
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: loads {match[0]}" for match in IN_CSS.finditer(path.read_text())]
    return found


def main() -> int:
    """Print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    site = parser.parse_args().site
    found = problems(site)
    for line in found:
        print(line, file=sys.stderr)
    print(f"{site}: {len(list(site.rglob('*.html')))} pages, {len(found) or 'no'} bad links")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
