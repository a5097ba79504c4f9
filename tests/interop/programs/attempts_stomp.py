"""A worker of stomp.py: see tests/interop/attempts.py."""

import os
import queue
import sys
from urllib.parse import urlsplit

import stomp

SOON = 20


class Inbox(stomp.ConnectionListener):
    def __init__(self):
        self.messages, self.receipts = queue.Queue(), queue.Queue()

    def on_message(self, frame):
        self.messages.put(frame)

    def on_receipt(self, frame):
        self.receipts.put(frame)


def subscribed():
    inbox, port = Inbox(), urlsplit(os.environ["BROKER_URL"]).port
    connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    connection.set_listener("", inbox)
    connection.connect(wait=True)
    prefetch = {"prefetch-count": os.environ["PREFETCH"]}
    connection.subscribe("/queue/jobs", id="1", ack="client-individual", headers=prefetch)
    return connection, inbox


def work(inbox):
    print("working", inbox.messages.get(timeout=SOON).body, flush=True)
    sys.stdin.readline()


connection, inbox = subscribed()
for _ in range(int(os.environ["HANDLE"])):
    frame = inbox.messages.get(timeout=SOON)
    connection.ack(frame.headers["ack"], receipt="done")
    inbox.receipts.get(timeout=SOON)
    print("handled", frame.body)
work(inbox)
match os.environ["END"]:
    case "unsubscribe":
        connection.unsubscribe("1", receipt="bye")
        inbox.receipts.get(timeout=SOON)
        connection.disconnect()
    case "disconnect":
        connection.disconnect()
    case "return":
        connection, inbox = subscribed()
        work(inbox)
os._exit(0)
