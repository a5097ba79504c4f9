"""Checks that a decoded command has the form that the table of commands requires, on the data path, and finds the
reason if it has not.

Every command that arrives is checked, field by field, so that later modules never get a value of a wrong type. A check
that looped over the table would cost more than decoding does. So for each command the table is turned, once and at
import, into one expression over unpacked fields (:data:`FORMS`). :func:`examine` is the slow and obvious twin: it runs
only if the quick check fails. It finds the mistake, or that the command is from a newer peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sievemq_core.errors import ErrorCode, ProtocolError, shown
from sievemq_core.limits import MAX_HEADER_CHARS
from sievemq_core.message.envelope import (
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_MODE,
    ENVELOPE_FIELDS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TYPE,
    BodyKind,
    has_scalars_behind,
)
from sievemq_core.wire.commands import COMMANDS, Command, CommandSpec

CommandTuple: TypeAlias = tuple[Any, ...]
"""A decoded command: its number, then its fields as COMMANDS lists them, neither more nor less."""

Form: TypeAlias = Callable[[Any], bool]

# -- the kinds of fields ----------------------------------------------------------------------------------------------

# As text, because the quick checks are put together from them; {} is the name of a local variable.
_KINDS: Final = {
    "uint": "type({0}) is int and {0} >= 0",
    "bool": "type({0}) is bool",
    "str": "type({0}) is str",
    "bytes": "type({0}) is bytes",
    "map": "type({0}) is dict and TEXTS.issuperset(map(type, {0}))",
    "ids": "type({0}) is tuple and (not {0} or INTS.issuperset(map(type, {0})) and min({0}) >= 0)",
    # LAST: as a rule an envelope has the types of the one before it, or of the one before that, as requests and replies
    # in turn have. Comparing lists of types is faster than hashing them.
    "envelope": (
        "type({0}) is tuple and ((types := [*map(type, {0})]) == LAST[0] or types == LAST[1] or seen({0})) "
        f"and {{0}}[{PRIORITY}] in PRIORITIES and {{0}}[{DELIVERY_MODE}] in MODES"
    ),
    "envelopes": "type({0}) is tuple and {0} != () and all(map(is_envelope, {0}))",
    "delivered": f"type({{0}}) is tuple and len({{0}}) >= {ENVELOPE_FIELDS}",
    "delivereds": (
        f"type({{0}}) is tuple and {{0}} != () and TUPLES.issuperset(map(type, {{0}})) "
        f"and min(map(len, {{0}})) >= {ENVELOPE_FIELDS}"
    ),
    "any": "True",
}
_NAMES: Final = {
    "uint": "an unsigned integer",
    "bool": "a boolean",
    "str": "text",
    "bytes": "bytes",
    "map": "a map with text keys",
    "ids": "an array of unsigned integers",
    "envelope": "an envelope",
    "envelopes": "an array of envelopes",
    "any": "anything",
}

# -- envelopes --------------------------------------------------------------------------------------------------------

_TEXT: frozenset[type] = frozenset({str, type(None)})
_BIN: frozenset[type] = frozenset({bytes, type(None)})
_INT: frozenset[type] = frozenset({int})
_ENVELOPE: Final[tuple[tuple[str, frozenset[type]], ...]] = (
    ("message_id", _TEXT),
    ("timestamp", _INT),
    ("priority", _INT),
    ("delivery_mode", _INT),
    ("expiration", _INT),
    ("delivery_time", _INT),
    ("correlation_id", _TEXT | {bytes}),
    ("reply_to", _TEXT),
    ("type", _TEXT),
    ("properties", _BIN),
    ("property_types", _TEXT),
    ("body_kind", _INT),
    ("body", _BIN),
)
_PRIORITIES: Final = frozenset(range(10))
_MODES: Final = frozenset({1, 2})

# Type signatures of envelopes found in form, of exactly this version's fields: at most 192 exist. LAST are the latest
# two.
_signatures: set[tuple[type, ...]] = set()
_last: list[list[type]] = [[object], [object]]  # not [], which an array without fields equals


def _seen(fields: tuple[Any, ...]) -> bool:
    signature = tuple(map(type, fields))
    if signature not in _signatures:
        if len(signature) != ENVELOPE_FIELDS or _wrong_type(fields) is not None:
            return False
        _signatures.add(signature)
    _last[:] = list(signature), _last[0]
    return True


def _wrong_type(fields: tuple[Any, ...]) -> str | None:
    for (name, kinds), value in zip(_ENVELOPE, fields, strict=False):
        if type(value) not in kinds:
            return f"an envelope's {name} must not be {shown(value)}"
    return None


def check_envelope(fields: object) -> None:
    """Check the form of an envelope's fields. Fields that only a newer version knows are kept, and must be scalars: an
    answer contains an envelope some levels deeper, and must stay decodable.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    if type(fields) is not tuple or len(fields) < ENVELOPE_FIELDS:
        raise ProtocolError(f"an envelope has {ENVELOPE_FIELDS} fields, unlike {shown(fields)}")
    wrong = None if [*map(type, fields)] == _last[0] or _seen(fields) else _wrong_type(fields)
    if wrong is None and fields[PRIORITY] not in _PRIORITIES:
        wrong = f"an envelope's priority must be 0 to 9, not {fields[PRIORITY]}"
    if wrong is None and fields[DELIVERY_MODE] not in _MODES:
        wrong = f"an envelope's delivery_mode must be 1 or 2, not {fields[DELIVERY_MODE]}"
    if wrong is None and len(fields) > ENVELOPE_FIELDS and not has_scalars_behind(fields):
        wrong = "an envelope's fields that this version does not know must be scalars, not arrays or maps; pack them"
    if wrong is not None:
        raise ProtocolError(wrong)


