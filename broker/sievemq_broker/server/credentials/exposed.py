"""Files with secrets that other users of the machine can read: a warning, with the command that mends it."""

from __future__ import annotations

import shlex
import stat
import sys
from pathlib import Path

from sievemq_broker import logs

log = logs.get("security")


def warn_if_exposed(holds: str, path: str | Path) -> None:
    """Log a warning if users outside the file's group can read or change it.

    Args:
        path: a file or directory; one that cannot be examined is passed over.
    """
    if sys.platform == "win32":
        return
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
    except OSError:
        return
    if mode & stat.S_IRWXO:
        log.warning(
            "file.exposed",
            path=str(path),
            mode=f"{mode:04o}",
            note=f"every user of this machine can reach {holds}; run: chmod o-rwx {shlex.quote(str(path))}",
        )
