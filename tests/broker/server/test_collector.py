"""The collector of a broker's process: short, whatever waits in the queues. It is set for all of a process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from sievemq_broker.server.watch.collector import SURVIVED, YOUNG, calm

class Node:
    pass

looked, kept = [], []

def measure(phase, info):
    if phase == "start":
        looked.append(sum(map(len, map(gc.get_objects, range(info["generation"] + 1)))))

calm()
gc.callbacks.append(measure)
for _ in range(YOUNG * SURVIVED * 5):
    kept.append(Node())
assert len(looked) >= SURVIVED * 2, len(looked)
assert max(looked) <= 3 * YOUNG, max(looked)  # each collection looks at what is young, not at what has gathered
assert gc.get_freeze_count() >= YOUNG * SURVIVED * 4

for _ in range(YOUNG * 3):  # cycles of a moment are still caught
    node = Node()
    node.itself = node
assert sum(type(thing) is Node for thing in gc.get_objects()) < YOUNG * 3
print("well")
"""


def test_collections_skip_long_lived_objects() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=180, check=False)
    assert ran.stdout == "well\n", ran.stderr
