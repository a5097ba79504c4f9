"""Sections 21 and 23.6: the conversion tables cell by cell (CNV, NUL), on properties, entries and fields.

The tables below are written out from the specification (§3.5.4, §3.11.3), not taken from the code.
"""

from __future__ import annotations

import math

import pytest

from sievemq import MapMessage, Message, MessageFormatException, NullValueError, NumberFormatError, StreamMessage

COLUMNS = ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes"]
ROWS = {
    #          boolean byte  short char  int   long  float double string bytes
    "boolean": ["x",   "",   "",   "",   "",   "",   "",   "",    "x",   ""],
    "byte":    ["",    "x",  "x",  "",   "x",  "x",  "",   "",    "x",   ""],
    "short":   ["",    "",   "x",  "",   "x",  "x",  "",   "",    "x",   ""],
    "char":    ["",    "",   "",   "x",  "",   "",   "",   "",    "x",   ""],
    "int":     ["",    "",   "",   "",   "x",  "x",  "",   "",    "x",   ""],
    "long":    ["",    "",   "",   "",   "",   "x",  "",   "",    "x",   ""],
    "float":   ["",    "",   "",   "",   "",   "",   "x",  "x",   "x",   ""],
    "double":  ["",    "",   "",   "",   "",   "",   "",   "x",   "x",   ""],
    "string":  ["x",   "p",  "p",  "",   "p",  "p",  "p",  "p",   "x",   ""],
    "bytes":   ["",    "",   "",   "",   "",   "",   "",   "",    "",    "x"],
}  # fmt: skip
CELLS = [(row, column, ROWS[row][n]) for row in ROWS for n, column in enumerate(COLUMNS)]
PROPERTY_CELLS = [cell for cell in CELLS if not {"char", "bytes"} & set(cell[:2])]

#: a value of each type that every wider type holds too, and as text
SAMPLE = {
    "boolean": True, "byte": 7, "short": 7, "char": "7", "int": 7, "long": 7, "float": 0.5, "double": 0.5,
    "string": "7", "bytes": b"7",
}  # fmt: skip
TEXT = {"boolean": "true", "byte": "7", "short": "7", "char": "7", "int": "7", "long": "7", "float": "0.5",
        "double": "0.5", "string": "7"}  # fmt: skip


def expected(row: str, column: str) -> object:
    if column == "string":
        return TEXT[row]
    if row == "string":
        return {"boolean": False, "float": 7.0, "double": 7.0}.get(column, 7)
    return SAMPLE[row]


def in_property(kind: str, value: object) -> Message:
    message = Message()
    getattr(message, f"set_{kind}_property")("p", value)
    return message


def in_entry(kind: str, value: object) -> MapMessage:
    message = MapMessage()
    getattr(message, f"set_{kind}")("p", value)
    return message


def in_field(kind: str, value: object) -> StreamMessage:
    message = StreamMessage()
    getattr(message, f"write_{kind}")(value)
    message.reset()
    return message


def read(message: Message, kind: str) -> object:
    if isinstance(message, MapMessage):
        return getattr(message, f"get_{kind}")("p")
    if isinstance(message, StreamMessage):
        if kind == "bytes":
            return message.read_object()
        return getattr(message, f"read_{kind}")()
    return getattr(message, f"get_{kind}_property")("p")


@pytest.mark.parametrize(("row", "column", "cell"), PROPERTY_CELLS)
def test_prp_03_the_table_of_properties(row, column, cell, deliver):
    for message in (in_property(row, SAMPLE[row]), deliver(in_property(row, SAMPLE[row]))):
        if cell:
            value = read(message, column)
            assert value == expected(row, column)
            assert type(value) is type(expected(row, column))
        else:
            with pytest.raises(MessageFormatException, match=r"property 'p': .* cannot be read as"):
                read(message, column)


@pytest.mark.parametrize(("row", "column", "cell"), CELLS)
def test_map_04_str_04_nul_09_the_table_of_entries_and_fields(row, column, cell, deliver):
    for make in (in_entry, in_field):
        if make is in_field and column == "bytes":
            continue  # no read_bytes by this table: see STR-06 to STR-13
        for message in (make(row, SAMPLE[row]), deliver(make(row, SAMPLE[row]))):
            if cell:
                value = read(message, column)
                assert value == expected(row, column)
                assert type(value) is type(expected(row, column))
            else:
                with pytest.raises(MessageFormatException, match="cannot be read as"):
                    read(message, column)


