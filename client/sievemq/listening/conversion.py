"""Plain data, as JSON or a MapMessage holds it, as a value of an annotated type.

Types that check their own data do it themselves: msgspec's by msgspec, Pydantic's by Pydantic. The standard library's
are checked here, strictly: text is no number, and a boolean is none.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import sys
import types
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

from sievemq_core.message.dead_letters import MAX_ERROR_CHARS

Convert: TypeAlias = Callable[[Any], Any]


class Misfit(ValueError):  # noqa: N818 - it is data rather than an error of a program
    """Data that does not fit its type.

    Args:
        what: is wrong.
        path: where, from the outside in: ``.lines[2].price``.
    """

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what, path)
        self.what = what
        self.path = path

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.')}: {self.what}" if self.path else self.what


def converter(annotation: Any) -> Convert:
    """A function that makes plain data into a value of a type, or raises :class:`Misfit`.

    Raises:
        TypeError: there is none for this type.
    """
    for make in _MAKERS:
        convert = make(annotation)
        if convert is not None:
            return convert
    raise TypeError(f"{shown(annotation)} is no type that a body or a property can have")


def unwrapped(annotation: Any) -> Any:
    """A type without what is around it: Annotated, NewType, Required, a type alias."""
    while True:
        origin = get_origin(annotation)
        if origin in (Annotated, Required, NotRequired):
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def shown(annotation: Any) -> str:
    """A type as a person writes it."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")


def reason_of(error: Exception) -> str:
    """Why data does not fit, in one line, of MAX_ERROR_CHARS at most."""
    if hasattr(error, "errors") and hasattr(error, "error_count"):  # Pydantic's, without its links
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    else:
        text = " ".join(str(error).split())
    return text[:MAX_ERROR_CHARS] or type(error).__name__


def is_struct(annotation: Any) -> bool:
    """True for a subclass of msgspec.Struct."""
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def is_model(annotation: Any) -> bool:
    """True for a subclass of pydantic.BaseModel."""
    return isinstance(annotation, type) and hasattr(annotation, "model_validate_json")


# -- simple values ----------------------------------------------------------------------------------------------------


def _anything(value: Any) -> Any:
    return value


def _exactly(kind: type, noun: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        if isinstance(value, kind) and type(value) is not bool:  # such as Short, of a MapMessage
            return kind(value)
        raise Misfit(f"{noun} is needed, not {value!r:.60}")

    return convert


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, (int, float)) and type(value) is not bool:
        return float(value)
    raise Misfit(f"a number is needed, not {value!r:.60}")


def _from_text(kind: Any, read: Callable[[str], Any], noun: str) -> Convert:
    """For a type whose values are text in JSON."""

    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if type(value) is str:
            try:
                return read(value)
            except (ValueError, ArithmeticError):
                pass
        raise Misfit(f"{noun} is needed, not {value!r:.60}")

    return convert


def _decimal(value: Any) -> Decimal:
    if type(value) in (str, int, float, Decimal):
        try:
            return Decimal(str(value))
        except ArithmeticError:
            pass
    raise Misfit(f"a number is needed, not {value!r:.60}")


_SIMPLE: Final[Mapping[Any, Convert]] = {
    Any: _anything,
    object: _anything,
    None: _exactly(type(None), "null"),
    type(None): _exactly(type(None), "null"),
    bool: _exactly(bool, "true or false"),
    int: _exactly(int, "a whole number"),
    float: _float,
    str: _exactly(str, "a text"),
    bytes: _exactly(bytes, "bytes"),
    dt.datetime: _from_text(dt.datetime, dt.datetime.fromisoformat, "a time in ISO form"),
    dt.date: _from_text(dt.date, dt.date.fromisoformat, "a date in ISO form"),
    dt.time: _from_text(dt.time, dt.time.fromisoformat, "a time of day in ISO form"),
    UUID: _from_text(UUID, UUID, "a UUID"),
    Decimal: _decimal,
}


#: Types whose values need no conversion.
_AS_THEY_ARE: Final = frozenset({bool, int, float, str})


def _simple(annotation: Any) -> Convert | None:
    try:
        return _SIMPLE.get(annotation)
    except TypeError:  # not hashable
        return None


def _wrapped(annotation: Any) -> Convert | None:
    inner = unwrapped(annotation)
    return None if inner is annotation else converter(inner)


def _literal(annotation: Any) -> Convert | None:
    if get_origin(annotation) is not Literal:
        return None
    values = get_args(annotation)

    def convert(value: Any) -> Any:
        for each in values:
            if type(each) is type(value) and each == value:
                return each
        raise Misfit(f"one of {', '.join(map(repr, values))} is needed, not {value!r:.60}")

    return convert


def _enumeration(annotation: Any) -> Convert | None:
    if not (isinstance(annotation, type) and issubclass(annotation, enum.Enum)):
        return None

    def convert(value: Any) -> Any:
        try:
            return annotation(value)
        except ValueError:
            raise Misfit(f"{value!r:.60} is no {annotation.__qualname__}") from None

    return convert


def _union(annotation: Any) -> Convert | None:
    if not is_union(annotation):
        return None
    converts = [converter(each) for each in get_args(annotation)]

    def convert(value: Any) -> Any:
        wrong: list[str] = []
        for each in converts:
            try:
                return each(value)
            except Misfit as misfit:
                wrong.append(str(misfit))
        raise Misfit("; or ".join(wrong))

    return convert


