"""Users: what is remembered of them, and that nothing of it shows."""

from __future__ import annotations

import pytest

from sievemq_broker.session.rights import ALL_RIGHTS, Grant, Identity, Rights, Verb
from sievemq_broker.users.account import User, Users
from sievemq_broker.users.passwords import check_hash, hash_password, is_hash, verify

HASH = hash_password("rosebud")  # once: it takes its time


def users(**secrets: str) -> Users:
    return Users({name: User(name, secret) for name, secret in secrets.items()})


def test_without_users_no_password_is_required() -> None:
    assert not users().required
    assert users(anna="x").required
    assert Users({}, required=True).required


def test_hash_is_argon2id_salted_and_says_nothing_of_the_password() -> None:
    assert HASH.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert "rosebud" not in HASH
    assert hash_password("rosebud") != HASH
    assert is_hash(HASH)
    check_hash("anna", HASH)


@pytest.mark.parametrize(("password", "right"), [("rosebud", True), ("Rosebud", False), ("", False), ("\ud800", False)])
def test_password_against_its_hash(password: str, right: bool) -> None:
    assert verify(HASH, password) is right
    assert users(anna=HASH).check("anna", password) is right


def test_wrong_name_is_hashed_like_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def note(secret: str, password: str) -> bool:
        checked.append(secret)
        return True  # even if the decoy's own password was guessed, it opens nothing

    monkeypatch.setattr("sievemq_broker.users.account.verify", note)
    store = users(anna=HASH, ben="clear")
    assert not store.check("nobody", "rosebud")
    assert not store.check("ben", "wrong")
    assert store.check("anna", "rosebud")
    assert checked == [HASH] * 3


def test_right_password_is_remembered_as_a_digest_of_this_store_only() -> None:
    store = users(anna=HASH)
    digest = store.digest("anna", "rosebud")
    assert store.remembered("anna", digest) is None
    store.remember("anna", digest)
    assert store.remembered("anna", digest) == User("anna", HASH)
    assert store.remembered("ben", digest) is None
    assert store.remembered("anna", store.digest("anna", "Rosebud")) is None
    assert users(anna=HASH).digest("anna", "rosebud") != digest


def test_clear_secrets_are_known_at_once() -> None:
    store = users(anna="rosebud")
    assert not store.hashed
    assert store.remembered("anna", store.digest("anna", "rosebud")) == User("anna", "rosebud")
    assert store.remembered("anna", store.digest("anna", "x")) is None


def test_change_keeps_the_state_of_remaining_users() -> None:
    store = users(anna=HASH, ben="one")
    digest = store.digest("anna", "rosebud")
    store.remember("anna", digest)
    after = Users({"anna": User("anna", HASH), "ben": User("ben", "two")}, before=store)
    assert after.remembered("anna", digest) is not None
    assert after.remembered("ben", store.digest("ben", "one")) is None
    assert after.remembered("ben", store.digest("ben", "two")) is not None
    other = Users({"anna": User("anna", HASH[:-1] + ("A" if HASH[-1] != "A" else "B"))}, before=after)
    assert other.remembered("anna", digest) is None


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("$argon2id$", "no argon2id hash"),
        ("$argon2i$v=19$m=65536,t=3,p=4$c29tZXNhbHQxMjM$" + "A" * 43, "no argon2id hash"),
        ("$argon2id$v=19$m=9999999,t=2,p=1$c29tZXNhbHQxMjM$" + "A" * 43, "asks for 9999999 KiB"),
        ("$argon2id$v=19$m=19456,t=999,p=1$c29tZXNhbHQxMjM$" + "A" * 43, "999 rounds"),
        ("scrypt$8192$8$1$c2FsdA==$" + "A" * 43 + "=", "scrypt hash, which this version does not read"),
    ],
)
def test_hash_that_cannot_be_used_is_refused_at_once_and_not_shown(secret: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        users(anna=secret)
    assert "'anna'" in str(caught.value)
    assert secret not in str(caught.value)


def test_no_secret_in_repr() -> None:
    user = User("anna", "rosebud", Rights([Grant(frozenset({Verb.SEND}), "orders")]))
    assert "rosebud" not in f"{user!r} {users(anna='rosebud')!r} {user.identity!r}"


def test_identity_is_the_user_and_its_rights() -> None:
    assert User("anna", "x").identity == Identity("anna")
    assert User("anna", "x").identity.rights is ALL_RIGHTS
