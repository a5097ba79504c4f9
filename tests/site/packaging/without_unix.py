"""Imports SieveMQ as on other systems: ``python without_unix.py win32 darwin``.

Everything is imported once as it is, so that other packages are there. Then, in a process for each system, what it
lacks is hidden, `sys.platform` names it, and SieveMQ is imported again. Messages go round, with a data directory too.
"""

from __future__ import annotations

import os
import select
import selectors
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[3] / "release"))
import smoke  # type: ignore[import-not-found]

#: Only Linux has these, of what may be in use.
_LINUX = {
    os: """eventfd eventfd_read eventfd_write getresgid getresuid memfd_create pipe2 posix_fadvise posix_fallocate
        sched_getaffinity sched_setaffinity setresgid setresuid splice copy_file_range pidfd_open unshare setns
        O_TMPFILE O_PATH O_DIRECT""",
    select: "epoll EPOLLIN EPOLLOUT EPOLLERR EPOLLHUP EPOLLET EPOLLEXCLUSIVE EPOLLONESHOT",
    signal: "SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK TCP_QUICKACK TCP_USER_TIMEOUT MSG_NOSIGNAL SO_PASSCRED SO_PEERCRED",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}
#: Windows has these neither.
_UNIX = {
    os: """chown chroot confstr fchdir fchown fchmod fork forkpty getegid geteuid getgid getgroups getloadavg getpgid
        getpgrp getpriority getsid getuid initgroups killpg lchown lockf mkfifo mknod nice openpty pathconf fpathconf
        posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork sched_get_priority_max sched_yield
        sendfile setegid seteuid setgid setgroups setpgid setpriority setregid setreuid setsid setuid statvfs fstatvfs
        sync sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid writev O_CLOEXEC O_DIRECTORY O_DSYNC
        O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC WNOHANG WIFEXITED WEXITSTATUS""",
    select: "poll POLLIN POLLOUT POLLERR POLLHUP POLLNVAL POLLPRI",
    signal: """SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2
        SIGWINCH alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait""",
    socket: "SO_REUSEPORT SCM_RIGHTS CMSG_LEN CMSG_SPACE MSG_DONTWAIT",
    time: "CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME clock_getres clock_gettime clock_settime tzset",
}
_UNIX_MODULES = "fcntl grp pty pwd readline resource syslog termios tty uvloop curses crypt"


def _disk_usage(_: object) -> object:
    return SimpleNamespace(total=1 << 40, used=0, free=1 << 40)


def hide(platform: str) -> None:
    """Hide from SieveMQ what a system lacks. Other packages have bound what they need, as far as they are used here."""
    names = [_LINUX, _UNIX] if platform == "win32" else [_LINUX]
    for table in names:
        for module, attributes in table.items():
            for name in attributes.split():
                if hasattr(module, name):
                    delattr(module, name)
    for name in _UNIX_MODULES.split() if platform == "win32" else ():
        sys.modules[name] = None  # type: ignore[assignment]
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc]
    shutil.disk_usage = _disk_usage  # it asks another function of the system there
    if platform == "win32":
        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # they open with flags of Unix
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = os.cpu_count  # as it is where there is no sched_getaffinity
    sys.platform = platform


def check(platform: str, loaded: list[int]) -> None:
    """Import SieveMQ as on a system, and exchange messages.

    Args:
        platform: its name in `sys.platform`.
        loaded: how many modules of each package can be imported here.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] in (*smoke.PACKAGES, "pyspark_sievemq")]:
        del sys.modules[name]
    hide(platform)
    found = [smoke.load(package) for package in smoke.PACKAGES]
    assert [number for number, _ in found] == loaded, found
    smoke.round_trips()
    print(f"{platform}: {sum(loaded)} modules", flush=True)


def main() -> None:
    loaded = [smoke.load(package)[0] for package in smoke.PACKAGES]
    for platform in sys.argv[1:]:
        child = os.fork()  # from here, so that other packages are imported once
        if not child:
            check(platform, loaded)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, platform


if __name__ == "__main__":
    main()