# -- containers -------------------------------------------------------------------------------------------------------


def _sequence(annotation: Any) -> Convert | None:
    origin = get_origin(annotation) or annotation
    if origin not in (list, set, frozenset, Sequence, MutableSequence):
        return None
    make: Callable[[list[Any]], Any] = origin if origin in (set, frozenset) else _anything
    inner = converter((get_args(annotation) or (Any,))[0])

    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise Misfit(f"a list is needed, not {value!r:.60}")
        return make(_each(inner, value))

    return convert


def _tuple(annotation: Any) -> Convert | None:
    if (get_origin(annotation) or annotation) is not tuple:
        return None
    arguments = get_args(annotation)
    if not arguments or arguments[-1] is Ellipsis:
        inner = converter((arguments or (Any,))[0])
        return lambda value: tuple(_each(inner, _a_list(value)))
    converts = [converter(each) for each in arguments]

    def convert(value: Any) -> Any:
        if len(_a_list(value)) != len(converts):
            raise Misfit(f"a list of {len(converts)} is needed, not {value!r:.60}")
        return tuple(_at(f"[{number}]", each, value[number]) for number, each in enumerate(converts))

    return convert


def _a_list(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return value
    raise Misfit(f"a list is needed, not {value!r:.60}")


def _each(convert: Convert, values: Any) -> list[Any]:
    return list(values) if convert is _anything else [_at(f"[{at}]", convert, each) for at, each in enumerate(values)]


def _at(path: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        raise Misfit(misfit.what, path + misfit.path) from misfit


def _mapping(annotation: Any) -> Convert | None:
    if (get_origin(annotation) or annotation) not in (dict, Mapping, MutableMapping):
        return None
    key, inner = map(converter, get_args(annotation) or (Any, Any))

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(f"an object is needed, not {value!r:.60}")
        if inner is key is _anything:
            return value
        return {_at(f".{name}", key, name): _at(f".{name}", inner, each) for name, each in value.items()}

    return convert


# -- records ----------------------------------------------------------------------------------------------------------


def _hints(annotation: Any) -> dict[str, Any]:
    try:
        return get_type_hints(annotation, include_extras=True)
    except NameError as error:
        raise TypeError(f"{shown(annotation)} has an annotation that names nothing: {error}") from error


def _dataclass(annotation: Any) -> Convert | None:
    if not (isinstance(annotation, type) and dataclasses.is_dataclass(annotation)):
        return None
    hints = _hints(annotation)
    made = [each for each in dataclasses.fields(annotation) if each.init]
    converts = [(each.name, *_cheapest(hints[each.name], annotation, each.name)) for each in made]
    needed = {
        each.name
        for each in made
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    }

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            if isinstance(value, annotation):
                return value
            raise Misfit(f"an object is needed, not {value!r:.60}")
        given: dict[str, Any] = {}
        for name, kind, each in converts:
            if name in value:
                found = value[name]
                given[name] = found if type(found) is kind else _at(f".{name}", each, found)
            elif name in needed:
                raise Misfit("it is missing", f".{name}")
        return annotation(**given)

    return convert


def _typed_dict(annotation: Any) -> Convert | None:
    if not is_typeddict(annotation):
        return None
    hints = _hints(annotation)
    converts = {name: _field(annotation, name, hint) for name, hint in hints.items()}
    # Where annotations are text, Python has not seen what these two mark.
    needed = {
        name
        for name, hint in hints.items()
        if get_origin(hint) is Required
        or (get_origin(hint) is not NotRequired and name in annotation.__required_keys__)
    }

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(f"an object is needed, not {value!r:.60}")
        for name in needed:
            if name not in value:
                raise Misfit("it is missing", f".{name}")
        return {
            name: _at(f".{name}", converts[name], each) if name in converts else each for name, each in value.items()
        }

    return convert


def _cheapest(annotation: Any, owner: Any, name: str) -> tuple[Any, Convert]:
    """The type whose values are taken as they are, None if there is none; and the converter of other values."""
    convert = _field(owner, name, annotation)
    return next((kind for kind in _AS_THEY_ARE if kind is annotation), None), convert


def _field(owner: Any, name: str, annotation: Any) -> Convert:
    try:
        return converter(annotation)
    except TypeError as error:
        raise TypeError(f"{name} of {shown(owner)}: {error}") from error


def _struct(annotation: Any) -> Convert | None:
    if not is_struct(annotation):
        return None
    msgspec = sys.modules["msgspec"]

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, annotation)
        except msgspec.ValidationError as error:
            raise Misfit(str(error)) from error

    return convert


def _model(annotation: Any) -> Convert | None:
    if not is_model(annotation):
        return None

    def convert(value: Any) -> Any:
        try:
            return annotation.model_validate(value)
        except ValueError as error:
            raise Misfit(reason_of(error)) from error

    return convert


_MAKERS: Final[tuple[Callable[[Any], Convert | None], ...]] = (
    _simple, _wrapped, _literal, _enumeration, _union, _sequence, _tuple, _mapping, _struct, _model, _dataclass,
    _typed_dict,
)  # fmt: skip
