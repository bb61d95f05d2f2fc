"""The documentation as a site: it builds without a warning, its links lead somewhere, and it has every public name."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastloader

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def _scripts_on_path():
    sys.path.insert(0, str(ROOT / "scripts"))
    yield
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture
def check_site():
    """The script that checks a site."""
    return importlib.import_module("check_site")


@pytest.fixture
def docs_hooks():
    """What MkDocs is told to do besides."""
    return importlib.import_module("docs_hooks")


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build strictly."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", site],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_link_and_anchor_leads_somewhere_and_nothing_comes_from_elsewhere(site: Path, check_site) -> None:
    assert check_site.problems(site) == []


def test_every_page_has_its_place_in_the_navigation(site: Path) -> None:
    navigation = set(re.findall(r'href="([^"#]+)" class="md-nav__link', (site / "index.html").read_text()))
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html", "index.html"}
    assert len(pages) > 60
    assert pages <= navigation


def test_pages_from_outside_of_docs_are_there_and_linked(site: Path) -> None:
    assert "<h1" in (site / "explanation/architecture.html").read_text()
    assert "TorchLoader" in (site / "tutorials/examples/train_torch.html").read_text()
    performance = (site / "explanation/performance.html").read_text()
    assert 'href="measurements/image.html"' in performance
    assert 'src="plots/jpeg.svg"' in performance
    assert 'src="image-speed.svg"' in (site / "explanation/measurements/image.html").read_text()


def test_comments_for_tests_are_not_shown_but_for_why_a_block_is_not_run(site: Path) -> None:
    page = (site / "how-to/gpu.html").read_text()
    assert "page_files" not in (site / "how-to/convert.html").read_text()
    assert "Not run by the tests: it needs a GPU." in page


def test_every_public_name_is_on_a_page_of_the_reference(site: Path, check_site, docs_hooks) -> None:
    anchors = set().union(*(check_site.parse(path).anchors for path in (site / "reference/api").glob("*.html")))
    where = fastloader._WHERE
    names = {
        f"fastloader.{name}": {f"fastloader.{where.get(name)}.{name}"} for name in fastloader.__all__ if name != "ops"
    }
    for module, several in docs_hooks.public_names(Path(fastloader.__file__).parent).items():
        for name in several:
            shown = "open" if name == "open_dataset" else name
            same = where.get(name, "dataset") == module
            names[f"fastloader.{module}.{name}"] = {f"fastloader.{shown}"} if same else set()
    assert len(names) > 250
    missing = [name for name, also in names.items() if not anchors & {name, *also}]
    assert not missing, f"put these on a page of docs/reference/api: {', '.join(missing)}"


def test_a_new_package_gets_a_page_of_its_own(docs_hooks, tmp_path: Path) -> None:
    for name, text in (
        ("one", "__all__ = ['A']"),
        ("two", "__all__ = ['B']"),
        ("three", "__all__ = ['C']"),
        ("cli", ""),
    ):
        (tmp_path / "src" / name).mkdir(parents=True)
        (tmp_path / "src" / name / "__init__.py").write_text(text)
    (tmp_path / "two.md").write_text("# Two\n")
    (tmp_path / "others.md").write_text("# Others\n\n::: fastloader.three.C\n")
    assert docs_hooks.public_names(tmp_path / "src") == {"one": ["A"], "three": ["C"], "two": ["B"]}
    assert docs_hooks.without_page(tmp_path / "src", tmp_path) == ["one"]


def test_modules_that_are_left_out_are_there(docs_hooks) -> None:
    here = Path(fastloader.__file__).parent
    assert [name for name in docs_hooks.NOT_PUBLIC if not list(here.glob(f"{name}*"))] == []


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ({"index.md": "# One\n\n[here](two.md#a-part)\n", "two.md": "# Two\n\n## A part\n"}, ""),
        ({"index.md": "# One\n\n[here](three.md)\n"}, "'three.md'"),
        ({"index.md": "# One\n\n[here](two.md#no-part)\n", "two.md": "# Two\n"}, "'#no-part'"),
        ({"index.md": "# One\n", ".nav.yml": "nav: [index.md]\n", "two.md": "# Two\n"}, "two.md"),
        ({"index.md": "# One\n", ".nav.yml": "nav: [index.md, three.md]\n"}, "'three.md'"),
    ],
    ids=["all good", "no such page", "no such anchor", "a page in no navigation", "a navigation without its page"],
)
def test_the_strict_build_refuses(pages: dict[str, str], said: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name, text in pages.items():
        (tmp_path / "docs" / name).write_text(text)
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {tmp_path / 'docs'}\n"
        "hooks: []\nplugins: [awesome-nav]\nextra_css: []\ntheme: {name: material, logo: null, favicon: null}\n"
    )
    done = build(config, tmp_path / "site")
    assert (done.returncode == 0) == (said == ""), done.stdout + done.stderr
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<a href="a.html#here">', None),
        ('<a href="https://example.org/x?y#z"><a href="mailto:me@example.org">', None),
        ('<a href="b.html">', "index.html: b.html leads nowhere"),
        ('<a href="a.html#there">', "index.html: a.html#there: there is no such anchor"),
        ('<img src="https://example.org/a.png">', "index.html: loads https://example.org/a.png from elsewhere"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "index.html: loads //example.org/a.css from elsewhere"),
        ('<a href="https://exa mple.org">', "index.html: https://exa mple.org is no address"),
        ('<a href="htps://example.org">', "index.html: htps://example.org is no address"),
        ('<pre class="mermaid">', "index.html: has a diagram that the browser would load a program for"),
        ("<style></style>", "a.css: loads url(https://example.org/font.woff"),
    ],
)
def test_links_are_checked(page: str, said: str | None, tmp_path: Path, check_site) -> None:
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "a.html").write_text('<h2 id="here">Here</h2>')
    if said is not None and "a.css:" in said:
        (tmp_path / "a.css").write_text('@font-face { src: url("https://example.org/font.woff"); }'.replace('"', ""))
    assert check_site.problems(tmp_path) == ([] if said is None else [said])