def _is_envelope(fields: object) -> bool:
    try:
        check_envelope(fields)
    except ProtocolError:
        return False
    return True


def check_headers(fields: CommandTuple) -> str | None:
    """The mistake in the header values of an envelope of correct form, or None: lengths and the body kind.

    This concerns one message, not the wire: the code that accepts messages checks it, and refuses only that message."""
    for position, name in _HEADERS:
        value = fields[position]
        if value is not None and len(value) > MAX_HEADER_CHARS:
            return f"{name} has {len(value)} characters; at most {MAX_HEADER_CHARS} are accepted"
    if fields[BODY_KIND] not in _BODY_KINDS:
        return f"body kind {fields[BODY_KIND]} is unknown"
    return None


_HEADERS = (
    (MESSAGE_ID, "JMSMessageID"),
    (CORRELATION_ID, "JMSCorrelationID"),
    (REPLY_TO, "JMSReplyTo"),
    (TYPE, "JMSType"),
)
_BODY_KINDS = frozenset(int(kind) for kind in BodyKind)

# -- quick checks -----------------------------------------------------------------------------------------------------

_SCOPE: Final = {
    "TEXTS": frozenset({str}),
    "INTS": frozenset({int}),
    "TUPLES": frozenset({tuple}),
    "is_envelope": _is_envelope,
    "LAST": _last,
    "PRIORITIES": _PRIORITIES,
    "MODES": _MODES,
    "seen": _seen,
}


def _condition(kind: str, variable: str) -> str:
    condition = _KINDS[kind.removesuffix("?")].format(variable)
    return f"({variable} is None or {condition})" if kind.endswith("?") else condition


def _parts(spec: CommandSpec, trusted: bool) -> tuple[str, str]:
    """The line that takes a command apart, and what has to be true then."""
    kinds = [field.kind.replace("envelope", "delivered") if trusted else field.kind for field in spec.fields]
    variables = [f"f{i}" for i in range(len(spec.fields))]
    conditions = ["type(command) is tuple", "type(number) is int"]  # bytes have a [0] too, and True is 1
    conditions += [_condition(kind, v) for kind, v in zip(kinds, variables, strict=True) if kind != "any"]
    return f"number, {''.join(v + ', ' for v in variables)} = command", " and ".join(conditions)


