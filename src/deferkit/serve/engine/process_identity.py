"""The identity of a process (host, boot, container, pid, start time), and whether another one is dead."""

import os
import socket
import time
from pathlib import Path


def boot() -> str:
    """Return the boot id of the machine; '' where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def uptime() -> tuple[str, int] | None:
    """Return the boot id and the uptime in microseconds, including sleep; None where the system has none."""
    if not boot() or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    try:
        namespace = Path("/proc/self/ns/time").readlink().name  # a container may count from somewhere else
    except OSError:
        namespace = ""
    return f"{boot()}/{namespace}", time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def container() -> str:
    """Return the id of the pid namespace: process numbers are only unique within one."""
    try:
        return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        return ""


def started(pid: int) -> str | None:
    """Return when a process was started, in the system's ticks; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def identity(number: int = 0) -> str:
    """Return the unique owner id of this process; `number` distinguishes several owners within it."""
    process = f"{os.getpid()}/{started(os.getpid()) or ''}"
    return f"{socket.gethostname()}/{boot()}/{container()}/{process}/{number}"


def is_dead(owner: str, *, shared: bool = False) -> bool:
    """Whether a process is known to be gone: it ran on this machine, and does not any more.

    An SQLite file is used by one machine, so that an owner with the same hostname and another boot or container is
    dead. A shared database is used by many machines, which may have the same hostname: nothing is known then.

    >>> is_dead(identity()), is_dead("elsewhere/12345678/4026531836/1/1/0")
    (False, False)
    """
    host, began, inside, pid, start, *_ = [*owner.split("/"), "", "", "", "", ""]
    if host != socket.gethostname() or not began or not Path("/proc/self/stat").exists():
        return False
    if (began, inside) != (boot(), container()):
        return not shared
    return not pid.isdigit() or started(int(pid)) != start
