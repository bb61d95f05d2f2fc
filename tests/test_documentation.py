"""The documentation is run: every block of Python and every command of every page, or the page says why not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from follow_page import SHELL, blocks

from fastloader.cli import main
from fastloader.testing.seaweed import ACCESS, SECRET, s3_server

ROOT = Path(__file__).parents[1]
ALL = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
COMPARED = "test_migration_pages.py"
"""Runs the pages for those who come from other loaders, and compares both of their halves."""

REASONS = {
    "it installs",
    "it measures for some seconds",
    "it needs FUSE",
    "it needs a GPU",
    "it needs a cluster",
    "it needs accounts with these providers",
    "it needs several machines",
    "it runs until Ctrl-C",
}
"""Why a block may be left out."""
LANGUAGES = {"python", "py", "pycon", "json", "lua", "text", "yaml", "setup", "", *SHELL}

Follow = Callable[..., subprocess.CompletedProcess[str]]


def name(page: Path) -> str:
    """As one would call it."""
    return page.relative_to(ROOT / "docs" if page.is_relative_to(ROOT / "docs") else ROOT).as_posix()


def is_run(page: Path) -> bool:
    """Whether there is something to run, and nobody else does."""
    if page.stem.startswith("migrate-from-"):
        return False
    return any(block.language in ("python", *SHELL) and block.why_not is None for block in blocks(page.read_text()))


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory):
    """Variables by which ``s3://`` of any bucket, and the profile ``team``, lead to a server of our own."""
    folder = tmp_path_factory.mktemp("s3")
    with s3_server(folder / "server") as server:
        keys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET}
        settings = {**keys, "region": "us-east-1", "endpoint_url": server.endpoint}
        config = folder / "config"
        config.write_text("\n".join(["[profile team]", *(f"{key} = {value}" for key, value in settings.items())]))
        yield {
            "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": server.endpoint, "AWS_CONFIG_FILE": str(config),
        }  # fmt: skip


@pytest.fixture
def follow(tmp_path: Path, request: pytest.FixtureRequest) -> Follow:
    """Run a page in a folder of its own, in a process of its own."""

    def run(page: Path) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "reader"
        folder.mkdir()
        variables = {"HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        variables["OMP_NUM_THREADS"] = "1"  # others run beside it
        variables["NUMBA_CACHE_DIR"] = str(tmp_path / "compiled")  # rather than beside the page
        if any("s3://" in block.code and block.why_not is None for block in blocks(page.read_text())):
            variables |= request.getfixturevalue("bucket")
        return subprocess.run(
            [sys.executable, Path(__file__).with_name("follow_page.py"), page],
            cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("page", [page for page in ALL if is_run(page)], ids=name)
def test_a_page_runs(page: Path, follow: Follow) -> None:
    done = follow(page)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_pages_that_are_compared_are_run_there() -> None:
    compared = [page for page in ALL if page.stem.startswith("migrate-from-")]
    if compared:
        text = Path(__file__).with_name(COMPARED).read_text()
        assert [page.stem for page in compared if f'"{page.stem.removeprefix("migrate-from-")}"' not in text] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```python\nprint(2)  # 3\n```\n", "printed '2\\n', not '3'"),
        ("```console\n$ fastloader info nowhere.fld\n```\n", "nowhere.fld: there is no such file"),
        ("```sh\nls | grep nothing-like-this\n```\n", "returned non-zero exit status 1"),
        ("<!-- setup\nx = 1\n-->\n```python\nassert x == 2\n```\n", "AssertionError"),
        ("```python\nimport warnings\nwarnings.warn('old', DeprecationWarning)\n```\n", "DeprecationWarning: old"),
    ],
)
def test_what_goes_wrong_on_a_page_is_noticed(text: str, said: str, tmp_path: Path, follow: Follow) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    done = follow(page)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_page_is_one_program_with_files_and_commands(tmp_path: Path, follow: Follow) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup\nx = 2\n-->\n```python\ny = x + 1\n```\n"
        "<!-- not run: it needs a GPU -->\n```python\nraise RuntimeError\n```\n"
        '```python title="program.py"\nprint("from a file")\n```\n'
        "```sh\npython program.py > printed\n```\n```sh\npip install nothing\n```\n"
        '```python\nprint(y, open("printed").read())  # 3 from ...\n```\n'
    )
    done = follow(page)
    assert done.returncode == 0, done.stderr
    assert "3 from a file" in done.stdout


@pytest.mark.parametrize("page", ALL, ids=name)
def test_blocks_say_what_they_are(page: Path) -> None:
    text = page.read_text()
    found = list(blocks(text))
    assert len([block for block in found if block.language != "setup"]) == len(re.findall("^ *```", text, re.M)) / 2
    assert {block.language for block in found} <= LANGUAGES
    if "from-" not in page.stem:
        assert "py" not in {block.language for block in found}, "py marks code for other libraries"
    for block in found:
        if block.why_not is not None:
            assert block.why_not in REASONS
        if block.language == "python":
            compile(block.code, name(page), "exec")


def commands() -> list[tuple[str, list[str]]]:
    """Every call of our program on any page, with where it stands."""
    found = []
    for page in ALL:
        for block in blocks(page.read_text()):
            if block.language in SHELL:
                for line in block.commands.splitlines():
                    for words in calls(line):
                        if "fastloader" in words:
                            found.append((f"{name(page)}:{block.line}", words[words.index("fastloader") + 1 :]))
    return found


def calls(line: str) -> list[list[str]]:
    """The words of each call of a line, without where its input and output go."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|;&"):
            found.append([])
        elif set(word) <= set("<>"):
            next(lexer, None)
        else:
            found[-1].append(word)
    return found


def test_every_option_of_a_command_exists() -> None:
    assert len(commands()) > 50
    for where, words in commands():
        context = click.Context(main, info_name="fastloader", **main.context_settings)
        command: click.Command = main
        while isinstance(command, click.Group):
            _, words, _ = command.make_parser(context).parse_args(list(words))
            assert words, where
            named = command.get_command(context, words[0])
            assert named is not None, f"{where}: fastloader {words[0]}"
            command, words = named, words[1:]
            context = click.Context(command, parent=context)
        try:
            command.parse_args(context, list(words))
        except (click.NoSuchOption, click.BadOptionUsage) as error:
            raise AssertionError(f"{where}: {error.format_message()}") from None
        except click.UsageError:
            pass  # a file that is not here, or what xargs adds


def test_the_explanation_shown_in_the_reference_is_what_is_printed(follow: Follow) -> None:
    page = ROOT / "docs/reference/dataset.md"
    printed = [line for line in follow(page).stdout.splitlines() if not line.startswith(str(page))]
    assert printed
    assert "".join(f"    {line}\n" for line in printed) in page.read_text()


def test_the_contract_shown_in_the_how_to_passes(tmp_path: Path) -> None:
    text = (ROOT / "docs/how-to/custom-field.md").read_text()
    (tmp_path / "test_page.py").write_text("\n".join(one.code for one in blocks(text) if one.language == "python"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "test_page.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d\d passed", done.stdout)
