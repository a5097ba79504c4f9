"""The image with a volume: what was confirmed is there when the container was killed and made anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import ConnectionFactory

from .test_image import Container, docker, image

__all__ = ["image"]

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]  # the first one builds the image

DIRECTORY = "/var/lib/sievemq"


@pytest.fixture
def volume(image: str) -> Iterator[str]:
    name = docker("volume", "create")
    yield name
    docker("volume", "rm", "--force", name)


def test_messages_outlive_a_container_that_is_killed(image: str, volume: str) -> None:
    options = ("--volume", f"{volume}:{DIRECTORY}", "--env", f"SIEVEMQ_DATA_DIR={DIRECTORY}")
    first = Container(image, *options)
    try:
        first.until("broker.durable")
        with ConnectionFactory(first.url).create_context() as context:
            assert context.get_meta_data().durable
            for number in range(5):
                context.create_producer().send(context.create_queue("q"), f"m{number}")
            docker("kill", first.id)
    finally:
        first.remove()
    second = Container(image, *options)
    try:
        second.until("broker.durable")
        assert (second.events[-1]["messages"], second.events[-1]["epoch"]) == (5, 2)
        with ConnectionFactory(second.url).create_context() as context:
            found = context.create_browser(context.create_queue("q"))
            assert [message.get_text() for message in found] == [f"m{number}" for number in range(5)]
    finally:
        second.remove()
