"""python-qpid-proton against the broker whose URL is AMQP_URL: a line of TAP for each step."""

import os

from proton import Message
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection, LinkDetached

SOON = 20


def outcomes(connection):
    sender, receiver = connection.create_sender("outcomes"), connection.create_receiver("outcomes", credit=1)
    sender.send(Message(body="x"))
    assert receiver.receive(SOON).delivery_count == 0
    receiver.release(delivered=False)
    assert receiver.receive(SOON).body == "x"
    receiver.reject()
    dead = connection.create_receiver("DLQ.outcomes", credit=1)
    assert dead.receive(SOON).properties["JMS_SieveMQ_DeadLetterOrigin"] == "queue:outcomes"
    dead.accept()


def selectors(connection):
    sender = connection.create_sender("selectors")
    for number in range(5):
        sender.send(Message(body=str(number), properties={"n": number}))
    receiver = connection.create_receiver("selectors", credit=5, options=Selector("n > 2"))
    assert [receiver.receive(SOON).body, receiver.receive(SOON).body] == ["3", "4"]
    refused = None
    try:
        connection.create_receiver("selectors", name="bad", options=Selector("n > > 2"))
    except LinkDetached as error:
        refused = error.condition
    assert refused == "amqp:invalid-field", refused


def sections(connection):
    sent = Message(body={"a": [1, {"b": b"c"}]}, annotations={"x-opt-mine": 1}, content_encoding="gzip", user_id=b"u")
    connection.create_sender("sections").send(sent)
    found = connection.create_receiver("sections", credit=1).receive(SOON)
    assert found.body == sent.body, found.body
    assert (found.annotations, found.content_encoding, found.user_id) == ({"x-opt-mine": 1}, "gzip", b"u")


def large(connection):
    connection.create_sender("large").send(Message(body=b"x" * 3_000_000))
    assert len(connection.create_receiver("large", credit=1).receive(SOON).body) == 3_000_000


def browser(connection):
    connection.create_sender("browser").send(Message(body="x"))
    assert connection.create_receiver("browser", name="look", credit=1, options=Copy()).receive(SOON).body == "x"
    assert connection.create_receiver("browser", credit=1).receive(SOON).body == "x"


def topic(connection):
    first, second = (connection.create_receiver("topic:t", name=name, credit=1) for name in "ab")
    connection.create_sender("topic:t").send(Message(body="x"))
    assert [first.receive(SOON).body, second.receive(SOON).body] == ["x", "x"]


def temporary(connection):
    receiver = connection.create_receiver(None, dynamic=True, credit=1)
    connection.create_sender(receiver.link.remote_source.address).send(Message(body="x"))
    assert receiver.receive(SOON).body == "x"


for name, step in (
    ("accept, release, reject", outcomes), ("a selector decides, and a wrong one is refused", selectors),
    ("sections arrive as they were sent", sections), ("a message in several transfers", large),
    ("a browser", browser), ("a topic", topic), ("a dynamic node", temporary),
):  # fmt: skip
    try:
        connection = BlockingConnection(os.environ["AMQP_URL"], timeout=SOON)
        step(connection)
        connection.close()
        print("ok -", name)
    except Exception as error:
        print("not ok -", name, "#", repr(error))
