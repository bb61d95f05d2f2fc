"""Indexes of the tests' files stay out of the user's cache, and are kept even for small files."""

from __future__ import annotations

import pytest

from fastloader.formats import indexes


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FASTLOADER_CACHE", str(folder))
    monkeypatch.setattr(indexes, "WORTH_KEEPING", 1)
    return folder / "indexes"
