"""Whether this is the compiled build (docs/decisions/0025): the same sources, the hot ones of them made into C.

Never compiled itself, and imports nothing of SieveMQ: the modules that are compiled may ask it.
"""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i32 as i32
    from mypy_extensions import mypyc_attr as mypyc_attr
    from mypy_extensions import u8 as u8
else:
    i32 = u8 = int
    """Types of attributes that take so many bits where they are compiled."""

    def mypyc_attr(**_):
        """Options of a class for the compiler, such as that interpreted classes may inherit from it. It does nothing at
        run time, so mypyc need not be installed."""
        return lambda cls: cls


def _is_compiled(package: str, module: str) -> bool:
    """Whether an import would take a module's library and not its source; without importing it."""
    spec = PathFinder.find_spec(module, [os.path.join(os.path.dirname(__file__), package)])  # noqa: PTH118, PTH120
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)


COMPILED = _is_compiled("wire", "codec")
"""Whether the hot modules are compiled here: all of them are, or none."""
