"""Values of every type that a stream's fields and a map's entries can have."""

from __future__ import annotations

from sievemq import Byte, Char, Float, Long, Short

#: By the name in ``write_…``, ``read_…``, ``set_…`` and ``get_…``.
TYPED = [
    ("boolean", True), ("byte", 7), ("short", 300), ("char", "c"), ("int", 70_000), ("long", 5), ("long", 2**40),
    ("float", 0.5), ("double", 0.1), ("string", "x"), ("string", None), ("string", "\ud83d"),
]  # fmt: skip

#: As ``write_object`` and ``set_object`` take them, one of each type.
OBJECTS = [True, Byte(1), Short(2), Char("c"), 3, Long(4), 2**40, Float(0.5), 1.5, "x", b"raw", None]
