"""A client of stomp.py whose broker changes: see tests/interop/takeovers.py."""

import os
import sys
import threading
from urllib.parse import urlsplit

import stomp

SOON = 2.0
BETWEEN_SENDS, BETWEEN_ROUNDS = 0.002, 0.1

HOSTS = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in os.environ["BROKERS"].split(","))]
VHOST = f"/{os.environ['NAMESPACE']}" if os.environ["NAMESPACE"] else None
LOGIN = os.environ["LOGIN"] or None
#: Redirects in a round that are followed.
MOST = 4

said = threading.Lock()
enough = threading.Event()


def say(line):
    with said:
        print(line, flush=True)


class Inbox(stomp.ConnectionListener):
    def __init__(self, connection):
        self.connection = connection
        self.answered, self.lost = threading.Event(), threading.Event()
        self.accepted, self.redirect = False, None
        self.receipts = set()
        self.changed = threading.Condition()

    def on_connected(self, frame):
        self.accepted = True
        self.answered.set()

    def on_error(self, frame):
        if "redirect" in frame.headers:
            url = urlsplit(frame.headers["redirect"])
            self.redirect = url.hostname, url.port
        self.answered.set()

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
        hosts = list(HOSTS)
        for host in hosts:
            connection = stomp.Connection12(
                [host], reconnect_attempts_max=1, heartbeats=(1000, 1000), timeout=SOON, vhost=VHOST
            )
            inbox = Inbox(connection)
            connection.set_listener("", inbox)
            try:
                connection.connect(LOGIN, "")
                inbox.answered.wait(SOON)
                if inbox.accepted:
                    connection.subscribe("/queue/orders", id="1", ack="client-individual")
                    return inbox
                if inbox.redirect is not None and len(hosts) < len(HOSTS) + MOST:
                    hosts.append(inbox.redirect)
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