def _compile(spec: CommandSpec, *, trusted: bool = False) -> Form:
    """A function that checks whether a value is this command, whole and in form."""
    take_apart, condition = _parts(spec, trusted)
    return _function(
        spec,
        f"def {spec.name}(command):\n"
        f"    try:\n"
        f"        {take_apart}\n"
        f"    except (TypeError, ValueError):\n"
        f"        return False\n"
        f"    return {condition}\n",
    )


def _compile_row(spec: CommandSpec, *, trusted: bool = False) -> Form:
    """The same for all values of a frame."""
    take_apart, condition = _parts(spec, trusted)
    return _function(
        spec,
        f"def {spec.name}(commands):\n"
        f"    for command in commands:\n"
        f"        {take_apart}\n"
        f"        if not ({condition} and number == {spec.number}):\n"
        f"            return False\n"
        f"    return True\n",
    )


def _function(spec: CommandSpec, source: str) -> Form:
    names: dict[str, Any] = {}
    for name, value in _SCOPE.items():  # one by one: lookups in a dict that C has built at once are slower
        names[name] = value
    # Put together from the two tables above and nothing else.
    exec(compile(source, f"<form of {spec.name}>", "exec"), names)  # noqa: S102
    form: Form = names[spec.name]
    return form


FORMS: Final[dict[int, Form]] = {number: _compile(spec) for number, spec in COMMANDS.items()}
"""By command number: True if a value is that command, whole and in form."""

TRUSTED_FORMS: Final[dict[int, Form]] = {
    **FORMS,
    **{int(n): _compile(COMMANDS[n], trusted=True) for n in (Command.DELIVER, Command.DELIVER_SEVERAL)},
}
"""The same for a client: its broker checked the content of the envelopes when it accepted them."""

ROWS: Final[dict[int, Form]] = {
    int(Command.SEND): _compile_row(COMMANDS[Command.SEND]),
    int(Command.DELIVER): _compile_row(COMMANDS[Command.DELIVER], trusted=True),
}
"""The command that fills a frame on a busy connection: True if all values of a frame are such commands, complete and in
correct form. One call checks all of them. TypeError or ValueError if a value cannot be unpacked: another kind of frame,
or an invalid one."""

# -- the slow and obvious twin ----------------------------------------------------------------------------------------

_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "uint": lambda v: type(v) is int and v >= 0,
    "bool": lambda v: type(v) is bool,
    "str": lambda v: type(v) is str,
    "bytes": lambda v: type(v) is bytes,
    "map": lambda v: type(v) is dict and all(type(k) is str for k in v),
    "ids": lambda v: type(v) is tuple and all(type(i) is int and i >= 0 for i in v),
    "any": lambda v: True,
    "envelopes": lambda v: False,  # those have been checked
}


def examine(value: object) -> CommandTuple:
    """The command that `value` is, without fields that only a newer peer knows, and with those that may be omitted.

    Raises:
        ProtocolError: `value` is no command, an unknown one (UNKNOWN_COMMAND), or a field is missing or wrong.
    """
    if type(value) is not tuple or not value or type(value[0]) is not int:
        raise ProtocolError(f"a command is an array that begins with its number, unlike {shown(value)}")
    spec = COMMANDS.get(value[0])
    if spec is None:
        raise ProtocolError(f"unknown command {value[0]}", ErrorCode.UNKNOWN_COMMAND)
    given, wanted = len(value) - 1, len(spec.fields)
    if given < wanted and spec.fields[given].optional:  # so are those behind it
        value += tuple(field.default for field in spec.fields[given:])
    elif given < wanted:
        raise ProtocolError(f"{spec.name} without its field {spec.fields[given].name!r} ({given} of {wanted} given)")
    command = value[: wanted + 1]
    for field, content in zip(spec.fields, command[1:], strict=True):
        if field.kind == "envelope":
            check_envelope(content)
        elif field.kind == "envelopes" and type(content) is tuple and content:
            for each in content:
                check_envelope(each)
        elif not (field.kind.endswith("?") and content is None) and not _CHECKS[field.kind.removesuffix("?")](content):
            name = _NAMES[field.kind.removesuffix("?")] + (" or nil" if field.kind.endswith("?") else "")
            raise ProtocolError(f"{spec.name}.{field.name} must be {name}, not {shown(content)}")
    return command
