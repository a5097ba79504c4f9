"""docs/porting-from-java.md: its programs print what it says, its table is made from the code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.behaviour.rules import porting_table

import sievemq
from sievemq_broker import EmbeddedBroker

from .programs import output_of, programs_of

TEXT = porting_table.DOCUMENT.read_text(encoding="utf-8")
PROGRAMS = programs_of(TEXT)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_there_are_two_programs_each_beside_its_java() -> None:
    assert len(PROGRAMS) == TEXT.count("```java") == TEXT.count("```python") == 2


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=["classic", "simplified"])
def test_programs_print_the_shown_output(broker: EmbeddedBroker, program: str, printed: str) -> None:
    assert output_of(program, broker.url) == printed


def test_the_table_matches_the_code() -> None:
    written = TEXT.split(porting_table.BEGIN)[1].split(porting_table.END)[0]
    assert written == porting_table.table(), "run python tests/behaviour/rules/porting_table.py"


def test_every_class_of_the_api_is_in_it() -> None:
    """But what is Python's own: value wrappers, Selector, errors that Java has in java.lang."""
    own = {
        "Byte", "Char", "Double", "Float", "Int", "Long", "Short", "Selector", "register_type", "InvalidURLException",
        "NullValueError", "NumberFormatError", "UnsupportedOperationError", "Destination", "DeliveryMode",
        "Json", "SessionMode", "SieveMQWarning", "WildcardWarning", "DestinationNameWarning", "DoubtfulSelectorWarning",
        "Header", "Listeners", "Property", "Reject", "Retry",
    }  # fmt: skip
    for name in set(sievemq.__all__) - own:
        assert f"| **{name}** |" in TEXT or f"| `{name}` |" in TEXT, name
    assert own <= set(sievemq.__all__)


def test_java_names() -> None:
    assert porting_table.java_name("get_jms_correlation_id_as_bytes") == "getJMSCorrelationIDAsBytes"
    assert porting_table.java_name("get_jmsx_property_names") == "getJMSXPropertyNames"
    assert (porting_table.java_name("read_utf"), porting_table.java_name("close")) == ("readUTF", "close")
