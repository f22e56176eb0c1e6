"""Why a table could not be written: polars does not pass on the reason of the system in all cases."""

from pathlib import Path

PROBE = bytes(65_536)


def reason_of(error: Exception, unfinished: Path) -> str:
    """Return why a file could not be written, in the words of the system.

    On a full disk polars may say "Invalid thrift: transport error". So some bytes are appended to what was written:
    if that fails too, its reason is the one.

    Args:
        error: What the writer raised.
        unfinished: The file that it began, which is deleted afterwards.

    >>> reason_of(ValueError("transport error"), Path("/dev/full"))
    'No space left on device'
    """
    try:
        with unfinished.open("ab") as file:
            file.write(PROBE)
    except OSError as failed:
        return failed.strerror or str(failed)
    return str(error)
