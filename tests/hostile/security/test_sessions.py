"""Browsers that sign in: the cookie, how long it is good for, and that it ends with the user."""

from __future__ import annotations

import http.client
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.api import transfer
from sievemq_broker.server.http.sessions import MAX_SESSION_SECONDS, MAX_SESSIONS, Sessions
from sievemq_broker.users.account import User, Users

from .support import DEADLINE, PASSWORD, ask, secured, sign_in, signed_in


def test_form_works_without_scripts_and_leads_where_one_wanted_to_go(broker: EmbeddedBroker) -> None:
    form = ask(broker, "/sign-in?next=/%3Fa%3D%22%3E%3Cb%3E")
    assert (form.status, form.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert 'value="/?a=&quot;&gt;&lt;b&gt;"' in form.text
    assert "<script" not in form.text
    assert ask(broker, "/sign-in.css").headers["content-type"].startswith("text/css")
    answer = sign_in(broker, "admin", following="/?a=b#view")
    assert (answer.status, answer.headers["location"]) == (303, "/?a=b#view")
    assert ask(broker, "/", Cookie=answer.cookie).status == 200
    assert ask(broker, "/api/v1/broker", Cookie=answer.cookie).status == 200


def test_cookie_is_for_this_site_and_not_for_scripts(broker: EmbeddedBroker) -> None:
    cookie = sign_in(broker, "admin").headers["set-cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "samesite=strict", "path=/"}
    name, _, token = cookie.partition(";")[0].partition("=")
    assert name == f"sievemq-{urlsplit(broker.http_url).port}"
    assert len(token) >= 40


@pytest.mark.parametrize(
    "following",
    ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "", "/a\r\nX-Evil: 1", "/\\\\evil",
     "javascript:alert(1)", "/\t/evil.example"],
)  # fmt: skip
def test_redirects_stay_on_this_site(broker: EmbeddedBroker, following: str) -> None:
    answer = sign_in(broker, "admin", following=following)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert answer.headers["x-evil"] is None


def test_wrong_password_says_so_in_the_form() -> None:
    with secured() as broker:
        answer = sign_in(broker, '"><img src=x onerror=alert(1)>', "wrong")
        assert answer.status == 401
        assert "User name or password is wrong." in answer.text
        assert "<img" not in answer.text
        assert answer.headers["set-cookie"] is None
        assert answer.text == sign_in(broker, '"><img src=x onerror=alert(1)>', "other").text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("user=admin&password=rosebud", "application/json"),
        ("", "application/x-www-form-urlencoded"),
        ("user=admin", "application/x-www-form-urlencoded"),
        ("user=%ff&password=%ff", "application/x-www-form-urlencoded"),
        ("\xff", "application/x-www-form-urlencoded"),
        ("&".join(["a=b"] * 50), "application/x-www-form-urlencoded"),
        ("user=admin&password=" + "x" * 10_000, "application/x-www-form-urlencoded"),
    ],
)
def test_invalid_forms_cause_no_fault(broker: EmbeddedBroker, body: str, kind: str) -> None:
    answer = ask(broker, "/session", "POST", body.encode("latin-1"), Content_Type=kind)
    assert answer.status == 400
    assert answer.headers["set-cookie"] is None


def test_signing_out_ends_it(broker: EmbeddedBroker) -> None:
    cookie, csrf = signed_in(broker)
    assert ask(broker, "/session", "DELETE", Cookie=cookie).status == 403
    answer = ask(broker, "/session", "DELETE", Cookie=cookie, X_CSRF_Token=csrf)
    assert answer.status == 204
    assert f'{cookie.partition("=")[0]}="";' in answer.headers["set-cookie"]
    assert ask(broker, "/api/v1/broker", Cookie=cookie).status == 401
    assert ask(broker, "/session", Cookie=cookie).json["user"] is None
    assert ask(broker, "/session", "DELETE").status == 204  # no user has signed in: nothing to do


def test_two_consoles_on_one_host_have_a_session_each(broker: EmbeddedBroker) -> None:
    """A browser sends both cookies to both of them, as it regards no ports."""
    with secured() as other:
        both = "; ".join(sign_in(each, "admin").cookie for each in (broker, other))
        for each in (broker, other):
            assert ask(each, "/api/v1/broker", Cookie=both).status == 200
        behind = {"Host": "mq.localhost", "Cookie": sign_in(other, "admin", Host="mq.localhost").cookie}
        assert behind["Cookie"].startswith("sievemq-80=")
        assert ask(other, "/api/v1/broker", **behind).status == 200
        assert ask(broker, "/api/v1/broker", Cookie=both).status == 200


def test_signing_in_again_ends_the_session_before(broker: EmbeddedBroker) -> None:
    """A token that somebody planted in a browser is worth nothing once its owner signs in."""
    before = sign_in(broker, "admin").cookie
    after = sign_in(broker, "admin", Cookie=before).cookie
    assert after != before
    assert ask(broker, "/api/v1/broker", Cookie=before).status == 401
    assert ask(broker, "/api/v1/broker", Cookie=after).status == 200


def test_signed_in_users_are_shown(broker: EmbeddedBroker) -> None:
    assert ask(broker, "/session").json == {"secured": True, "user": None, "csrf": None, "expires_in": None}
    cookie, csrf = signed_in(broker, "anna")
    assert ask(broker, "/session", Cookie=cookie).json == {
        "secured": True,
        "user": "anna",
        "csrf": csrf,
        "expires_in": 1800,
    }
    with EmbeddedBroker(http=True) as unsecured:
        assert ask(unsecured, "/session").json["secured"] is False
        assert ask(unsecured, "/sign-in").headers["location"] == "/"