@pytest.mark.parametrize(("row", "column"), [(row, column) for row, column, cell in CELLS if cell == "p"])
@pytest.mark.parametrize("make", [in_property, in_entry, in_field])
def test_cnv_02_cnv_03_text_that_is_no_number(make, row, column):
    with pytest.raises(NumberFormatError):
        read(make(row, "seven"), column)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("tRuE", True), ("false", False), ("1", False), ("yes", False), ("", False),
     (" true", False), ("truee", False)],
)  # fmt: skip
@pytest.mark.parametrize("make", [in_property, in_entry, in_field])
def test_cnv_01_nul_12_text_as_boolean_never_fails(make, text, value):
    assert read(make("string", text), "boolean") is value


@pytest.mark.parametrize(("kind", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
def test_cnv_02_text_as_integer(kind, bits):
    top = 2 ** (bits - 1)
    for text, value in (
        ("0", 0), ("7", 7), ("+7", 7), ("-7", -7), ("007", 7), ("-0", 0), (str(top - 1), top - 1), (str(-top), -top),
        ("0" * 5000 + "7", 7),
    ):  # fmt: skip
        assert read(in_property("string", text), kind) == value
    for text in (
        "", "+", "-", " 7", "7 ", "1_0", "0x7", "1.0", "1e3", "7L", "--7", "+-7", "seven", "٣", "７", "7\n", str(top),
        str(-top - 1), "9" * 100_000,
    ):  # fmt: skip
        with pytest.raises(NumberFormatError):
            read(in_property("string", text), kind)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_cnv_03_text_as_floating(kind):
    for text, value in (
        ("1", 1.0), ("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E-3", 0.001), ("-1.5f", -1.5),
        ("1.5D", 1.5), ("+2d", 2.0), ("  1.5\t\n", 1.5), ("Infinity", math.inf), ("-Infinity", -math.inf),
        ("0x1.8p1", 3.0), ("0xAp0", 10.0), ("1e400", math.inf), ("-1e400", -math.inf), ("0x1p99999", math.inf),
        ("1e-400", 0.0), ("0x1.8p1f", 3.0),
    ):  # fmt: skip
        read_value = read(in_property("string", text), kind)
        assert read_value == pytest.approx(value, rel=1e-7) if math.isfinite(value) else read_value == value
    for text in ("NaN", "+NaN", "-NaN"):
        assert math.isnan(read(in_property("string", text), kind))
    for text in (
        "", " ", ".", "e3", "1e", "1_0", "inf", "nan", "infinity", "INFINITY", "1.5x", "1 5", "0x1", "0x1.8", "1.5ff",
        "1,5", "\u00a01", "١", "--1", "NaNf",
    ):  # fmt: skip
        with pytest.raises(NumberFormatError):
            read(in_property("string", text), kind)


def test_cnv_03_text_as_float_is_rounded_once():
    # 1 + 2^-24 lies between two singles; a digit far behind decides, which a double does not hold
    between = "1.000000059604644775390625"
    assert read(in_property("string", between), "float") == 1.0
    assert read(in_property("string", between + "0" * 40 + "1"), "float") == 1.0000001192092896
    assert read(in_property("string", "-" + between + "0" * 40 + "1"), "float") == -1.0000001192092896
    assert read(in_property("string", "1.5e-46"), "float") == 0.0
    assert read(in_property("string", "1e39"), "float") == math.inf


def test_cnv_04_boolean_as_text():
    assert (read(in_property("boolean", True), "string"), read(in_property("boolean", False), "string")) == (
        "true",
        "false",
    )


def test_cnv_05_integers_as_text():
    for kind, value in (("byte", -128), ("short", 32767), ("int", -(2**31)), ("long", 2**63 - 1), ("long", 5)):
        assert read(in_property(kind, value), "string") == str(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (10.0, "10.0"), (100.5, "100.5"), (0.1, "0.1"), (0.001, "0.001"),
        (0.00123, "0.00123"), (0.0001, "1.0E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (6.02e23, "6.02E23"), (1e100, "1.0E100"), (-1.5e-7, "-1.5E-7"), (5e-324, "4.9E-324"), (2e23, "2.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (1 / 3, "0.3333333333333333"), (123456.789, "123456.789"),
        (math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN"),
    ],
)  # fmt: skip
def test_cnv_06_double_as_text_is_java_text(value, text):
    assert read(in_property("double", value), "string") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"), (1 / 3, "0.33333334"), (1.5, "1.5"), (16777216.0, "1.6777216E7"),
        (3.4028234663852886e38, "3.4028235E38"),
        (1.401298464324817e-45, "1.4E-45"), (-0.0, "-0.0"), (1e10, "1.0E10"), (0.001, "0.001"), (100.0, "100.0"),
    ],
)  # fmt: skip
def test_cnv_06_float_as_text_is_java_text(value, text):
    assert read(in_property("float", value), "string") == text


def test_cnv_07_nul_01_null_as_boolean_is_false():
    assert Message().get_boolean_property("p") is False
    for make in (in_property, in_entry, in_field):
        assert read(make("string", None), "boolean") is False


@pytest.mark.parametrize("kind", ["byte", "short", "int", "long"])
def test_cnv_08_nul_02_null_as_integer(kind):
    for message in (
        Message(), MapMessage(), in_property("string", None), in_entry("string", None), in_field("string", None),
    ):  # fmt: skip
        with pytest.raises(NumberFormatError):
            read(message, kind)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_cnv_09_nul_03_null_as_floating(kind):
    for message in (
        Message(), MapMessage(), in_property("string", None), in_entry("string", None), in_field("string", None),
    ):  # fmt: skip
        with pytest.raises(NullValueError):
            read(message, kind)


def test_cnv_10_nul_05_null_as_text_object_and_bytes():
    for kind in ("string", "object"):
        assert read(Message(), kind) is None
        for make in (in_property, in_entry, in_field):
            assert read(make("string", None), kind) is None
    assert read(in_entry("bytes", None), "bytes") is None
    assert read(MapMessage(), "bytes") is None


def test_cnv_11_there_is_no_narrowing():
    for wide, narrow in (("int", "short"), ("int", "byte"), ("long", "int"), ("short", "byte"), ("double", "float")):
        for make in (in_property, in_entry, in_field):
            with pytest.raises(MessageFormatException):
                read(make(wide, 5), narrow)


def test_cnv_12_integers_and_floats_do_not_cross():
    for one, other in (("int", "double"), ("float", "int"), ("long", "float"), ("double", "long")):
        for make in (in_property, in_entry, in_field):
            with pytest.raises(MessageFormatException):
                read(make(one, 5), other)


def test_cnv_13_a_float_as_double_is_the_widened_single():
    for make in (in_property, in_entry, in_field):
        assert read(make("float", 0.1), "double") == 0.10000000149011612


@pytest.mark.parametrize("make", [in_entry, in_field])
def test_nul_04_null_as_char(make):
    with pytest.raises(NullValueError):
        read(make("string", None), "char")


@pytest.mark.parametrize("make", [in_entry, in_field])
def test_nul_06_text_is_no_char(make):
    with pytest.raises(MessageFormatException):
        read(make("string", "x"), "char")


@pytest.mark.parametrize("make", [in_entry, in_field])
def test_nul_07_bytes_and_text_never_meet(make):
    with pytest.raises(MessageFormatException):
        read(make("bytes", b"x"), "string")
    with pytest.raises(MessageFormatException):
        in_entry("string", "x").get_bytes("p")


@pytest.mark.parametrize("make", [in_entry, in_field])
def test_nul_08_a_char_is_no_int(make):
    with pytest.raises(MessageFormatException):
        read(make("char", "7"), "int")


def test_nul_10_bytes_messages_have_no_table():
    from sievemq import BytesMessage

    message = BytesMessage()
    message.write_float(1.0)
    message.reset()
    assert message.read_int() == 0x3F800000


def test_nul_13_bytes_are_copied_out():
    message = in_entry("bytes", bytearray(b"abc"))
    value = message.get_bytes("p")
    assert isinstance(value, bytes)  # which nobody can change
