"""The pictures of the control benchmarks show what the models and the bundled policies do now."""

from __future__ import annotations

import pytest

from docs.make_control_pictures import PICTURES, TARGET


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_up_to_date(name: str) -> None:
    assert PICTURES[name]() == (TARGET / name).read_text(encoding="utf-8")
