"""The page of settings: of a broker, of its destinations and namespaces, and of a client's URL, from their sources."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from sievemq.url import options_as_rows
from sievemq_broker.config import Settings
from sievemq_broker.domain.policy import DestinationPolicy, NamespacePolicy
from sievemq_broker.thresholds import Thresholds
from website.markup import plain_cell, row

PAGE = "reference/settings.md"


def page() -> str:
    """The page, as Markdown."""
    return "\n".join(
        [
            "# Settings\n",
            "Explained in [operating](../docs/operating.md), and those of a URL in [the client](../docs/client.md).\n",
            "## A broker\n",
            (
                "`http_port` is the key in the TOML file, `SIEVEMQ_HTTP_PORT` the variable of the environment, "
                "`--http-port` the option of `sievemq broker`; all others likewise.\n"
            ),
            "| setting | default | meaning |\n| --- | --- | --- |",
            *_broker(),
            "\n## Destinations\n",
            'Keys of `[destinations."PATTERN"]`.\n',
            *_policy(DestinationPolicy),
            "\n## Namespaces\n",
            'Keys of `[namespaces."PATTERN"]`.\n',
            *_policy(NamespacePolicy),
            "\n## Attention\n",
            "Keys of `[attention]`.\n",
            *_policy(Thresholds),
            "\n## A client's URL\n",
            "Options of `sievemq://host:port/namespace?option=value`, and of `ConnectionFactory`.\n",
            "| option | default | values | meaning |\n| --- | --- | --- | --- |",
            *(
                row(f"`{it['name']}`", _code(it["default"]), plain_cell(it["wanted"]), plain_cell(it["reason"]))
                for it in options_as_rows()
            ),
            "",
        ]
    )


def _broker() -> Iterator[str]:
    for each in fields(Settings):
        default: Any = each.default
        if isinstance(default, tuple):
            default = ",".join(default)
        shown = "" if not isinstance(default, (str, int, float)) else str(default).lower()
        yield row(f"`{each.name}`", _code(shown), plain_cell(each.metadata["meaning"]))


def _policy(kind: type[Any]) -> Iterator[str]:
    yield "| rule | default | meaning |\n| --- | --- | --- |"
    meanings = attributes_of(kind)
    for each in fields(kind):
        if each.init:
            shown = "" if each.default is None else str(each.default).lower()
            yield row(f"`{each.name}`", _code(shown), plain_cell(meanings[each.name]))


def attributes_of(kind: type[Any]) -> dict[str, str]:
    """The attributes that the docstring of a class describes."""
    text = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", text, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning) for name, meaning in found}


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
