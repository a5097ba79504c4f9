"""docs/tutorial.md, command by command; the pictures too where there is a Chromium."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.site.console.chromium import Chromium, find_chromium
from tests.site.docs import tutorial

pytestmark = [pytest.mark.slow]


def free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@contextlib.contextmanager
def pictures(folder: Path) -> Iterator[tutorial.Picture]:
    if find_chromium() is None:
        yield lambda image, view: None
        return
    with Chromium() as chromium, chromium.page(width=1100, height=560) as page:

        def picture(image: str, view: str) -> None:
            tutorial.show(page, view)
            page.screenshot(folder / Path(image).name)
            assert page.complaints == []

        yield picture


def test_commands_print_the_shown_output(tmp_path: Path) -> None:
    if not (free(7672) and free(7680)):
        pytest.skip("the page's ports, 7672 and 7680, are taken on this machine")
    work = tmp_path / "work"
    work.mkdir()
    with tutorial.broker(), pictures(tmp_path) as picture:
        pairs = tutorial.walk(work, picture)
    assert len(pairs) == 5
    for told, printed in pairs:
        assert tutorial.same(told, printed), printed
    made: Any = {path.name for path in tmp_path.glob("*.png")}
    assert made in ({*tutorial.VIEWS}, set())


def test_the_pictures_are_there() -> None:
    named = {Path(argument).name for kind, argument, _ in tutorial.steps() if kind == "picture"}
    assert named == tutorial.VIEWS.keys()
    assert all((tutorial.PAGE.parent / "images" / name).is_file() for name in named)


@pytest.mark.parametrize(
    ("told", "printed", "alike"),
    [
        ("a ### c", "a 5 c", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("ID:0000000000-1:1", "ID:abcdefghij-27:1", True),
        ("", "x", False),
    ],
)
def test_outputs_that_count_as_equal(told: str, printed: str, alike: bool) -> None:
    assert tutorial.same(told, printed) is alike
