"""What MkDocs does for our pages: pages from outside of docs/, their links, and comments that are for tests.

Pages are written to be read where they lie, so links between them are paths in the repository. Those that lead out of
docs/ are turned here to where the site has that page. A link to anything else is left, and fails the strict build.
"""

from __future__ import annotations

import ast
import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
SETUP = re.compile(r"^<!-- setup\n.*?^-->\n", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^<!-- not run: (.*?) -->\n(```.*?^```\n)", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)

NOT_PUBLIC = {
    "cli": "has a page of its own, docs/reference/cli.md",
    "pipeline": "is what operations are compiled by",
    "writer": "is told of by the names that fastloader has of it",
}
"""Packages whose names need not be in the reference."""
WHOLE = """# fastloader.{name}

::: fastloader.{name}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      heading_level: 2
"""


@cache
def brought() -> dict[str, str]:
    """Files from outside of docs/ by where the site has them."""
    found = {"explanation/architecture.md": "ARCHITECTURE.md", "project/changelog.md": "CHANGELOG.md"}
    found["project/contributing.md"] = "CONTRIBUTING.md"
    for path in sorted(ROOT.glob("bench/*/*")):
        topic, origin = path.parent.name, path.relative_to(ROOT).as_posix()
        match path.name:
            case "results.md":
                found[f"explanation/measurements/{topic}.md"] = origin
            case "README.md":
                found[f"explanation/measurements/{topic}-method.md"] = origin
            case name if name.endswith(".svg"):
                found[f"explanation/measurements/{topic}-{name}"] = origin
    for path in sorted(ROOT.glob("examples/*.py")):
        found[f"tutorials/examples/{path.stem}.md"] = f"examples/{path.name}"
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of docs/, and those from outside."""
    for uri, origin in brought().items():
        text = (ROOT / origin).read_text()
        content = as_page(Path(origin), text) if origin.endswith(".py") else text
        files.append(File.generated(config, uri, content=content))
    for name in without_page(ROOT / "src" / "fastloader", Path(config.docs_dir) / "reference" / "api"):
        files.append(File.generated(config, f"reference/api/{name}.md", content=WHOLE.format(name=name)))
    return files


def public_names(package: Path) -> dict[str, list[str]]:
    """What each public package in this one exports. Nothing is imported: some take seconds."""
    found = {}
    for path in sorted(package.glob("*/__init__.py")):
        for node in ast.parse(path.read_text()).body if path.parent.name not in NOT_PUBLIC else ():
            if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == ["__all__"]:
                found[path.parent.name] = ast.literal_eval(node.value)
    return found


def without_page(package: Path, pages: Path) -> list[str]:
    """Public packages that no page of the reference has anything of: those get a page with all of their names."""
    written = {path.stem: path.read_text() for path in pages.glob("*.md")}
    text = "\n".join(written.values())
    return [
        name
        for name in public_names(package)
        if name not in written and re.search(rf"^::: fastloader\.{name}\b", text, re.MULTILINE) is None
    ]


def as_page(path: Path, text: str) -> str:
    """A program as a page: what it says of itself, and all of it."""
    tree = ast.parse(text)
    about = ast.get_docstring(tree) or ""
    code = text.splitlines()[tree.body[0].end_lineno if about else 0 :]
    title, _, rest = about.partition("\n")
    return "\n\n".join((f"# {path.name}", title, rest.strip("\n"), "```python\n" + "\n".join(code).strip() + "\n```\n"))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Links and comments as the site has them."""
    sites = {origin: uri for uri, origin in brought().items()}
    here = page.file.src_uri
    docs = Path(config.docs_dir).relative_to(ROOT).as_posix() if Path(config.docs_dir).is_relative_to(ROOT) else "docs"
    origin = posixpath.dirname(brought().get(here, f"{docs}/{here}"))

    def linked(match: re.Match[str]) -> str:
        before, target, behind = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(origin, target))
        uri = sites.get(path) or (path.removeprefix(f"{docs}/") if path.startswith(f"{docs}/") else None)
        return match[0] if uri is None else before + posixpath.relpath(uri, posixpath.dirname(here) or ".") + behind

    if here.startswith(("explanation/measurements/", "tutorials/examples/")):
        page.meta.setdefault("search", {"boost": 0.2})  # whoever searches wants to read what is said of it first
    markdown = SETUP.sub("", markdown)
    markdown = NOT_RUN.sub(r'\2\n<p class="not-run">Not run by the tests: \1.</p>\n', markdown)
    return "".join(
        part if part.startswith("```") else unescaped(LINK.sub(linked, part)) for part in FENCED.split(markdown)
    )


def unescaped(text: str) -> str:
    """A bar in code within a table is written with a backslash, which Markdown for Python would show."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("|") and "\\|" in line:
            lines[number] = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
    return "\n".join(lines)
