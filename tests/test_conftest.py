"""The rules for CI: nothing is skipped, and failures are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

RUNS = "def test_runs(): pass\n"
SKIPS = "import pytest\n@pytest.mark.skip(reason='no time')\ndef test_skips(): pass\n"
SKIPS_WHOLE_MODULE = "import pytest\npytest.importorskip('a_module_nobody_has')\n"
EXPECTED_TO_FAIL = "import pytest\n@pytest.mark.xfail\ndef test_fails(): assert False\n"


@pytest.fixture(autouse=True)
def our_conftest(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (SKIPS, "skipped *::test_skips"),
        (SKIPS_WHOLE_MODULE, "skipped *"),
        (EXPECTED_TO_FAIL, "xfailed *::test_fails"),
    ],
    ids=["a test", "a module", "an expected failure"],
)
def test_in_ci_what_does_not_run_is_a_failure_and_is_named(pytester, monkeypatch, source, name):
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(test_ok=RUNS, test_other=source)
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*tests that did not run: in CI this is a failure*", name])


def test_in_ci_what_does_not_run_is_a_failure_in_parallel_too(pytester, monkeypatch):
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(test_ok=RUNS, test_other=SKIPS)
    result = pytester.runpytest_subprocess("-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["skipped *::test_skips"])


def test_in_ci_a_run_without_skips_succeeds(pytester, monkeypatch):
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(RUNS)
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*did not run*")


@pytest.mark.parametrize("value", [None, "", "false", "0"])
def test_elsewhere_skipping_is_allowed(pytester, monkeypatch, value):
    if value is None:
        monkeypatch.delenv("CI", raising=False)
    else:
        monkeypatch.setenv("CI", value)
    pytester.makepyfile(RUNS + SKIPS + EXPECTED_TO_FAIL)
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*did not run*")


BREAKS = """
import pytest

@pytest.fixture
def leaving():
    yield
    raise ValueError("left")

def test_leaves(leaving): pass

def test_ends_the_run():
    import os
    os._exit(3)
"""


def test_in_ci_a_failure_is_told_before_the_run_is_over(pytester, monkeypatch):
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(BREAKS)
    result = pytester.runpytest_subprocess()
    assert result.ret == 3
    result.stdout.fnmatch_lines(["teardown of *::test_leaves failed after * s:", "*ValueError: left"])
