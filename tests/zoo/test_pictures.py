"""The pictures of the benchmarks show the present models."""

from __future__ import annotations

import pytest

from docs.make_zoo_pictures import PICTURES, TARGET


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_drawn_now(name: str) -> None:
    assert PICTURES[name]() == (TARGET / f"{name}.svg").read_text(encoding="utf-8")
