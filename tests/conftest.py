"""What holds for all tests: a failure is told at once, and where CI is set, a test that does not run is one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

NOT_RUN = ("skipped", "xfailed")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C reaches the programs that tests start, even where the run itself was started with SIGINT ignored."""
    if in_ci():
        config.pluginmanager.register(ToldAtOnce(config))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sound files by name, made by other programs."""
    from sound_tools import make_sounds  # not there for the tests of this file alone

    return make_sounds(tmp_path_factory.mktemp("sounds"))


def in_ci() -> bool:
    """Whether ``CI`` is set, and not to 0 or false."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _not_run(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")  # there is none in the processes of pytest-xdist
    stats = {} if reporter is None else reporter.stats
    return [f"{kind} {report.nodeid}" for kind in NOT_RUN for report in stats.get(kind, ())]


class ToldAtOnce:
    """Says what failed when it fails: a run that is ended from outside never comes to its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of the tests is over, or one of its phases."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f"\n{report.when} of {report.nodeid} failed after {report.duration:.0f} s:")
            reporter.write_line("\n".join(report.longreprtext.splitlines()[-30:]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn success into failure when something was skipped."""
    if in_ci() and _not_run(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was skipped, and what to do."""
    not_run = _not_run(config) if in_ci() else []
    if not_run:
        terminalreporter.section("tests that did not run: in CI this is a failure", red=True)
        for line in not_run:
            terminalreporter.line(line)
        terminalreporter.line("Install what they need, or remove them; unset CI to allow skipping.")
