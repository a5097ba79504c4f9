"""Writes those modules of the blocking API that differ from the asyncio API in waiting only.

    python client/generate_blocking.py           write them
    python client/generate_blocking.py --check   only compare; exit code 1 if one is out of date

`sievemq/aio/` is the source. The other modules of `sievemq/blocking/` are written by hand: threads wait in another way
than tasks do.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

SIEVEMQ = Path(__file__).parent / "sievemq"

MODULES = ("browser", "context", "domains", "factory", "jms_consumer", "requestors")

HEADING = (
    "# Generated from sievemq/aio/{}.py by client/generate_blocking.py; change that file, then run `make format`.\n"
)

#: What asyncio code is without waiting: a regular expression and what replaces it, applied in this order.
CODE = [
    (r"from sievemq\.aio\.(?:opening|runtime) import .*\n", ""),
    (r" +@opening\n", ""),
    (r"\bOpening\[(\w+)\]", r"\1"),
    (r"\btranslated_coroutine\b", "translated"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\banext\(", "next("),
    (r"\bCallable\[\[(\w+)\], Any\]", r"Callable[[\1], None]"),
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
    ("may be called from any task", "may be called from any thread"),
    ("May be called from any task", "May be called from any thread"),
    ("        Once begun it is carried out, cancelled or not.\n\n", ""),
    ("Tasks that request at once take turns.", "Threads that request at once take turns."),
]


def blocking(source: str, name: str) -> str:
    """The text of a module of the blocking API.

    Args:
        source: the text of the module of the asyncio API.
        name: the module's name without its package.

    Raises:
        subprocess.CalledProcessError: Ruff cannot read the result.
    """
    for phrase, replacement in PHRASES:
        source = source.replace(phrase, replacement)
    for pattern, replacement in CODE:
        source = re.sub(pattern, replacement, source)
    ruff = [sys.executable, "-m", "ruff"]
    file = ["--stdin-filename", str(SIEVEMQ / "blocking" / f"{name}.py"), "-"]
    for command in (["check", "--quiet", "--fix-only", "--select", "F401,I"], ["format", "--quiet"]):
        source = subprocess.run(
            [*ruff, *command, *file], input=source, text=True, capture_output=True, check=True
        ).stdout
    return HEADING.format(name) + source


def unused_phrases() -> list[str]:
    """Phrases of the table that no source contains."""
    text = "".join((SIEVEMQ / "aio" / f"{name}.py").read_text() for name in MODULES)
    return [phrase for phrase, _ in PHRASES if phrase not in text]


def out_of_date() -> dict[Path, str]:
    """The modules whose text is not what would be generated now, each with its new text."""
    texts = {
        SIEVEMQ / "blocking" / f"{name}.py": blocking((SIEVEMQ / "aio" / f"{name}.py").read_text(), name)
        for name in MODULES
    }
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
