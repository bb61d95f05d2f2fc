"""The runner of benchmarks: each can be loaded as it loads them, and topics do not get in each other's way."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
TOPICS = sorted({path.parent.name for path in BENCH.glob("*/bench_*.py")})

LOAD = """
import sys
from pathlib import Path
import run
for path in sorted((run.HERE / sys.argv[1]).glob("bench_*.py")):
    assert callable(run.load(path).main), path
"""

BENCHMARK = '''"""A measurement."""
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from common import Result
import values

def main():
    return [Result(values.WHAT, "nothing", values.RATIO, "")]
'''


def ran(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("topic", TOPICS)
def test_benchmarks_of_a_topic_load_together(topic: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOAD, topic], cwd=BENCH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A runner beside two topics whose files have the same names."""
    for name in ("run.py", "common.py"):
        shutil.copy(BENCH / name, tmp_path)
    for topic, ratio in (("one", 1.5), ("two", 2.5)):
        (tmp_path / topic).mkdir()
        (tmp_path / topic / "bench_it.py").write_text(BENCHMARK)
        (tmp_path / topic / "values.py").write_text(f"WHAT, RATIO = {topic!r}, {ratio}")
    return tmp_path / "run.py"


def test_topics_with_files_of_the_same_name_run_after_each_other(script: Path) -> None:
    done = ran(script, "--save")
    assert done.returncode == 0, done.stderr
    assert "| one | nothing | 1.50 |" in done.stdout
    assert "| two | nothing | 2.50 |" in done.stdout
    assert "| two | nothing | 2.50 |" in (script.parent / "two" / "results.md").read_text()
    assert not (script.parent / "one" / "results.md").read_text().count("two")


def test_one_that_fails_is_told_and_the_others_run(script: Path) -> None:
    (script.parent / "one" / "values.py").write_text("1 / 0")
    done = ran(script)
    assert done.returncode != 0
    assert "failed: one" in done.stderr
    assert "| two | nothing | 2.50 |" in done.stdout


def test_a_topic_that_is_none_is_refused(script: Path) -> None:
    done = ran(script, "three")
    assert done.returncode == 2
    assert "no such topic: three; there are one, one/it, two, two/it" in done.stderr
