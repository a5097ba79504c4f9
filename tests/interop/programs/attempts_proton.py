"""A worker of python-qpid-proton: see tests/interop/attempts.py."""

import os
import sys

from proton.utils import BlockingConnection

SOON = 20


def attached():
    connection = BlockingConnection(os.environ["BROKER_URL"], timeout=SOON)
    return connection, connection.create_receiver("jobs", credit=int(os.environ["PREFETCH"]))


def work(receiver):
    print("working", receiver.receive(SOON).body, flush=True)
    sys.stdin.readline()


connection, receiver = attached()
for _ in range(int(os.environ["HANDLE"])):
    message = receiver.receive(SOON)
    receiver.accept()
    connection.create_sender("done").close()  # the disposition is written before
    print("handled", message.body)
work(receiver)
match os.environ["END"]:
    case "detach":
        receiver.close()
        connection.close()
    case "close":
        connection.close()
    case "return":
        connection, receiver = attached()
        work(receiver)
os._exit(0)
