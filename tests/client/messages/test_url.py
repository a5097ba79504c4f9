"""The URL of a broker and its options."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sievemq.aio
from sievemq import InvalidURLException, JMSException
from sievemq.url import DEFAULT_PORT, BrokerURL, ClientOptions, Options, options_as_rows, parse_url
from sievemq_core.limits import MAX_CREDIT, MAX_IDENTIFIER_CHARS


def test_the_parts():
    url = parse_url("sievemqs://me:secret@broker.example:7700/tests?prefetch=10&send_confirm=always")
    assert url.secure
    assert url.hosts == (("broker.example", 7700),)
    assert (url.user, url.password, url.namespace) == ("me", "secret", "tests")
    assert (url.options.prefetch, url.options.send_confirm) == (10, "always")


def test_the_least():
    url = parse_url("sievemq://localhost")
    assert url == BrokerURL((("localhost", DEFAULT_PORT),))
    assert (url.secure, url.user, url.password, url.namespace, url.options) == (False, None, None, "", ClientOptions())


@pytest.mark.parametrize(
    ("hosts", "parsed"),
    [
        ("a,b:1,c", (("a", 7672), ("b", 1), ("c", 7672))),
        ("[::1]", (("::1", 7672),)),
        ("[::1]:7700,[fe80::1%25eth0]", (("::1", 7700), ("fe80::1%eth0", 7672))),
        ("127.0.0.1:65535", (("127.0.0.1", 65535),)),
    ],
)
def test_hosts(hosts, parsed):
    assert parse_url(f"sievemq://{hosts}").hosts == parsed
    assert parse_url(f"sievemq://{hosts}/ns").hosts == parsed


def test_percent_encoding_everywhere():
    url = parse_url("sievemq://m%40e:s%3A%2F%40%C3%BC@localhost/a%2Fb?application=x%26y%3D1")
    assert (url.user, url.password, url.namespace, url.options.application) == ("m@e", "s:/@ü", "a/b", "x&y=1")


@pytest.mark.parametrize(
    ("text", "user", "password"),
    [("sievemq://me@h", "me", None), ("sievemq://me:@h", "me", ""), ("sievemq://:p@h", "", "p"),
     ("sievemq://a:b:c@h", "a", "b:c")],
)  # fmt: skip
def test_user_and_password(text, user, password):
    url = parse_url(text)
    assert (url.user, url.password) == (user, password)


def test_the_password_never_shows():
    url = parse_url("sievemq://me:s3cret@localhost")
    assert "s3cret" not in f"{url} {url!r}"
    assert str(url) == "sievemq://me:***@localhost:7672"


@pytest.mark.parametrize(
    "text",
    ["sievemq://me:s3/cret@localhost", "sievemq://me:s3?cret@localhost", "sievemq://me:s3#cret@localhost",
     "sievemq://me:s3%cret@localhost", "sievemq://me:s3@cret@localhost:x"],
)  # fmt: skip
def test_no_error_shows_a_part_of_the_password(text):
    with pytest.raises(InvalidURLException) as raised:
        parse_url(text)
    assert "s3" not in str(raised.value)
    assert "cret" not in str(raised.value).replace("'cret@localhost'", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("localhost:7672", "begins with sievemq://"), ("http://localhost", "begins with sievemq://"),
        ("", "begins with sievemq://"), ("sievemq:/localhost", "begins with sievemq://"), (7672, "a URL is text"),
        ("sievemq://", "names a host"), ("sievemq:///ns", "names a host"), ("sievemq://a,,b", "names a host"),
        ("sievemq://:7672", "names a host"), ("sievemq://a:0", "1 to 65535, not '0'"),
        ("sievemq://a:65536", "1 to 65535"), ("sievemq://a:x", "1 to 65535"), ("sievemq://a:", "1 to 65535"),
        ("sievemq://a:٣", "1 to 65535"), ("sievemq://::1:7672", "in brackets"),
        ("sievemq://[::1", "not a host and port"), ("sievemq://a b", "not the name of a host"),
        ("sievemq://a\n", "not the name of a host"), ("sievemq://a%00", "not the name of a host"),
        ("sievemq://a/b/c", "one name"), ("sievemq://a#b", "%23"), ("sievemq://a/%zz", "two hexadecimal digits"),
        ("sievemq://a/%ff", "not UTF-8"), ("sievemq://a/x\udcf8", "half of one"),
        ("sievemq://a/" + "x" * 256, f"{MAX_IDENTIFIER_CHARS} characters"),
        ("sievemq://a?prefetch", "no value; write prefetch=…"), ("sievemq://a?prefetch=1&prefetch=2", "given twice"),
        ("sievemq://a?prefech=1", "no option 'prefech'; did you mean 'prefetch'"),
        ("sievemq://a?xyz=1", "no option 'xyz'; there are client_id"), ("sievemq://a?=1", "no option ''"),
        ("sievemq://a?prefetch=1&", "no option ''"),
    ],
)  # fmt: skip
def test_errors_name_the_wrong_part(text, problem):
    with pytest.raises(InvalidURLException) as raised:
        parse_url(text)
    assert problem in str(raised.value)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, JMSException)


GOOD = [
    ("client_id", "me", "me"), ("application", "shop", "shop"), ("send_confirm", "never", "never"),
    ("selector_dialect", "ibm-mq", "ibm-mq"), ("prefetch", "auto", None), ("prefetch", "0", 0),
    ("prefetch", str(MAX_CREDIT), MAX_CREDIT), ("heartbeat", "0", 0), ("heartbeat", "100", 100),
    ("connect_timeout", "1", 1), ("reconnect", "0", 0), ("reconnect", "60000", 60_000),
    ("reconnect", "forever", "forever"), ("request_timeout", "0", 0),
    ("send_timeout", "0", 0), ("send_timeout", "1", 1), ("close_timeout", "1", 1),
    ("busy_poll", "0", 0), ("busy_poll", "10000", 10_000),
    ("reconnect_delay", "1", 1), ("reconnect_max_delay", "60000", 60_000),
    ("tls_ca", "/etc/ca.pem", "/etc/ca.pem"), ("tls_cert", "c.pem", "c.pem"), ("tls_key", "k.pem", "k.pem"),
    ("tls_server_name", "broker", "broker"), ("tls_verify", "false", False), ("tls_verify", "true", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_an_option_in_the_text_and_as_a_keyword(name, text, value):
    scheme = "sievemqs" if name.startswith("tls_") else "sievemq"
    assert getattr(parse_url(f"{scheme}://a?{name}={text}").options, name) == value
    assert getattr(parse_url(f"{scheme}://a", **{name: value}).options, name) == value


def test_every_option_has_a_test_and_a_reason():
    assert {name for name, _, _ in GOOD} == {row["name"] for row in options_as_rows()}
    assert all(len(row["reason"]) > 20 and row["wanted"] for row in options_as_rows())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("client_id", "", ""), ("client_id", "x" * 256, 7), ("send_confirm", "yes", "yes"),
        ("selector_dialect", "sql", "sql"), ("prefetch", "-1", -1), ("prefetch", "16001", 16_001),
        ("prefetch", "1.5", 1.5), ("heartbeat", "99", 99), ("heartbeat", "x", True), ("heartbeat", "99999999999", None),
        ("connect_timeout", "0", 0), ("reconnect", "-5", -5), ("reconnect", "for ever", "never"),
        ("request_timeout", "9" * 19, "1"), ("close_timeout", "0", 0),
        ("reconnect_delay", "0", 0), ("reconnect_max_delay", "0", 0), ("busy_poll", "10001", -1),
        ("tls_verify", "yes", 1), ("tls_verify", "True", None),
    ],
)  # fmt: skip
def test_a_bad_value_names_the_option(name, text, value):
    with pytest.raises(InvalidURLException, match=f"the option {name} must be"):
        parse_url(f"sievemq://a?{name}={text}")
    with pytest.raises(InvalidURLException, match=f"the option {name} must be"):
        parse_url("sievemq://a", **{name: value})


def test_keywords_win_over_the_text():
    assert parse_url("sievemq://a?prefetch=1&heartbeat=500", prefetch=2).options == ClientOptions(
        prefetch=2, heartbeat=500
    )
    with pytest.raises(InvalidURLException, match="no option 'prefech'"):
        parse_url("sievemq://a", prefech=2)


def test_a_url_can_be_pickled_and_compared():
    url = parse_url("sievemq://me:s3cret@a/ns?prefetch=1")
    assert pickle.loads(pickle.dumps(url)) == url
    assert hash(url) == hash(parse_url("sievemq://me:s3cret@a/ns?prefetch=1"))


part = st.text(st.characters(codec="utf-8"), max_size=10)


@given(part, part, part, st.integers(0, MAX_CREDIT), st.booleans())
def test_the_text_of_a_url_reads_back(user, namespace, application, prefetch, secure):
    options = ClientOptions(prefetch=prefetch, application=application or None)
    url = BrokerURL((("a", 1), ("::1", 2)), secure, user, None, namespace, options)
    assert parse_url(str(url)) == url


@pytest.mark.parametrize("host", ["fe80::1%eth0", "a,b", "a%2Cb", "a@b", "a?b", "a#b", "a[b]", "bücher.example", "::1"])
def test_the_text_of_any_host_reads_back(host):
    url = BrokerURL(((host, 5), ("other", 6)), user="me")
    assert parse_url(str(url)) == url


@given(st.text(max_size=40))
def test_no_text_raises_anything_else(text):
    for candidate in (text, f"sievemq://{text}", f"sievemq://a?{text}", f"sievemq://a?prefetch={text}"):
        try:
            parse_url(candidate)
        except InvalidURLException:
            pass


def test_prefetch_is_auto_as_a_keyword_too() -> None:
    assert parse_url("sievemq://localhost?prefetch=5", prefetch="auto").options.prefetch is None
    assert parse_url("sievemq://localhost", prefetch="auto") == parse_url("sievemq://localhost?prefetch=auto")
    with pytest.raises(InvalidURLException, match="auto or 0 to 16000, not 'many'"):
        parse_url("sievemq://localhost", prefetch="many")


@pytest.mark.parametrize("factory", [sievemq.ConnectionFactory, sievemq.aio.ConnectionFactory])
def test_a_factory_without_a_url_reads_the_environment(factory, monkeypatch):
    monkeypatch.setenv("SIEVEMQ_URL", "sievemq://there:7700/tests?prefetch=10")
    assert repr(factory()) == "ConnectionFactory('sievemq://there:7700/tests?prefetch=10')"
    assert repr(factory(prefetch=3)) == "ConnectionFactory('sievemq://there:7700/tests?prefetch=3')"
    assert repr(factory("sievemq://here")) == "ConnectionFactory('sievemq://here:7672')"
    monkeypatch.setenv("SIEVEMQ_URL", "")
    assert repr(factory()) == "ConnectionFactory('sievemq://localhost:7672')"
    monkeypatch.delenv("SIEVEMQ_URL")
    assert repr(factory()) == "ConnectionFactory('sievemq://localhost:7672')"


def test_a_wrong_url_of_the_environment_is_named(monkeypatch):
    monkeypatch.setenv("SIEVEMQ_URL", "amqp://there")
    with pytest.raises(InvalidURLException, match=r"^SIEVEMQ_URL: the URL of a broker begins with sievemq://"):
        sievemq.ConnectionFactory()


def test_the_options_of_a_factory_have_types():
    assert list(get_type_hints(Options)) == [option.name for option in fields(ClientOptions)]
