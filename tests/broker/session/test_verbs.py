"""The commands with names have the fields of the wire's table, and no door or handler goes back to positions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import sievemq_broker.protocols
import sievemq_testing
from sievemq_broker.session import verbs
from sievemq_broker.session.table import HANDLERS
from sievemq_broker.session.verbs import NamedCommand, Request, named_commands
from sievemq_core.wire.commands import COMMANDS, Command, Field

TYPES: dict[str, Any] = {
    "uint": int, "bool": bool, "str": str, "str?": str | None, "ids": Sequence[int], "map": dict[str, Any],
    "map?": Mapping[str, Any] | None,
    "any": Any, "envelope": tuple[Any, ...],
}  # fmt: skip
FUNCTIONS = {Command.SEND: verbs.send, Command.ACKNOWLEDGE: verbs.acknowledge, Command.CREDIT: verbs.credit}
NAMED = {number: kind for number, kind in named_commands().items() if number != Command.HELLO}
SAID = {f"Command.{spec.name}" for spec in COMMANDS.values() if spec.sender != "broker"}
REQUIRED: Any = inspect.Parameter.empty


def table_of(number: int) -> list[tuple[str, Any, Any]]:
    """The fields of a command: name, type, default."""

    def default(field: Field) -> Any:
        return field.default if field.optional else REQUIRED

    return [(field.name, TYPES[field.kind], default(field)) for field in COMMANDS[number].fields]


def test_every_command_of_a_client_has_a_named_form_and_a_handler() -> None:
    said = {number for number, spec in COMMANDS.items() if spec.sender != "broker"}
    assert {*NAMED, *FUNCTIONS, Command.HELLO} == {*HANDLERS, Command.SEND} == said


@pytest.mark.parametrize(
    ("number", "kind"), NAMED.items(), ids=lambda each: COMMANDS[each].name if each in COMMANDS else ""
)
def test_named_commands_have_the_fields_of_the_wire_in_order(number: int, kind: type[NamedCommand]) -> None:
    hints = get_type_hints(kind)
    assert [(name, hints[name], kind._defaults.get(name, REQUIRED)) for name in kind.names] == table_of(number)
    assert kind.__name__ == COMMANDS[number].name.title().replace("_", "")
    assert issubclass(kind, Request) == (kind.names[:1] == ("request",))


@pytest.mark.parametrize(("number", "make"), FUNCTIONS.items(), ids=["SEND", "ACKNOWLEDGE", "CREDIT"])
def test_functions_for_plain_commands_have_the_fields_of_the_wire_in_order(
    number: int, make: Callable[..., Any]
) -> None:
    hints = get_type_hints(make)
    parameters = inspect.signature(make).parameters.values()
    assert {each.kind for each in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert [(each.name, hints[each.name], each.default) for each in parameters] == table_of(number)
    values = {each.name: object() for each in parameters}
    assert make(**values) == (number, *values.values())


def test_hello_has_what_every_protocol_knows() -> None:
    ours = {"version", "heartbeat", "resume", "options"}
    hints = get_type_hints(verbs.Hello)
    common = [(name, kind, default) for name, kind, default in table_of(Command.HELLO) if name not in ours]
    assert [(name, hints[name], REQUIRED) for name in verbs.Hello.names if name not in verbs.Hello._defaults] == common


def test_hello_without_its_password_is_otherwise_the_same() -> None:
    hello = verbs.Hello(namespace="n", user="ann", password="secret", client_id="c", agent="a", keep=5)
    kept = hello.without_password()
    assert isinstance(kept, verbs.Hello)
    assert kept == tuple(None if value == "secret" else value for value in hello)


def test_a_command_is_a_tuple_with_its_number_first() -> None:
    close = verbs.CloseConsumer(handed=3, consumer=2, request=1)
    assert close == (Command.CLOSE_CONSUMER, 1, 2, 3)
    assert (close.request, close.consumer, close.handed) == (1, 2, 3)
    assert verbs.CreateTemporary(request=1, topic=True).destination is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: verbs.Want(1, 2),  # type: ignore[call-arg]
        lambda: verbs.Want(request=1),  # type: ignore[call-arg]
        lambda: verbs.Want(request=1, consumer=2, credit=3),  # type: ignore[call-arg]
    ],
    ids=["by position", "missing", "unknown"],
)
def test_a_command_is_made_of_its_fields_by_keyword(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()


def sources() -> Iterator[Path]:
    for package in (sievemq_broker.protocols, sievemq_testing):
        yield from Path(package.__path__[0]).rglob("*.py")


def positional(tree: ast.AST) -> Iterator[int]:
    """The lines that make a client's command of a number and fields, or take a field of one by its position."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
            if ast.unparse(node.elts[0]) in SAID:
                yield node.lineno
        elif (
            isinstance(node, ast.Subscript) and ast.unparse(node.value) == "command" and ast.unparse(node.slice) != "0"
        ):
            yield node.lineno


def test_no_door_makes_or_reads_commands_by_position() -> None:
    found = {f"{path.name}:{line}" for path in sources() for line in positional(ast.parse(path.read_text("utf-8")))}
    assert found == set()
    assert [*positional(ast.parse("_do(now, (Command.WANT, 0, 1))\ncommand[2] + command[0]"))] == [1, 2]


@pytest.mark.parametrize(
    ("namespace", "host", "wanted"),
    [("n", "/other", "n"), ("", "/n", "n"), ("", "example.org", ""), ("", "/", ""), ("", "", "")],
)
def test_a_host_behind_a_slash_names_the_namespace_if_nothing_else_does(namespace: str, host: str, wanted: str) -> None:
    hello = verbs.Hello(namespace=namespace, user=None, password=None, client_id=None, agent="", host=host)
    assert hello.wanted == wanted
