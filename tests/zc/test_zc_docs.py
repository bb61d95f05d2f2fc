"""The programs in docs/reference/zc.md run and print what their comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "zc.md"


def test_the_programs_run_and_print_what_their_comments_say(tmp_path):
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines() == re.findall(r"print\(.*\) +# (.*)", program)
