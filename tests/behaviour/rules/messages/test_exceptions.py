"""Section 2 of the API map: the exception trees (EXC), and section 1's mirror of Java's own errors (PY)."""

from __future__ import annotations

import pickle
import re

import pytest

import sievemq
from sievemq import (
    BytesMessage,
    IllegalStateException,
    IllegalStateRuntimeException,
    InvalidDestinationException,
    InvalidSelectorException,
    InvalidSelectorRuntimeException,
    JMSException,
    JMSRuntimeException,
    JMSSecurityException,
    MapMessage,
    Message,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
    NumberFormatError,
    Queue,
    ResourceAllocationException,
    Selector,
    StreamMessage,
    TransactionRolledBackException,
    UnsupportedOperationError,
)
from sievemq.exceptions import exception_for, from_core, runtime_twin
from sievemq_core.errors import ErrorCode, FormatError, RequestError
from sievemq_core.errors import NumberFormatError as CoreNumberFormatError
from sievemq_core.selector import SelectorError

CHECKED = [
    "IllegalState", "InvalidClientID", "InvalidDestination", "InvalidSelector", "JMSSecurity", "MessageEOF",
    "MessageFormat", "MessageNotReadable", "MessageNotWriteable", "ResourceAllocation", "TransactionInProgress",
    "TransactionRolledBack",
]  # fmt: skip
WITHOUT_TWIN = {"MessageEOF", "MessageNotReadable"}
PAIRS = [
    (getattr(sievemq, f"{name}Exception"), getattr(sievemq, f"{name}RuntimeException"))
    for name in CHECKED
    if name not in WITHOUT_TWIN
]


@pytest.mark.parametrize("name", CHECKED)
def test_exc_01_every_checked_class_is_a_jms_exception(name):
    assert issubclass(getattr(sievemq, f"{name}Exception"), JMSException)


def test_exc_01_a_failure_without_a_closer_class_is_a_plain_jms_exception():
    for code in ErrorCode:
        closer = type(exception_for(code, "x")) is not JMSException
        assert closer or code in {
            ErrorCode.INTERNAL, ErrorCode.MALFORMED_FRAME, ErrorCode.FRAME_TOO_LARGE,
            ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_COMMAND, ErrorCode.UNEXPECTED_COMMAND,
            ErrorCode.HEARTBEAT_MISSED, ErrorCode.SHUTTING_DOWN, ErrorCode.CLOSED_BY_ADMINISTRATOR,
            ErrorCode.REDIRECT, ErrorCode.UNAVAILABLE,
        }, code  # fmt: skip


@pytest.mark.parametrize(("checked", "runtime"), PAIRS)
def test_py_21_a_runtime_twin_is_caught_by_both_styles(checked, runtime):
    for style in (checked, runtime, JMSException, JMSRuntimeException, RuntimeError):
        with pytest.raises(style):
            raise runtime("x")
    assert not issubclass(checked, JMSRuntimeException)


@pytest.mark.parametrize("name", sorted(WITHOUT_TWIN))
def test_exc_07_exc_09_checked_only_exceptions_have_no_runtime_twin(name):
    assert not hasattr(sievemq, f"{name}RuntimeException")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param(ErrorCode.ILLEGAL_STATE, IllegalStateException, id="EXC-02"),
        pytest.param(ErrorCode.INVALID_CLIENT_ID, sievemq.InvalidClientIDException, id="EXC-03"),
        pytest.param(ErrorCode.INVALID_DESTINATION, InvalidDestinationException, id="EXC-04"),
        pytest.param(ErrorCode.NOT_FOUND, InvalidDestinationException, id="EXC-04 unknown subscription"),
        pytest.param(ErrorCode.INVALID_SELECTOR, InvalidSelectorException, id="EXC-05"),
        pytest.param(ErrorCode.AUTHENTICATION, JMSSecurityException, id="EXC-06"),
        pytest.param(ErrorCode.SECURITY, JMSSecurityException, id="EXC-06 refused"),
        pytest.param(ErrorCode.MESSAGE_FORMAT, MessageFormatException, id="EXC-08"),
        pytest.param(ErrorCode.RESOURCE_ALLOCATION, ResourceAllocationException, id="EXC-11"),
        pytest.param(ErrorCode.TRANSACTION_ROLLED_BACK, TransactionRolledBackException, id="EXC-13"),
        pytest.param(999, JMSException, id="EXC-01 unknown code"),
    ],
)
def test_a_code_of_the_wire_becomes_its_class_in_both_trees(code, kind):
    checked, runtime = exception_for(code, "said why"), exception_for(code, "said why", runtime=True)
    assert type(checked) is kind
    assert isinstance(runtime, kind)
    assert isinstance(runtime, JMSRuntimeException)
    assert str(checked).startswith("said why")
    assert checked.get_error_code() == (ErrorCode(code).name if code != 999 else "INTERNAL")


