"""A client of stomp.py whose broker changes: see tests/interop/takeovers.py."""

import os
import sys
import threading

import stomp

SOON = 2.0
BETWEEN_SENDS, BETWEEN_ROUNDS = 0.002, 0.1

HOSTS = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in os.environ["BROKERS"].split(","))]

said = threading.Lock()
enough = threading.Event()


def say(line):
    with said:
        print(line, flush=True)


class Inbox(stomp.ConnectionListener):
    def __init__(self, connection):
        self.connection = connection
        self.connected, self.lost = threading.Event(), threading.Event()
        self.receipts = set()
        self.changed = threading.Condition()

    def on_connected(self, frame):
        self.connected.set()

    def on_message(self, frame):
        say(("again " if frame.headers.get("redelivered") == "true" else "got ") + frame.body)
        self.connection.ack(frame.headers["ack"])

    def on_receipt(self, frame):
        with self.changed:
            self.receipts.add(frame.headers["receipt-id"])
            self.changed.notify()

    def on_disconnected(self):
        with self.changed:
            self.lost.set()
            self.changed.notify()

    def send(self, number):
        """True once the broker has confirmed it."""
        with self.changed:
            self.connection.send("/queue/orders", str(number), persistent="true", receipt=f"r{number}")
            self.changed.wait_for(lambda: f"r{number}" in self.receipts or self.lost.is_set(), 60)
            return f"r{number}" in self.receipts


def connected():
    while True:
        for host in HOSTS:
            connection = stomp.Connection12([host], reconnect_attempts_max=1, heartbeats=(1000, 1000), timeout=SOON)
            inbox = Inbox(connection)
            connection.set_listener("", inbox)
            try:
                connection.connect()
                if inbox.connected.wait(SOON):
                    connection.subscribe("/queue/orders", id="1", ack="client-individual")
                    return inbox
            except (stomp.exception.StompException, OSError):
                pass
            try:
                connection.transport.disconnect_socket()
            except (stomp.exception.StompException, OSError):
                pass
        threading.Event().wait(BETWEEN_ROUNDS)  # neither serves yet


def listen():
    sys.stdin.readline()
    enough.set()


threading.Thread(target=listen, daemon=True).start()
inbox, number = connected(), 0
while not enough.is_set():
    try:
        confirmed = inbox.send(number)
    except (stomp.exception.StompException, OSError):
        confirmed = False
    if confirmed:
        say(f"sent {number}")
        number += 1
        enough.wait(BETWEEN_SENDS)
    else:
        inbox = connected()
say(f"all {number}")
while True:
    inbox.lost.wait()
    inbox = connected()
