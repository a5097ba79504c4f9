"""Credentials: clear, hashed, remembered, refused alike."""

from __future__ import annotations

import hashlib

import pytest

from sievemq_broker.server.users import Users, hash_password
from sievemq_broker.session.services import AuthenticationError
from sievemq_core.errors import ErrorCode


def test_without_users_everybody_comes_in() -> None:
    users = Users({})
    assert not users.required
    assert users.authenticate(None, None).user is None
    assert users.authenticate("anna", "whatever").user == "anna"


@pytest.mark.parametrize("secret", ["rosebud", hash_password("rosebud")], ids=["plain", "hashed"])
def test_right_password_right_name(secret: str) -> None:
    assert Users({"anna": secret}).authenticate("anna", "rosebud").user == "anna"


@pytest.mark.parametrize("secret", ["rosebud", hash_password("rosebud")], ids=["plain", "hashed"])
@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("anna", "Rosebud"),
        ("anna", ""),
        ("anna", None),
        ("Anna", "rosebud"),
        ("", ""),
        (None, None),
        ("ben", "rosebud"),
    ],
)
def test_anything_else_is_refused_without_a_hint(secret: str, name: str | None, password: str | None) -> None:
    with pytest.raises(AuthenticationError) as caught:
        Users({"anna": secret}).authenticate(name, password)
    assert caught.value.code is ErrorCode.AUTHENTICATION
    assert "anna" not in str(caught.value)
    if name:
        assert str(caught.value) == "user name or password is wrong"


def test_hash_does_not_contain_the_password_and_is_salted() -> None:
    one, two = hash_password("rosebud"), hash_password("rosebud")
    assert one != two
    assert "rosebud" not in one


def test_hash_is_computed_once_per_password(monkeypatch: pytest.MonkeyPatch) -> None:
    users = Users({"anna": hash_password("rosebud")})
    calls: list[int] = []
    scrypt = hashlib.scrypt
    monkeypatch.setattr(hashlib, "scrypt", lambda *args, **kwargs: calls.append(1) or scrypt(*args, **kwargs))
    for _ in range(3):
        users.authenticate("anna", "rosebud")
    assert len(calls) == 1
    with pytest.raises(AuthenticationError):
        users.authenticate("anna", "wrong")
    assert len(calls) == 2


@pytest.mark.parametrize(
    "secret",
    [
        "scrypt$",
        "scrypt$8192$8$1$!!$!!",
        "scrypt$8191$8$1$c2FsdA==$" + "A" * 43 + "=",
        "scrypt$9999999999$8$1$c2FsdA==$eA==",
    ],
)
def test_broken_hash_is_refused_at_once(secret: str) -> None:
    with pytest.raises(ValueError, match="'anna' begins like a hash but is none"):
        Users({"anna": secret})


def test_password_with_a_lone_surrogate_is_only_wrong() -> None:
    with pytest.raises(AuthenticationError):
        Users({"anna": "rosebud"}).authenticate("anna", "\ud800")