def test_details_of_an_error_are_kept_read_only():
    error = exception_for(ErrorCode.RESOURCE_ALLOCATION, "full", {"limit": 10})
    assert error.details["limit"] == 10
    with pytest.raises(TypeError):
        error.details["limit"] = 11
    assert JMSException("x").details == {}


def test_exc_05_a_selector_error_shows_where():
    with pytest.raises(InvalidSelectorException) as raised:
        Selector("price >> 3")
    error = raised.value
    text = "price >> 3"
    assert (error.selector, error.position) == (text, 7)
    assert re.search(rf"{re.escape(text)}\n\s*\^", str(error))
    assert isinstance(error.__cause__, SelectorError)
    # and the same when it comes over the wire, in either tree
    for runtime in (False, True):
        again = exception_for(error.__cause__.code, error.__cause__.text, error.__cause__.details, runtime)
        assert isinstance(again, InvalidSelectorRuntimeException) is runtime
        assert (again.selector, again.position, again.hint, str(again)) == (text, 7, error.hint, str(error))


def test_exc_07_reading_past_the_end():
    message = BytesMessage(b"1")
    message.reset()
    with pytest.raises(MessageEOFException):
        message.read_int()


def test_exc_08_a_forbidden_conversion():
    with pytest.raises(MessageFormatException, match="property 'n': an int cannot be read as a short"):
        Message(properties={"n": 1}).get_short_property("n")


def test_exc_09_reading_a_write_only_body():
    with pytest.raises(MessageNotReadableException):
        StreamMessage([1]).read_int()


def test_exc_10_writing_a_read_only_body():
    message = StreamMessage()
    message.reset()
    with pytest.raises(MessageNotWriteableException):
        message.write_int(1)


def test_exc_12_transaction_in_progress_exists_in_both_trees():
    assert issubclass(sievemq.TransactionInProgressRuntimeException, sievemq.TransactionInProgressException)


@pytest.mark.parametrize("name", ["JMS", *CHECKED])
def test_exc_14_constructors_of_the_checked_tree(name):
    kind, cause = getattr(sievemq, f"{name}Exception"), OSError("why")
    for error, code, linked in (
        (kind("r"), None, None),
        (kind("r", "E1"), "E1", None),
        (kind("r", "E1", cause), "E1", cause),
        (kind(reason="r", error_code="E1", linked_exception=cause), "E1", cause),
    ):
        assert (str(error), error.get_error_code(), error.get_linked_exception()) == ("r", code, linked)
    assert str(kind()) == ""


@pytest.mark.parametrize("name", ["JMS", *(name for name in CHECKED if name not in WITHOUT_TWIN)])
def test_exc_15_constructors_of_the_runtime_tree(name):
    kind, cause = getattr(sievemq, f"{name}RuntimeException"), OSError("why")
    for error, code, linked in (
        (kind("r"), None, None),
        (kind("r", "E1"), "E1", None),
        (kind("r", "E1", cause), "E1", cause),
        (kind(detail_message="r", error_code="E1", cause=cause), "E1", cause),
    ):
        assert (str(error), error.get_error_code(), error.__cause__) == ("r", code, linked)


def test_exc_16_the_error_code_is_text_or_none():
    assert JMSException("r").get_error_code() is None
    assert JMSException("r", "E1").get_error_code() == "E1"


