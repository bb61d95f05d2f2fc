"""The page about order: its code runs, and its tables say what the code does."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "order.md"


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    names = {"__name__": "page"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) >= 7
    for block in blocks:
        code = "\n" * text.count("\n", 0, block.start(1)) + block[1]
        exec(compile(code, str(PAGE), "exec"), names)
    (promised,) = re.findall(r"print\(error\)  # (.*)", text)
    assert promised in capsys.readouterr().out


def test_every_order_is_on_the_page():
    from fastloader import samplers

    text = PAGE.read_text()
    orders = [
        name
        for name in samplers.__all__
        if hasattr(getattr(samplers, name), "samples") or hasattr(getattr(samplers, name), "batch")
    ]
    assert len(orders) >= 9
    assert [name for name in orders if f"`{name}" not in text and name not in ("Order", "BatchOrder", "Plan")] == []
