"""The console in a cluster: what is here, what is elsewhere, and the way there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.broker.server.http.cluster import Cluster

from .chromium import Page
from .opening import open_view

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        cluster = Cluster(stack)
        cluster.tables.rows = {"a-1": "a", "b-1": "b", "default": "a"}
        yield cluster


def test_a_namespace_of_another_shard_is_a_link_to_its_console(page: Page, cluster: Cluster) -> None:
    a, b = cluster["a"], cluster["b"]
    open_view(page, a, "#/default/queues")
    page.until("document.querySelector('.space option[value=b-1]')?.innerText === 'b-1 (shard b)'")
    assert page.value("document.querySelector('.space option[value=default]').innerText") == "default"
    page.choose("[aria-label=Namespace]", "b-1")
    page.shows("Another broker has this.")
    page.shows(f"namespace 'b-1' is in shard b: ask at {b.http_url}")
    link = "document.querySelector('main a[target=_blank]')"
    assert page.value(f"[{link}.href, {link}.rel, {link}.innerText]") == [
        f"{b.http_url}/#/b-1/queues",
        "noopener noreferrer",
        "Open its console",
    ]
    open_view(page, a, "#/default/broker")
    page.until("document.querySelectorAll('table[aria-label=Shards] tbody tr').length === 2")
    assert page.rows("Shards") == [["a", "this broker", "0", "2"], ["b", b.url, "0", "1"]]
    assert page.value("document.querySelector('table[aria-label=Shards] a').href") == f"{b.http_url}/"


def test_the_console_begins_with_a_namespace_that_is_here(page: Page, cluster: Cluster) -> None:
    cluster["b"].call(lambda broker: broker.namespace("b-1"))
    page.open(f"{cluster['b'].http_url}/")
    page.until("location.hash === '#/b-1/overview'")
    page.shows("Deepest queues")
    assert page.value("document.querySelector('.space select').value") == "b-1"


def test_what_is_no_address_of_a_console_is_no_link(page: Page, cluster: Cluster) -> None:
    cluster.tables.own("b", "another", "javascript:alert(1)", "javascript:alert(1)//")
    open_view(page, cluster["a"], "#/b-1/queues")
    page.shows("Another broker has this.")
    assert page.value("document.querySelectorAll('main a[target]').length") == 0
    open_view(page, cluster["a"], "#/default/broker")
    page.shows("javascript:alert(1)")
    assert page.value("document.querySelectorAll('table[aria-label=Shards] a').length") == 0