def test_exc_17_the_linked_exception_is_the_cause():
    error, cause = JMSException("r"), OSError("why")
    assert error.get_linked_exception() is None
    error.set_linked_exception(cause)
    assert error.__cause__ is cause
    error.set_linked_exception(None)
    assert error.__cause__ is None
    with pytest.raises(JMSException) as raised:
        raise JMSException("r") from cause
    assert raised.value.get_linked_exception() is cause


def test_exc_18_errors_that_are_not_jms_exceptions():
    with pytest.raises(ValueError):
        Message().set_int_property("", 1)
    with pytest.raises(ValueError):
        MapMessage().set_int("", 1)
    with pytest.raises(NumberFormatError):
        Message().get_int_property("absent")
    with pytest.raises(NullValueError):
        Message().get_double_property("absent")
    message = BytesMessage(b"abc")
    message.reset()
    with pytest.raises(IndexError):
        message.read_bytes(bytearray(2), 3)
    for kind in (NumberFormatError, NullValueError, UnsupportedOperationError):
        assert not issubclass(kind, JMSException)


def test_exc_19_a_subclass_is_caught_as_its_base_and_has_its_twin():
    class Poisoned(IllegalStateException):
        """A provider's own."""

    twin = runtime_twin(Poisoned("r", "E1", OSError("why")))
    assert type(twin) is IllegalStateRuntimeException
    assert (str(twin), twin.get_error_code(), str(twin.get_linked_exception())) == ("r", "E1", "why")


@pytest.mark.parametrize(("checked", "runtime"), [(JMSException, JMSRuntimeException), *PAIRS])
def test_the_twin_of_every_class(checked, runtime):
    assert type(runtime_twin(checked("r"))) is runtime
    error = runtime("r")
    assert runtime_twin(error) is error


def test_the_twin_of_a_class_without_one_is_the_root():
    assert type(runtime_twin(MessageEOFException("r"))) is JMSRuntimeException


def test_the_twin_of_a_selector_error_keeps_its_attributes():
    with pytest.raises(InvalidSelectorException) as raised:
        Selector("a >")
    twin = runtime_twin(raised.value)
    assert isinstance(twin, InvalidSelectorRuntimeException)
    assert (twin.position, twin.selector, twin.details) == (3, "a >", raised.value.details)


def test_errors_of_the_core_become_errors_of_the_api():
    cause = RequestError("taken", ErrorCode.INVALID_CLIENT_ID)
    error = from_core(cause, runtime=True)
    assert type(error) is sievemq.InvalidClientIDRuntimeException
    assert error.__cause__ is cause
    assert type(from_core(FormatError("x"))) is MessageFormatException
    number = CoreNumberFormatError("x")
    assert from_core(number) is number


def test_exceptions_survive_pickling_as_a_pool_of_processes_does():
    error = exception_for(ErrorCode.INVALID_SELECTOR, "x", {"position": 3, "selector": "a >", "message": "m"})
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.position, dict(again.details)) == (
        type(error), str(error), 3, dict(error.details),
    )  # fmt: skip


# -- Java's own errors ------------------------------------------------------------------------------------------------


def test_py_16_an_illegal_argument_is_a_value_error():
    with pytest.raises(ValueError):
        Message().set_string_property("", "x")


def test_py_17_number_format_error_is_a_value_error():
    with pytest.raises(ValueError):
        Message(properties={"n": "x"}).get_int_property("n")
    assert issubclass(NumberFormatError, ValueError)


def test_py_18_null_value_error_is_a_type_error():
    assert issubclass(NullValueError, TypeError)
    with pytest.raises(NullValueError):
        BytesMessage().write_int(None)


def test_py_19_unsupported_operation_is_a_not_implemented_error():
    assert issubclass(UnsupportedOperationError, NotImplementedError)
    assert not issubclass(UnsupportedOperationError, JMSException)


def test_py_20_index_out_of_bounds_is_an_index_error():
    with pytest.raises(IndexError):
        BytesMessage().write_bytes(b"abc", 2, 5)


def test_exc_04_a_destination_without_a_name():
    for name in (None, "", " x"):
        with pytest.raises(InvalidDestinationException):
            Queue(name)
