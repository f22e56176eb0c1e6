"""Who this process is, and whether another one on this machine is still there."""

import os
import socket
from pathlib import Path


def boot() -> str:
    """Return what tells this start of the machine from others; nothing where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
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
    """Return a name that no other process has ever had; `number` tells apart several owners in one process."""
    return f"{socket.gethostname()}/{boot()}/{os.getpid()}/{started(os.getpid()) or ''}/{number}"


def is_dead(owner: str) -> bool:
    """Whether a process is known to be gone: it ran on this machine, and does not any more.

    >>> is_dead(identity()), is_dead("elsewhere/12345678/1/1/0")
    (False, False)
    """
    host, began, pid, start, *_ = [*owner.split("/"), "", "", "", ""]
    if host != socket.gethostname() or not began or not Path("/proc/self/stat").exists():
        return False
    return began != boot() or not pid.isdigit() or started(int(pid)) != start
