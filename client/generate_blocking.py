"""Writes those modules of the blocking API that differ from the asyncio API in waiting only.

    python client/generate_blocking.py           write them
    python client/generate_blocking.py --check   only compare; exit code 1 if one is out of date

`sievemq/aio/` is the source. What differs in more than waiting is written by hand, in modules with the same names on
both sides: `control`, `delivery`, `callbacks`, `reports`, `waiting`, `transport`, `connect`.

A line of the source that ends in the comment `# asyncio`, or `# asyncio: why`, is left out. One that ends in
`# blocking: other code` is replaced by that code.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

SIEVEMQ = Path(__file__).parent / "sievemq"

#: What is generated, and from which module.
MODULES = {
    **{
        SIEVEMQ / "blocking" / f"{name}.py": SIEVEMQ / "aio" / f"{name}.py"
        for name in (
            "browser",
            "closing",
            "connection",
            "consumer",
            "context",
            "domains",
            "factory",
            "jms_consumer",
            "jms_producer",
            "listeners",
            "listening",
            "producer",
            "requestors",
            "session",
        )
    },
    SIEVEMQ / "staging.py": SIEVEMQ / "aio" / "staging.py",
    SIEVEMQ / "taps.py": SIEVEMQ / "aio" / "taps.py",
}

HEADING = (
    "# Generated from sievemq/aio/{}.py by client/generate_blocking.py; change that file, then run `make format`.\n"
)

#: What asyncio code is without waiting: a regular expression and what replaces it, applied in this order.
CODE = [
    (r"(?m)^.*  # asyncio(?:: .*)?\n", ""),
    (r"(?m)^( *)\S.*  # blocking: (.*)$", r"\1\2"),
    (r"from sievemq\.aio\.(?:acknowledging|opening|runtime) import .*\n", ""),
    (r" +@opening\n", ""),
    (r"\bOpening\[(\w+)\]", r"\1"),
    (r"\bAwaitable\[None\] \| None\b", "None"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bCoroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\bawaits=True\b", "awaits=False"),
    (r"\btranslated_coroutine\b", "translated"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\banext\(", "next("),
    (r"\bCallable\[\[(\w+(?:, \w+)*)\], Any\]", r"Callable[[\1], None]"),
    (r"\bsievemq\.aio\b", "sievemq.blocking"),
]

#: Sentences of the documentation that are about tasks and loops, and what the blocking API says there.
PHRASES = [
    ("; safe to share (FAC-08), between loops too.", "; safe to share (FAC-08)."),
    (" It belongs to the running loop.", ""),
    (
        "Belongs to the loop it was made on, and to one task at a time as a :class:`Session` does",
        "Belongs to one thread at a time as a :class:`Session` does",
    ),
    ("; may be a coroutine function", ""),
    ("; may be coroutine functions", ""),
    (
        "Safe to share between the tasks of its loop (THR-01); it cannot be used from another loop.",
        "Safe to share between threads (THR-01).",
    ),
    ("        Cancelled while it waits for a listener, delivery is paused all the same.\n\n", ""),
    (
        "receives that wait in other tasks return None. Once begun\n        it is carried out, cancelled or not.",
        "receives that are blocked return None.",
    ),
    ("and belongs to one task at a time.", "and belongs to one thread of control at a time."),
    (
        (
            "Belongs to the loop it was made on.\n\n    One task at a time receives, acknowledges and ends"
            " transactions in it (THR-02); several may send; `close` may be\n    called from any task. With a"
            " listener it belongs to its delivery task, except for sends: a call such as `recover`\n    from another"
            " task waits until no listener is running.\n\n    ``message.acknowledge()`` of a message received here"
            " acknowledges at once, and what it returns can be awaited to\n    hear the broker's answer. So can that"
            " of a message that the session made, which has no effect.\n"
        ),
        (
            "Use it from one thread at a time (THR-02); `close` from any.\n\n    Once a consumer has a listener and the"
            " connection is started, the session belongs to its delivery thread (THR-04).\n"
        ),
    ),
    ("If it is cancelled, its outcome", "If it is interrupted, its outcome"),
    (" Its ``delete()`` is to be awaited.", ""),
    (
        (
            "a receive that waits in another task\n        returns None (CLO-06). Once begun it is carried out, "
            "cancelled or not."
        ),
        "a receive that is blocked returns\n        None (CLO-06).",
    ),
    (
        (
            "\n\n    A receive that is cancelled has not taken a message: what has arrived meanwhile comes with the"
            " next one.\n    "
        ),
        "",
    ),
    (", by ``async for``", ""),
    ("another task is receiving (MCO-13)", "another thread is receiving (MCO-13)"),
    (
        "Waits for a listener in progress; a receive that waits in another task",
        "Waits for a receive or listener in progress; a receive that is blocked",
    ),
    (" (MCO-10). Once begun it is carried out, cancelled or not.", " (MCO-10)."),
    (
        (
            "        Cancelled while it waits for room, the message has not been sent and has no new id. Cancelled"
            " while it waits for\n        the broker's confirm, the message is on its way as after an asynchronous"
            " send: only its confirm is ignored.\n\n"
        ),
        "",
    ),
    ("        :meth:`MessageProducer.send` describes the effect of cancelling.\n\n", ""),
    ("listener interfaces of the asyncio API", "listener interfaces of the blocking API"),
    (" A method may be a coroutine function; it is awaited before the next one is called.", ""),
    (
        "Named cursors in the broker, for programs that read in ranges: :mod:`sievemq.taps` with asyncio.",
        "Taps: named cursors in the broker, for programs that read what goes through a destination in ranges.",
    ),
    (
        "Sends that become visible together, and once: :mod:`sievemq.staging` with asyncio.",
        "Sends that become visible together, and once: a transaction in two steps, over any number of connections.",
    ),
    ("may be called from any task", "may be called from any thread"),
    ("May be called from any task", "May be called from any thread"),
    ("        Once begun it is carried out, cancelled or not.\n\n", ""),
    ("Tasks that request at once take turns.", "Threads that request at once take turns."),
    (
        ("    Listeners may be coroutine functions; a plain function runs on the event loop, and must not block it.\n"),
        "    Each of a listener's `concurrency` has a thread of its own.\n",
    ),
    (
        "go back uncounted. Once begun it is carried out, cancelled or not. Idempotent.",
        "go back uncounted. Idempotent.",
    ),
]


def blocking(source: str, target: Path, name: str) -> str:
    """The text of a module of the blocking API.

    Args:
        source: the text of the module of the asyncio API.
        target: the module.
        name: the source's name without its package.

    Raises:
        subprocess.CalledProcessError: Ruff cannot read the result.
    """
    for phrase, replacement in PHRASES:
        source = source.replace(phrase, replacement)
    for pattern, replacement in CODE:
        source = re.sub(pattern, replacement, source)
    ruff = [sys.executable, "-m", "ruff"]
    file = ["--stdin-filename", str(target), "-"]
    for command in (
        ["check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", "F401,I,RET504"],
        ["format", "--quiet"],
    ):
        source = subprocess.run(
            [*ruff, *command, *file], input=source, text=True, capture_output=True, check=True
        ).stdout
    return HEADING.format(name) + source


def unused_phrases() -> list[str]:
    """Phrases of the table that no source contains."""
    text = "".join(source.read_text() for source in MODULES.values())
    return [phrase for phrase, _ in PHRASES if phrase not in text]


def out_of_date() -> dict[Path, str]:
    """The modules whose text is not what would be generated now, each with its new text."""
    texts = {target: blocking(source.read_text(), target, source.stem) for target, source in MODULES.items()}
    return {path: text for path, text in texts.items() if not path.exists() or path.read_text() != text}


def main() -> int:
    """Write or check; return the exit code."""
    arguments = argparse.ArgumentParser(description="Writes modules of the blocking API from the asyncio API.")
    arguments.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a module is out of date")
    check = arguments.parse_args().check
    stale = out_of_date()
    for path, text in stale.items():
        print(f"{path.relative_to(SIEVEMQ.parent.parent)}: {'out of date: run make format' if check else 'written'}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
