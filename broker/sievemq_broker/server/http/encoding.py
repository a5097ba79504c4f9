"""JSON as the management port writes it."""

from __future__ import annotations

from typing import Any


def encode(answer: object) -> bytes:
    import msgspec  # 1 MB, not needed before the first answer

    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:  # a lone surrogate somewhere; JMS allows any text, JSON does not
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(answer)))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value
