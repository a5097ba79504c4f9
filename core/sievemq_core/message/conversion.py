"""Reading a value as another type: the one conversion table of JMS, as data, and what applies it (§3.5.4, §3.11.3).

Properties use it without the rows and columns of char and byte[] (NUL-09). It is not used inside selectors (PRP-14).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from sievemq_core.errors import FormatError, NullValueError, NumberFormatError
from sievemq_core.message.values import TYPE_NAMES, BodyValue, Float, letter_of, to_single

#: Row: the type that is held; column: the type that is read. ``x`` the same value, ``p`` parsed from text,
#: ``.`` not allowed. There is no narrowing (CNV-11), no crossing between integers and floats
#: (CNV-12), and byte[] and text never meet (NUL-07).
TABLE: Final = """
          boolean  byte  short  char  int  long  float  double  String  byte[]
boolean         x     .      .     .    .     .      .       .       x       .
byte            .     x      x     .    x     x      .       .       x       .
short           .     .      x     .    x     x      .       .       x       .
char            .     .      .     x    .     .      .       .       x       .
int             .     .      .     .    x     x      .       .       x       .
long            .     .      .     .    .     x      .       .       x       .
float           .     .      .     .    .     .      x       x       x       .
double          .     .      .     .    .     .      .       x       x       .
String          x     p      p     .    p     p      p       p       x       .
byte[]          .     .      .     .    .     .      .       .       .       x
"""


def convert(value: BodyValue, letter: str) -> Any:
    """Read a held value as the type of that letter.

    Args:
        value: as held (see :mod:`sievemq_core.message.values`); None is a null, or a name that was never set.

    Returns:
        A plain bool, int, float, str or bytes; never a wrapper.

    Raises:
        FormatError: the table does not allow it.
        NumberFormatError: text, or null, that is not a number of the type (CNV-02, CNV-03, CNV-08).
        NullValueError: null where a float, double or char is wanted (CNV-09, NUL-04).
    """
    if value is None:
        return _null(letter)
    held = letter_of(value)
    conversion = CONVERSIONS.get(held + letter)
    if conversion is None:
        raise FormatError(f"{_a(TYPE_NAMES[held])} cannot be read as {_a(TYPE_NAMES[letter])}")
    return conversion(value)


def _null(letter: str) -> bool | None:
    if letter in "sx":
        return None  # CNV-10, NUL-05
    if letter == "z":
        return False  # CNV-07, NUL-01
    if letter in "bhil":
        raise NumberFormatError(f"null cannot be read as {_a(TYPE_NAMES[letter])}")  # CNV-08, NUL-02
    raise NullValueError(f"null cannot be read as {_a(TYPE_NAMES[letter])}")  # CNV-09, NUL-03, NUL-04


def _a(name: str) -> str:
    return f"an {name}" if name == "int" else f"a {name}"


# -- text to values ---------------------------------------------------------------------------------------------------


def parse_boolean(text: str) -> bool:
    """True for ``true`` in any letter case, False for every other text (CNV-01)."""
    return text.lower() == "true"


_DECIMAL = re.compile(r"[+-]?[0-9]+", re.ASCII)
_WIDTHS: Final = {"b": 8, "h": 16, "i": 32, "l": 64}


def parse_integer(text: str, letter: str) -> int:
    """Read decimal digits with an optional sign as an integer of a width (CNV-02).

    Raises:
        NumberFormatError: anything else is in the text, or the number is out of range.
    """
    if _DECIMAL.fullmatch(text) is None:
        raise NumberFormatError(f"{_quoted(text)} is not {_a(TYPE_NAMES[letter])}")
    # Any width ends at 19 digits; int() of a hostile text of a million digits would take seconds.
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) <= 19:
        number = -int(digits or "0") if text[0] == "-" else int(digits or "0")
        limit = 1 << (_WIDTHS[letter] - 1)
        if -limit <= number < limit:
            return number
    raise NumberFormatError(f"{_quoted(text)} is outside the range of {_a(TYPE_NAMES[letter])}")


# Java's Double.valueOf: blanks around, a sign, NaN or Infinity or a decimal or hexadecimal number, a suffix.
_FLOATING = re.compile(
    r"""[\x00-\x20]* (?P<number> [+-]? (?: (?P<word> NaN | Infinity )
          | (?: (?P<decimal> (?: [0-9]+ \.? [0-9]* | \. [0-9]+ ) (?: [eE] [+-]? [0-9]+ )? )
              | (?P<hex> 0[xX] (?: [0-9a-fA-F]+ \.? [0-9a-fA-F]* | \. [0-9a-fA-F]+ ) [pP] [+-]? [0-9]+ )
            ) (?P<suffix> [fFdD] )?
        ) ) [\x00-\x20]*""",
    re.ASCII | re.VERBOSE,
)


def parse_floating(text: str, letter: str) -> float:
    """Read Java floating syntax as a float or double (CNV-03).

    Raises:
        NumberFormatError: the text is nothing of the kind.
    """
    match = _FLOATING.fullmatch(text)
    if match is None:
        raise NumberFormatError(f"{_quoted(text)} is not {_a(TYPE_NAMES[letter])}")
    number = match["number"].removesuffix(match["suffix"] or "")
    if match["hex"]:
        try:
            value = float.fromhex(number)
        except OverflowError:
            value = -math.inf if number[0] == "-" else math.inf
    else:
        value = float(number)
    if letter == "d":
        return value
    if match["decimal"]:
        value = _off_the_fence(value, number)
    return to_single(value)


def _off_the_fence(value: float, number: str) -> float:
    """A double that rounds to the same single as the decimal text itself.

    Rounding twice is wrong only if the double is exactly between two singles and the text is not."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    if bits & 0x0FFF_FFFF == 0 and math.isfinite(value):
        exact, rounded = Decimal(number), Decimal(value)
        if exact != rounded:
            return math.nextafter(value, math.inf if exact > rounded else -math.inf)
    return value


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}…"