# -- how long ---------------------------------------------------------------------------------------------------------

ANNA = User("anna", "x")
USERS = Users({"anna": ANNA})


class Time:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_session_ends_when_it_is_not_used() -> None:
    time = Time()
    sessions = Sessions(60.0, time)
    token, session = sessions.open(ANNA)
    for _ in range(10):
        time.now += 59
        assert sessions.find(token, USERS) is session
    assert sessions.expires_in(session) == 60
    time.now += 60
    assert not sessions.alive(session, USERS)
    assert sessions.find(token, USERS) is None
    assert len(sessions) == 0


def test_a_session_ends_after_half_a_day_despite_use() -> None:
    time = Time()
    sessions = Sessions(MAX_SESSION_SECONDS, time)
    token, session = sessions.open(ANNA)
    time.now += MAX_SESSION_SECONDS - 1
    assert sessions.find(token, USERS) is session
    assert sessions.expires_in(session) == 1
    time.now += 1
    assert sessions.find(token, USERS) is None


def test_session_ends_with_its_user_and_with_its_password() -> None:
    sessions = Sessions(60.0, Time())
    token, session = sessions.open(ANNA)
    assert not sessions.alive(session, Users({}, required=True))
    assert not sessions.alive(session, Users({"anna": User("anna", "y")}))
    assert sessions.find(token, Users({"anna": User("anna", "y")})) is None
    assert sessions.find(token, USERS) is None  # for good


def test_sessions_are_bounded_and_the_least_used_is_evicted() -> None:
    time = Time()
    sessions = Sessions(60.0, time)
    first, _ = sessions.open(ANNA)
    second, _ = sessions.open(ANNA)
    for _ in range(MAX_SESSIONS - 2):
        sessions.open(ANNA)
    assert sessions.find(first, USERS) is not None
    sessions.open(ANNA)
    assert len(sessions) == MAX_SESSIONS
    assert sessions.find(second, USERS) is None
    assert sessions.find(first, USERS) is not None
    time.now += 60
    sessions.open(ANNA)
    assert len(sessions) == 1


def test_another_user_cannot_end_a_session_by_signing_in_often() -> None:
    sessions = Sessions(60.0, Time())
    token, _ = sessions.open(ANNA)
    for _ in range(MAX_SESSIONS + 10):
        sessions.open(User("mallory", "y"))
    assert len(sessions) == MAX_SESSIONS
    assert sessions.find(token, USERS) is not None


def test_token_is_kept_nowhere() -> None:
    sessions = Sessions(60.0, Time())
    token, session = sessions.open(ANNA)
    assert token.encode() not in repr(vars(sessions)).encode()
    assert token not in repr([getattr(session, name) for name in session.__slots__])


def test_stream_of_events_ends_with_the_session(broker: EmbeddedBroker) -> None:
    cookie, csrf = signed_in(broker)
    parts = urlsplit(broker.http_url)
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)) as stream:
        stream.request("GET", "/api/v1/events", headers={"Cookie": cookie})
        with stream.getresponse() as response:
            assert response.status == 200
            assert response.readline()
            assert ask(broker, "/session", "DELETE", Cookie=cookie, X_CSRF_Token=csrf).status == 204
            while response.readline():  # a tick a second: the next one ends it
                pass


def test_an_export_is_cut_with_the_session_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = "/api/v1/namespaces/default/destinations/queue:exported"
    with secured() as broker:
        cookie, csrf = signed_in(broker)
        sent = ask(broker, f"{queue}/messages", "POST", {"body": "x"}, Cookie=cookie, X_CSRF_Token=csrf)
        assert sent.status == 201
        encode = transfer._encoded

        def ended(*given: Any) -> Any:
            broker.server.authenticator.use(Users({}, required=True))
            return encode(*given)

        monkeypatch.setattr(transfer, "_PLAIN_BYTES", 0)
        monkeypatch.setattr(transfer, "_encoded", ended)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            ask(broker, f"{queue}/export", "POST", {}, Cookie=cookie, X_CSRF_Token=csrf)


def test_stream_of_events_ends_with_the_rights_it_was_opened_with(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text(f'[users.anna]\npassword = "{PASSWORD}"\n')
    with EmbeddedBroker(http=True, settings={"users_file": str(file)}) as broker:
        cookie, _ = signed_in(broker, "anna")
        parts = urlsplit(broker.http_url)
        with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)) as stream:
            stream.request("GET", "/api/v1/events", headers={"Cookie": cookie})
            with stream.getresponse() as response:
                assert response.readline()
                file.write_text(f'[users.anna]\npassword = "{PASSWORD}"\nrights = []\n')
                broker.call(lambda _: broker.server.user_store.reload())
                while response.readline():  # a tick a second: the next one ends it
                    pass
        assert ask(broker, "/session", Cookie=cookie).json["user"] == "anna"


def test_session_has_the_rights_that_its_user_has_now(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text(f'[users.anna]\npassword = "{PASSWORD}"\nrights = []\n')
    with EmbeddedBroker(http=True, settings={"users_file": str(file)}) as broker:
        cookie, _ = signed_in(broker, "anna")
        assert ask(broker, "/metrics", Cookie=cookie).status == 403
        file.write_text(f'[users.anna]\npassword = "{PASSWORD}"\n')
        broker.call(lambda _: broker.server.user_store.reload())
        assert ask(broker, "/metrics", Cookie=cookie).status == 200
