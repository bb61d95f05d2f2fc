"""The page about order: its tables say what the code does."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "order.md"


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
