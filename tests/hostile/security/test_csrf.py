"""Pages of other sites, in the browser of a signed-in user, or on the broker's machine: they change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from sievemq_broker import EmbeddedBroker

from .support import ask, basic, signed_in

CHANGES = [
    ("POST", "/api/v1/namespaces", {"name": "made-by-an-attack"}),
    ("PUT", "/api/v1/namespaces/default/destinations/queue:made-by-an-attack", {}),
    ("POST", "/api/v1/namespaces/default/destinations/queue:a/messages", {"body": "x"}),
    ("POST", "/api/v1/namespaces/default/destinations/queue:a/actions/purge", {}),
    ("DELETE", "/api/v1/namespaces/default", None),
    ("DELETE", "/api/v1/connections/x", None),
]

OTHERS = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:1"},  # another port of this machine is another site
    {"Origin": "https://127.0.0.1.evil.example"},
    {"Origin": "file://"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "nonsense"},
]


@pytest.fixture(scope="module")
def open_broker() -> Iterator[EmbeddedBroker]:
    """Without users: a developer's, on their machine."""
    with EmbeddedBroker(http=True) as broker:
        yield broker


@pytest.mark.parametrize("headers", OTHERS, ids=lambda headers: str(headers))
@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_change_from_another_site(
    broker: EmbeddedBroker,
    open_broker: EmbeddedBroker,
    headers: dict[str, str],
    method: str,
    path: str,
    body: object,
) -> None:
    """However the browser would be let in: by its cookie and even the token, by a password it remembers, by nothing."""
    cookie, csrf = signed_in(broker)
    for target, credentials in (
        (broker, {"Cookie": cookie, "X-CSRF-Token": csrf}),
        (broker, basic("admin")),
        (open_broker, {}),
    ):
        answer = ask(target, path, method, body, **headers, **credentials)
        assert (answer.status, answer.json["error"]) == (403, "CROSS_SITE")
        assert target.call(lambda b: "made-by-an-attack" not in b.namespaces)


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_change_with_the_cookie_alone(broker: EmbeddedBroker, method: str, path: str, body: object) -> None:
    cookie, csrf = signed_in(broker)
    _, of_another = signed_in(broker, "anna")
    for token in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": csrf[:-1]}, {"X-CSRF-Token": of_another}):
        answer = ask(broker, path, method, body, Cookie=cookie, **token)
        assert (answer.status, answer.json["error"]) == (403, "CSRF")


def test_the_console_itself_may(broker: EmbeddedBroker, open_broker: EmbeddedBroker) -> None:
    cookie, csrf = signed_in(broker)
    for target, credentials in ((broker, {"Cookie": cookie, "X-CSRF-Token": csrf}), (open_broker, {})):
        host = urlsplit(target.http_url).netloc
        own = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        answer = ask(target, "/api/v1/namespaces", "POST", {"name": "wanted"}, **own, **credentials)
        assert answer.status in (200, 201)


def test_a_script_with_a_password_needs_no_token(broker: EmbeddedBroker) -> None:
    answer = ask(broker, "/api/v1/namespaces", "POST", {"name": "scripted"}, **basic("admin"))
    assert answer.status in (200, 201)


def test_password_that_a_browser_remembers_is_no_good_for_pages_of_others(broker: EmbeddedBroker) -> None:
    """Not even for reading: an image, a script or a frame of such a page would carry it along."""
    for headers in OTHERS:
        answer = ask(broker, "/api/v1/broker", **headers, **basic("admin"))
        assert answer.status == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_bodies_that_a_form_of_another_site_can_send_are_not_taken_for_json(
    open_broker: EmbeddedBroker, kind: str
) -> None:
    """The second line of defence, for a browser that would not tell where a request comes from."""
    answer = ask(open_broker, "/api/v1/namespaces", "POST", '{"name": "by-form"}', Content_Type=kind)
    assert answer.status in (400, 415)
    assert open_broker.call(lambda b: "by-form" not in b.namespaces)


def test_another_site_cannot_sign_a_user_in(broker: EmbeddedBroker) -> None:
    """Or else a victim would work, without noticing, as the attacker."""
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    answer = ask(broker, "/session", "POST", "user=anna&password=rosebud", Origin="http://evil.example", **form)
    assert answer.status == 403
    assert answer.headers["set-cookie"] is None


def test_no_answer_invites_other_sites(broker: EmbeddedBroker) -> None:
    for method in ("GET", "OPTIONS"):
        answer = ask(
            broker, "/api/v1/broker", method, Origin="http://evil.example", Access_Control_Request_Method="POST"
        )
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
