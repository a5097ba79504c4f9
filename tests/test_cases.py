"""A test of many cases says which one failed."""

from __future__ import annotations

import pytest
from tests.cases import case


def test_a_failed_case_is_named() -> None:
    with pytest.raises(AssertionError) as caught, case("queue", 7):
        assert 1 == 2
    assert caught.value.__notes__ == ["in the case queue, 7"]
    with pytest.raises(pytest.fail.Exception) as failed, case("topic"), pytest.raises(ValueError):
        pass
    assert failed.value.__notes__ == ["in the case topic"]
