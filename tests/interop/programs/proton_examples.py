"""Compiles examples of Qpid Proton's C++ API, runs them against the broker at AMQP_URL: a line of TAP for each.

Arguments: the folder with the examples, then the options that the compiler needs.
"""

import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

SOURCES, OPTIONS = Path(sys.argv[1]), sys.argv[2:]
URL = os.environ["AMQP_URL"]
BUILT = Path(tempfile.mkdtemp())
SOON = 60


def program(name):
    path = BUILT / name
    if not path.exists():
        command = ["g++", "-std=c++17", "-o", path, SOURCES / f"{name}.cpp", *OPTIONS, "-lqpid-proton-cpp", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return path


def lines(name, *arguments):
    """What a program writes; it must end well."""
    done = subprocess.run([program(name), *arguments], capture_output=True, text=True, check=True, timeout=SOON)
    return done.stdout.splitlines()


def first_lines(count, name, *arguments):
    """What a program that does not end writes first."""
    with subprocess.Popen(
        ["timeout", str(SOON), program(name), *arguments], stdout=subprocess.PIPE, text=True
    ) as running:
        found = [line.rstrip() for line in islice(running.stdout, count)]
        running.terminate()
    return found


def helloworld():
    assert lines("helloworld", URL, "hello") == ["Hello World!"]


def send_and_receive():
    assert lines("simple_send", "-a", f"{URL}/simple", "-m", "100") == ["all messages confirmed"]
    assert len(lines("simple_recv", "-a", f"{URL}/simple", "-m", "100")) == 100


def selector():
    lines("colour_send", "-a", f"{URL}/colour", "-m", "20")
    found = first_lines(10, "selected_recv", URL, "colour")
    assert [line.split()[0] for line in found] == ["green"] * 10, found


def browser():
    lines("simple_send", "-a", f"{URL}/browsed", "-m", "10")
    assert first_lines(10, "queue_browser", URL, "browsed") == lines("simple_recv", "-a", f"{URL}/browsed", "-m", "10")


def request():
    program("client")
    with subprocess.Popen(
        ["timeout", str(SOON), program("server"), URL, "requests"], stdout=subprocess.PIPE, text=True
    ) as server:
        server.stdout.readline()
        found = lines("client", "-a", f"{URL}/requests")
        server.terminate()
    assert found[-1] == "And the mome raths outgrabe. => AND THE MOME RATHS OUTGRABE.", found


def threads():
    assert lines("multithreaded_client", URL, "threads", "1000")[-1] == "1000 messages sent and received"


def flow_control():
    found = lines("multithreaded_client_flow_control", URL, "flow", "1000", "4")
    assert found[-1] == "4000 messages sent and received", found[-1]


for name, step in (
    ("helloworld", helloworld), ("simple_send and simple_recv", send_and_receive),
    ("colour_send and selected_recv", selector), ("queue_browser", browser), ("server and client", request),
    ("multithreaded_client", threads), ("multithreaded_client_flow_control", flow_control),
):  # fmt: skip
    try:
        step()
        print("ok -", name)
    except Exception as error:
        print("not ok -", name, "#", f"{error} {getattr(error, 'stderr', '')}"[:1000])