# -- values to text ---------------------------------------------------------------------------------------------------


def text_of(value: BodyValue) -> str:
    """A held value as text, as Java writes it (CNV-04 to CNV-06). Not for bytes, which are never text (NUL-07).

    >>> text_of(True), text_of(1.0), text_of(6.02e23), text_of(Float(0.1)), text_of(1e-5)
    ('true', '1.0', '6.02E23', '0.1', '1.0E-5')
    """
    if isinstance(value, float):
        return _floating_text(value)
    if value is True or value is False:
        return "true" if value else "false"
    return str(value)


def _floating_text(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (math.inf, -math.inf):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    mantissa, _, exponent = _shortest(value).partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    digits, power = mantissa.replace(".", ""), int(exponent)
    if not -3 <= power < 7:  # Java's rule for the computerised scientific notation
        return f"{sign}{digits[0]}.{digits[1:]}E{power}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits.rstrip('0')}"
    digits = digits.ljust(power + 2, "0")
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"


def _shortest(value: float) -> str:
    """The shortest digits that parse back to the same value, at least two, as ``d.ddd…e±xx``."""
    single = type(value) is Float
    for precision in range(1, 9 if single else 17):
        text = f"{value:.{precision}e}"
        if (to_single(float(text)) if single else float(text)) == value:
            return text
    return f"{value:.16e}"


# -- the table as functions -------------------------------------------------------------------------------------------


def _build() -> dict[str, Callable[[Any], Any]]:
    """The table's cells as functions, by the letter held followed by the letter wanted."""
    letters = {name: letter for letter, name in TYPE_NAMES.items()}
    header, *rows = (line.split() for line in TABLE.strip().splitlines())
    functions: dict[str, Callable[[Any], Any]] = {}
    for held, *cells in rows:
        for wanted, cell in zip(header, cells, strict=True):
            if cell != ".":
                functions[letters[held] + letters[wanted]] = _function(letters[held], letters[wanted], cell)
    return functions


def _function(held: str, wanted: str, cell: str) -> Callable[[Any], Any]:
    if cell == "p":
        parse = parse_integer if wanted in "bhil" else parse_floating
        return lambda text: parse(text, wanted)
    if wanted == "s":
        return text_of
    if held == "s":
        return parse_boolean
    return _PLAIN[wanted]


def _plain_text(value: str) -> str:
    return str.__str__(value)


_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "z": bool, "b": int, "h": int, "i": int, "l": int, "f": float, "d": float, "c": _plain_text, "x": bytes,
}  # fmt: skip

CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = _build()
"""``held + wanted`` letters -> function; a pair that is not here is not allowed."""
