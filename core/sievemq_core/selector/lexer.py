"""Text to tokens with spans, one at a time, so that a limit of the parser ends the work early.

Java's rules where §3.8.1.1 refers to them: white space, identifiers (D-09), integer and floating literals (D-10).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from math import isinf
from unicodedata import category

from sievemq_core.message.values import INT_MAX, LONG_MAX, LONG_MIN, Float, Long
from sievemq_core.selector.dialect import RESERVED, Dialect
from sievemq_core.selector.source import SelectorError, Span

#: Java's white space (§3.8.1.1): blank, tab, form feed, line ends. Nothing else separates tokens.
WHITE_SPACE = " \t\f\r\n"


#: Items of a list that each know where they stand; those of a longer one stand where it does.
LONG_LIST = 256


class TokenKind(Enum):
    """The kind of a token; the value is its name in an error message."""

    NAME = "a name"
    WORD = "a reserved word"
    STRING = "a string"
    NUMBER = "a number"
    SYMBOL = "a symbol"
    END = "the end of the selector"


#: Looking a member up in its class takes as long as making half a token.
_NAME, _WORD, _STRING_KIND, _NUMBER, _SYMBOL = (
    TokenKind.NAME,
    TokenKind.WORD,
    TokenKind.STRING,
    TokenKind.NUMBER,
    TokenKind.SYMBOL,
)


@dataclass(slots=True)  # not frozen: that would double the time to make one
class Token:
    """A piece of the text. ``text`` is upper case for a WORD; ``value`` is set for a STRING, a NUMBER and a NAME in
    double quotes."""

    kind: TokenKind
    text: str
    start: int
    end: int
    value: str | int | float | None = None

    @property
    def span(self) -> Span:
        return self.start, self.end


# Behind a name, and behind a number: the end, or an ASCII character that does not belong to it. Written as what may
# stand there: a set that reaches to U+10FFFF takes milliseconds to compile.
_ENDS_NAME = r"(?![^\x00-#%-/:-@\[-^`{-\x7f])"
_ENDS_NUMBER = r"(?![^\x00-#%-\-/:-@\[-^`{-\x7f])"

#: The plain tokens, by far the most: ASCII names, strings, small decimal numbers, symbols that cannot be the beginning
#: of a mistake. Everything else goes the long way.
_PLAIN = re.compile(
    rf"[{WHITE_SPACE}]*(?:"
    r"([A-Za-z_$][A-Za-z0-9_$]*+)(?![^\x00-\-/-\x7f])"
    r"|('[^']*+')(?!')"
    rf"|((?:0|[1-9][0-9]{{0,8}}){_ENDS_NUMBER})"
    r"|((?:<>|<=|>=|[=<>])(?![=<>~])|[(),+]))"
)
_INTEGER_ALONE = rf"(?:0|[1-9][0-9]{{0,8}}){_ENDS_NUMBER}"
#: What stands behind the name in a plain condition, the most frequent by far, if nothing behind it belongs to it:
#: a comparison with a string or integer, BETWEEN two integers, LIKE, IS NULL.
_CONDITION = re.compile(
    rf"[{WHITE_SPACE}]*(?:"
    rf"(<>|<=|>=|[=<>])[{WHITE_SPACE}]*(?:('[^']*+')|({_INTEGER_ALONE}))"
    rf"|(not[{WHITE_SPACE}]+)?+(?:like[{WHITE_SPACE}]*('[^']*+')"
    rf"|between[{WHITE_SPACE}]+({_INTEGER_ALONE})[{WHITE_SPACE}]+and[{WHITE_SPACE}]+({_INTEGER_ALONE}))"
    rf"|is[{WHITE_SPACE}]+(not[{WHITE_SPACE}]+)?+null"
    rf")(?=[{WHITE_SPACE}]*(?:\)|\Z|(?:and|or){_ENDS_NAME}))",
    re.IGNORECASE | re.ASCII,
)
#: The beginning of a list behind a name.
_LIST = re.compile(rf"[{WHITE_SPACE}]+(not[{WHITE_SPACE}]+)?+in[{WHITE_SPACE}]*\(", re.IGNORECASE | re.ASCII)
#: An item of a list and what follows it.
_ITEM = re.compile(rf"[{WHITE_SPACE}]*('[^']*+(?:''[^']*+)*+')[{WHITE_SPACE}]*([,)])")
#: The items of a list and its end; and a long chain of equalities of one name with plain constants, that no AND binds a
#: part of. A float there is one that every number type compares exactly with.
_TEXT = r"'[^']*+(?:''[^']*+)*+'"
_ITEMS = re.compile(rf"(?:[{WHITE_SPACE}]*{_TEXT}[{WHITE_SPACE}]*,)*+[{WHITE_SPACE}]*{_TEXT}[{WHITE_SPACE}]*\)")
_EQUAL = (
    rf"[{WHITE_SPACE}]*=[{WHITE_SPACE}]*({_TEXT}"
    rf"|-?(?:0|[1-9][0-9]{{0,17}}+)[lL]?{_ENDS_NUMBER}"
    rf"|-?(?:0|[1-9][0-9]{{0,14}}+)\.[0-9]{{1,9}}+{_ENDS_NUMBER})"
)
_OR = rf"[{WHITE_SPACE}]*[oO][rR]"
#: Fewer terms are conditions of their own.
_CHAIN = re.compile(
    rf"([^\W\d][\w$]*+|\$[\w$]*+){_EQUAL}(?:{_OR}[{WHITE_SPACE}]+\1{_EQUAL}){{16,}}"
    rf"(?=[{WHITE_SPACE}]*(?:\)|\Z)|{_OR}{_ENDS_NAME})"
)
#: The same with each term in parentheses, as programs write it.
_CHAIN_OF_PARENTHESES = re.compile(
    rf"\([{WHITE_SPACE}]*([^\W\d][\w$]*+|\$[\w$]*+){_EQUAL}[{WHITE_SPACE}]*\)"
    rf"(?:{_OR}[{WHITE_SPACE}]*\([{WHITE_SPACE}]*\1{_EQUAL}[{WHITE_SPACE}]*\)){{16,}}"
    rf"(?=[{WHITE_SPACE}]*(?:\)|\Z)|{_OR}{_ENDS_NAME})"
)
_EQUALS = re.compile(_EQUAL)
_BLANKS = re.compile(f"[{WHITE_SPACE}]*")
_ASCII_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STRING = re.compile(r"'[^']*+(?:''[^']*+)*+'")
_QUOTED = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
#: The rest of a name that other brokers allow: letters and digits with points and hyphens between.
_REST = re.compile(r"(?:[.-][\w$]++)*+")
# Atomic groups: a run of digits is taken once, so hostile input cannot make the patterns try every way to cut it.
_DIGITS = r"(?>[0-9](?:[0-9_]*[0-9])?)"
_HEX_DIGITS = r"(?>[0-9A-Fa-f](?:[0-9A-Fa-f_]*[0-9A-Fa-f])?)"
_FLOATING = re.compile(
    rf"""(?: {_DIGITS}\.{_DIGITS}?(?:[eE][+-]?{_DIGITS})?   # 7.  7.5  7.5E3
           | \.{_DIGITS}(?:[eE][+-]?{_DIGITS})?            # .5
           | {_DIGITS}[eE][+-]?{_DIGITS}                   # 7E3
           | {_DIGITS}(?=[fFdD])                           # 7f
         )[fFdD]?""",
    re.VERBOSE,
)
_HEX_FLOATING = re.compile(rf"0[xX](?:{_HEX_DIGITS}(?:\.{_HEX_DIGITS}?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}[fFdD]?")
_INTEGER = re.compile(rf"(?:0[xX]{_HEX_DIGITS}|0[bB](?>[01](?:[01_]*[01])?)|{_DIGITS})[lL]?")
_NUMBER_LIKE = re.compile(r"[0-9.](?:[0-9A-Za-z_.$]|(?<=[eEpP])[+-])*")

# Java identifiers by Unicode category: letters, letter numbers, currency signs, connectors start one;
# digits, combining marks and invisible format characters may follow. Control characters are not accepted.
_START = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_PART = _START | {"Nd", "Mn", "Mc", "Cf"}

_QUOTES = "‘’‚‛′`´"
_DOUBLE_QUOTES = '"“”„«»'

#: What people write out of habit from other languages, longest first: text -> (what is wrong, hint). D-11.
_FOREIGN: tuple[tuple[str, str, str], ...] = (
    ("<=>", "there is no operator '<=>'", "write '=', and IS NULL for a missing value"),
    ("!==", "'!==' is not an operator", "write '<>'"),
    ("===", "'===' is not an operator", "write '='"),
    ("!=", "'!=' is not an operator", "write '<>'"),
    ("==", "'==' is not an operator", "write '='"),
    ("=>", "'=>' is not an operator", "write '>='"),
    ("=<", "'=<' is not an operator", "write '<='"),
    ("><", "'><' is not an operator", "write '<>'"),
    ("^=", "'^=' is not an operator", "write '<>'"),
    ("~=", "'~=' is not an operator", "write LIKE for patterns"),
    ("=~", "'=~' is not an operator", "write LIKE for patterns"),
    ("&&", "'&&' is not an operator", "write AND"),
    ("||", "'||' is not an operator", "write OR; strings cannot be joined"),
    ("--", "comments are not supported", "leave it out; for a double minus put a blank between: '- -'"),
    ("/*", "comments are not supported", "leave the comment out"),
    ("//", "comments are not supported", "leave the comment out"),
    ("**", "'**' is not an operator", "there are only + - * /"),
    ("!", "'!' is not an operator", "write NOT"),
    ("&", "'&' is not an operator", "write AND"),
    ("|", "'|' is not an operator", "write OR"),
    ("%", "there is no remainder operator '%'", "there are only + - * /; as a wildcard it belongs into LIKE '…%'"),
    ("^", "'^' is not an operator", "there are only + - * /"),
    ("~", "'~' is not an operator", "write NOT for conditions, LIKE for patterns"),
    (";", "a selector is one condition without ';'", "leave it out"),
    ("?", "there are no parameters", "write the value"),
    (":", "there are no parameters", "write the value"),
    ("[", "there are no brackets in a selector", "names have none; write a list in parentheses: IN ('a', 'b')"),
    ("]", "there are no brackets in a selector", "names have none; write a list in parentheses: IN ('a', 'b')"),
    ("{", "there are no braces in a selector", "write the value in place of a parameter, and parentheses for a list"),
    ("}", "there are no braces in a selector", "write the value in place of a parameter, and parentheses for a list"),
    (".", "'.' is not allowed here", "a name has no dots, and a number with one has a digit beside it"),
    ("#", "comments are not supported, and '#' is no letter of a name", "leave it out"),
    ("@", "'@' is no letter of a name", "names have letters, digits, '_' and '$'"),
    ("\\", "there are no backslash escapes", "write a quote in a string twice: 'it''s'"),
)

_ONE_CHARACTER = frozenset("=<>+-*/(),")
_FOREIGN_PAIRS = frozenset(foreign[:2] for foreign, _, _ in _FOREIGN) - {"<="}


def identifier_end(text: str, start: int) -> int:
    """The end of the identifier that begins at `start`; `start` itself if none does (D-09)."""
    match = _ASCII_NAME.match(text, start)
    at = match.end() if match else start
    size = len(text)
    if at < size and text[at] >= "\x80":
        allowed = _PART if match else _START
        while at < size and category(text[at]) in allowed:
            at += 1
            allowed = _PART
        # the ASCII members of those categories are exactly A-Z a-z 0-9 _ $, so one loop serves a mixed name
    return at


def is_property_name(name: str) -> bool:
    """True if a selector of some dialect can name a property of that name (PRP-08)."""
    return bool(name) and identifier_end(name, 0) == len(name) and not _is_word(name, RESERVED)


def _is_word(name: str, words: frozenset[str]) -> bool:
    """True for a reserved word. Only an ASCII spelling is one, although ``"ı".upper()`` is ``"I"``."""
    return name.upper() in words and name.isascii()


def printed_name(name: str) -> str:
    """A name as a selector writes it: in double quotes if it is none by itself."""
    return name if is_property_name(name) else '"' + name.replace('"', '""') + '"'


def quoting_hint(text: str, start: int, dialect: Dialect) -> str:
    """The hint for a name with a character that no name has.

    Args:
        text: the selector.
        start: of the name.
        dialect: of the selector.
    """
    end = _REST.match(text, identifier_end(text, start)).end()  # type: ignore[union-attr]  # matches the empty text too
    name = f'"{_short(text[start:end])}"'
    if dialect.fields is not None:
        return f"such a name stands in double quotes: {name}"
    return f"only the dialect amqp has such names, in double quotes: {name}"


class Lexer:
    """Hands out the tokens of one text. ``next()`` after the end gives END again."""

    __slots__ = ("_at", "_dialect", "_fields", "_reserved", "_text")

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._reserved = dialect.reserved
        self._fields = dialect.fields
        self._at = 0

    def next(self) -> Token:
        """The next token.

        Raises:
            SelectorError: what stands there is no token; the error shows what to write instead (D-11).
        """
        text = self._text
        plain = _PLAIN.match(text, self._at)
        if plain is not None:
            found = plain[plain.lastindex or 0]
            self._at = end = plain.end()
            start = end - len(found)
            group = plain.lastindex
            if group == 1:
                upper = found.upper()
                if upper in self._reserved:
                    return Token(_WORD, upper, start, end)
                return Token(_NAME, found, start, end)
            if group == 4:
                return Token(_SYMBOL, found, start, end)
            if group == 2:
                return Token(_STRING_KIND, found, start, end, found[1:-1])
            return Token(_NUMBER, found, start, end, int(found))
        start = _BLANKS.match(text, self._at).end()  # type: ignore[union-attr]  # matches the empty text too
        if start == len(text):
            self._at = start
            return Token(TokenKind.END, "", start, start)
        end = identifier_end(text, start)
        if end > start:
            token = self._name(start, end)
        else:
            c = text[start]
            if c == "'":
                token = self._string(start)
            elif "0" <= c <= "9" or (c == "." and "0" <= text[start + 1 : start + 2] <= "9"):
                token = self._number(start)
            else:
                token = self._symbol(start)
        self._at = token.end
        return token

    def condition(self, start: int) -> re.Match[str] | None:
        """The rest of a plain condition, taken whole; its groups are those of the expression above. None, and nothing
        is taken, if there is something else.

        Args:
            start: behind the name with which it begins.
        """
        match = _CONDITION.match(self._text, start)
        if match is not None:
            self._at = match.end()
        return match

    def list_begins(self, start: int) -> re.Match[str] | None:
        """``[NOT] IN (`` at that place, with the NOT as its group; nothing is taken."""
        return _LIST.match(self._text, start)

    def strings(self, start: int) -> tuple[list[tuple[str, Span]], Token] | None:
        """The strings of a list, all at once, and its closing parenthesis, which becomes the latest token; None if
        there is anything else in it.

        Args:
            start: behind the opening parenthesis.
        """
        text, at = self._text, start
        found: list[tuple[str, Span]] = []
        whole = _ITEMS.match(text, start)
        if whole is None:
            return None
        if text.count("'", start, whole.end()) > 2 * LONG_LIST:
            span = whole.span()
            self._at = end = whole.end()
            raws = _STRING.findall(text, start, end)
            return [(raw[1:-1].replace("''", "'"), span) for raw in raws], Token(TokenKind.SYMBOL, ")", end - 1, end)
        while (match := _ITEM.match(text, at)) is not None:
            raw = match[1]
            found.append((raw[1:-1].replace("''", "'"), match.span(1)))
            at = match.end()
            if match[2] == ")":
                self._at = at
                return found, Token(TokenKind.SYMBOL, ")", at - 1, at)
        return None

    def chained_name(self, start: int) -> Token | None:
        """The name of the long chain ``(a = 1) OR (a = 2) OR …`` that may begin there.

        Args:
            start: of the first parenthesis.
        """
        match = _CHAIN_OF_PARENTHESES.match(self._text, start) if len(self._text) - start > 64 else None
        if match is None or identifier_end(match[1], 0) != len(match[1]) or match[1].upper() in self._reserved:
            return None
        return Token(TokenKind.NAME, match[1], *match.span(1))

    def equalities(self, start: int, name: str) -> tuple[list[str | int | float], Span] | None:
        """The constants of a long chain ``a = 1 OR a = 2 OR …`` that begins there, taken whole; None, and
        nothing is taken, if there is something else.

        Args:
            start: of the name, or of the parenthesis before it.
            name: that stands there.
        """
        text = self._text
        chain = _CHAIN_OF_PARENTHESES if text[start] == "(" else _CHAIN
        match = chain.match(text, start) if len(text) - start > 64 else None
        if match is None or match[1] != name:
            return None
        values: list[str | int | float] = [
            raw[1:-1].replace("''", "'") if raw[0] == "'" else float(raw) if "." in raw else int(raw.rstrip("lL"))
            for raw in _EQUALS.findall(text, start, match.end())
        ]
        self._at = match.end()
        return values, match.span()

    @property
    def text(self) -> str:
        return self._text

    def fail(self, message: str, span: Span, *, expected: str | None = None, hint: str | None = None) -> SelectorError:
        """A SelectorError about a part of this text, for the caller to raise."""
        return SelectorError(message, self._text, span[0], span[1] - span[0], expected=expected, hint=hint)

    def _name(self, start: int, end: int) -> Token:
        word = self._text[start:end]
        if _is_word(word, self._reserved):
            return Token(TokenKind.WORD, word.upper(), start, end)
        follows = self._text[end : end + 2]
        if self._fields is not None and follows == '."':
            return self._field(word, start, end + 1)
        if follows[:1] == "." and len(follows) == 2 and (follows[1].isalpha() or follows[1] == "_"):
            if self._fields is not None:
                return self._field(word, start, end + 1)
            raise self.fail(
                f"a name has no dots, but '.' follows '{_short(word)}'",
                (end, end + 1),
                hint=quoting_hint(self._text, start, self._dialect),
            )
        return Token(TokenKind.NAME, word, start, end)

    def _field(self, section: str, start: int, at: int) -> Token:
        """The field that a name in a section refers to; ``-`` equals ``_``."""
        assert self._fields is not None
        if section.lower() not in self._fields:
            raise self.fail(
                f"there is no section '{_short(section)}' that a selector can read",
                (start, at - 1),
                hint=f"there are {', '.join(self._fields)}; {quoting_hint(self._text, start, self._dialect)}",
            )
        fields = self._fields[section.lower()]
        if fields is None:
            if self._text[at] == '"':
                return self._quoted(start, at)
            end = identifier_end(self._text, at)
            return Token(TokenKind.NAME, self._text[at:end], start, end)
        for name, stands_for in fields.items():
            end = at + len(name)
            if self._text[at:end].replace("-", "_") == name and identifier_end(self._text, end) == end:
                return Token(TokenKind.NAME, stands_for, start, end)
        end = identifier_end(self._text, at)
        raise self.fail(
            f"a selector cannot read '{_short(self._text[at:end])}' of the section '{section}'",
            (start, end),
            hint=f"it can read {', '.join(fields)}",
        )

    def _quoted(self, start: int, at: int) -> Token:
        """A name in double quotes.

        Args:
            start: of the name with its section.
            at: the opening quote.
        """
        match = _QUOTED.match(self._text, at)
        if match is None:
            raise self.fail(
                "this name never ends",
                (at, at + 1),
                expected="a closing double quote",
                hint='names have double quotes, strings single ones; a double quote inside is written twice: "a""b"',
            )
        end = match.end()
        name = self._text[at + 1 : end - 1].replace('""', '"')
        if not name:
            raise self.fail("a name has at least one character", (at, end), hint="the empty string is ''")
        if self._text[end : end + 1] == ".":
            raise self.fail(
                "no '.' follows a name in double quotes", (end, end + 1), hint='the quotes enclose all of a name: "a.b"'
            )
        return Token(TokenKind.NAME, name, start, end, name)

    def _string(self, start: int) -> Token:
        match = _STRING.match(self._text, start)
        if match is None:
            raise self.fail(
                "this string never ends",
                (start, start + 1),
                expected="a closing quote",
                hint="a quote inside a string is written twice: 'it''s'",
            )
        raw = match.group()
        return Token(TokenKind.STRING, raw, start, match.end(), raw[1:-1].replace("''", "'"))

    def _symbol(self, start: int) -> Token:
        text = self._text
        c, pair = text[start], text[start : start + 2]
        if c in _ONE_CHARACTER and pair not in _FOREIGN_PAIRS:
            end = start + (2 if pair in ("<>", "<=", ">=") else 1)
            if text[end : end + 1] != ">" or c != "<":  # '<=>' is foreign
                return Token(TokenKind.SYMBOL, text[start:end], start, end)
        if pair == "!=" and self._fields is not None and text[start + 2 : start + 3] != "=":
            return Token(TokenKind.SYMBOL, "<>", start, start + 2)
        for foreign, message, hint in _FOREIGN:
            if text.startswith(foreign, start):
                raise self.fail(message, (start, start + len(foreign)), hint=hint)
        if c == '"' and self._fields is not None:
            return self._quoted(start, start)
        if c in _DOUBLE_QUOTES:
            close = next((at for at in range(start + 1, len(text)) if text[at] in _DOUBLE_QUOTES), start)
            raise self.fail(
                "double quotes mean nothing in a selector",
                (start, close + 1),
                hint="a string has single quotes: 'text'; names have none, except in the dialect amqp",
            )
        if c in _QUOTES:
            raise self.fail(
                f"{c} is not the quote that encloses strings",
                (start, start + 1),
                hint="write the plain quote: 'text'; names have none",
            )
        if c.isspace() or category(c) in ("Zs", "Cf", "Cc"):
            raise self.fail(
                f"the character U+{ord(c):04X} is not white space in a selector",
                (start, start + 1),
                hint="write a plain blank",
            )
        raise self.fail(f"'{c}' (U+{ord(c):04X}) has no meaning in a selector", (start, start + 1))

    def _number(self, start: int) -> Token:
        text = self._text
        for pattern, read in ((_HEX_FLOATING, self._floating), (_FLOATING, self._floating), (_INTEGER, self._integer)):
            match = pattern.match(text, start)
            if match:
                end = match.end()
                if end < len(text) and (text[end] in ".0123456789" or identifier_end(text, end) > end):
                    break  # 5px, 1_, 0x: SQL-92 wants a separator between a number and a word
                return Token(TokenKind.NUMBER, text[start:end], start, end, read(text[start:end], (start, end)))
        end = _NUMBER_LIKE.match(text, start).end()  # type: ignore[union-attr]  # begins with a digit or a dot
        literal = text[start:end]
        raise self.fail(f"'{_short(literal)}' is not a number", (start, end), hint=_number_hint(literal))

    def _integer(self, literal: str, span: Span) -> int:
        """Java's integer syntax read as a mathematical value (D-10): 0xFFFFFFFF is 4294967295, not -1."""
        digits = literal.replace("_", "")
        is_long = digits[-1] in "lL"
        if is_long:
            digits = digits[:-1]
        lead = digits[:2].lower()
        base = 16 if lead == "0x" else 2 if lead == "0b" else 8 if len(digits) > 1 and digits[0] == "0" else 10
        digits = (digits[2:] if base in (16, 2) else digits).lstrip("0") or "0"
        if base == 8 and ("8" in digits or "9" in digits):
            raise self.fail(
                f"'{_short(literal)}' has a leading 0, so it is octal, and octal has no digits 8 and 9",
                span,
                hint="leave out the leading 0",
            )
        # the length first: int() takes quadratic time
        value = int(digits, base) if len(digits) <= 64 else LONG_MAX + 2
        if value > LONG_MAX + 1:
            raise self.out_of_range(literal, span)
        if value == LONG_MAX + 1:
            return value  # the parser joins it with a minus sign, or refuses it
        return Long(value) if is_long and value <= INT_MAX else value

    def out_of_range(self, literal: str, span: Span) -> SelectorError:
        """The error for an integer literal that does not fit a long (D-10)."""
        return self.fail(
            f"{_short(literal)} is beyond the range of a long, {LONG_MIN} to {LONG_MAX}",
            span,
            hint="write an approximate number, such as 1E20",
        )

    def _floating(self, literal: str, span: Span) -> float:
        """Java's floating syntax; a double unless the suffix is f (D-10)."""
        digits = literal.replace("_", "")
        hexadecimal = digits[:2] in ("0x", "0X")
        single = digits[-1] in "fF"
        if digits[-1] in "fFdD":
            digits = digits[:-1]
        try:
            value = float.fromhex(digits) if hexadecimal else float(digits)
        except OverflowError:
            value = float("inf")
        mantissa = re.split("[pP]" if hexadecimal else "[eE]", digits)[0]
        is_zero = not mantissa[2 if hexadecimal else 0 :].strip("0.")
        result = Float(value) if single else value
        if isinf(result) or (result == 0 and not is_zero):
            size = "large" if isinf(result) else "small"
            raise self.fail(f"{_short(literal)} is too {size} for a {'float' if single else 'double'}", span)
        return result


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _number_hint(literal: str) -> str | None:
    if literal.endswith("_") or "_." in literal or "._" in literal:
        return "'_' may only stand between digits"
    if literal.count(".") > 1:
        return "one decimal point at most"
    if literal[:2] in ("0x", "0X"):
        return "hexadecimal digits are 0-9 and A-F"
    if literal[:2] in ("0b", "0B"):
        return "binary digits are 0 and 1"
    if literal[-1:] in ("e", "E"):
        return "digits are missing after the E"
    return "a name begins with a letter; between a number and a word stands a blank"
