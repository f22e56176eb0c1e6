r"""The state file of a learner: a JSON header and the bytes of the arrays. Never pickle.

    deferkit-state\n
    {"version": 5, "sha256": …, "arrays": {name: [dtype, shape, bytes]}, "settings": {…}}\n
    array bytes, zlib-compressed, in the order of the header

The checksum covers the header (without itself) and the arrays as they are in the file.
"""

import hashlib
import json
import math
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, UnreadableState, UnwritableState
from deferkit.learn import state_v1, state_v2, state_v3, state_v4

MAGIC = b"deferkit-state\n"
VERSION = 5
CONVERSIONS = (state_v1.convert, state_v2.convert, state_v3.convert, state_v4.convert)  # each to the version after it
DTYPES = {"<f8", "<i8"}
LONGEST_HEADER = 1 << 26


def pack(settings: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return settings and arrays as the bytes of a state file."""
    blobs = []
    table = {}
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, dtype="<f8" if array.dtype.kind == "f" else "<i8")
        blob = zlib.compress(little.data, level=1)  # without a copy: it would be made while other threads wait
        table[name] = [little.dtype.str, list(little.shape), len(blob)]
        blobs.append(blob)
    body = b"".join(blobs)
    header: dict[str, Any] = {"version": VERSION, "arrays": table, "settings": settings}
    header["sha256"] = checksum(header, body)
    return MAGIC + json.dumps(header).encode() + b"\n" + body


def checksum(header: dict[str, Any], body: bytes) -> str:
    """Return the SHA-256 of a header, without its own checksum, and the bytes that follow it."""
    rest = {key: value for key, value in header.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode() + b"\n")
    digest.update(body)
    return digest.hexdigest()


def unpack(data: bytes, source: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the settings and arrays in the bytes of a state file, or raise `UnreadableState`."""
    if not isinstance(data, bytes) or not data.startswith(MAGIC):
        raise UnreadableState(f"{source} is not a deferkit state: it does not start with {MAGIC.decode().strip()!r}.")
    end = data.find(b"\n", len(MAGIC), len(MAGIC) + LONGEST_HEADER)
    if end < 0:
        raise UnreadableState(f"{source} is cut off within its header.")
    try:
        header = json.loads(data[len(MAGIC) : end])
        version, table, stated = header["version"], header["arrays"], header["sha256"]
        settings = header["settings"]
        lengths = [int(length) for _, _, length in table.values()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableState(f"{source} has a damaged header ({error}).") from error
    if version not in range(1, VERSION + 1):
        raise UnreadableState(
            f"{source} is of version {version!r}, this deferkit reads versions up to {VERSION}."
            " Use the deferkit that saved it."
        )
    body = data[end + 1 :]
    if len(body) < sum(lengths):
        raise UnreadableState(f"{source} is cut off: bytes are missing at its end.")
    if checksum(header, body) != stated:
        raise UnreadableState(f"{source} is damaged: its checksum does not fit.")
    try:
        arrays = read_arrays(table, body)
        for convert in CONVERSIONS[version - 1 :]:
            settings, arrays = convert(settings, arrays)
        return settings, arrays
    except (LookupError, TypeError, ValueError, ArithmeticError, zlib.error) as error:
        raise UnreadableState(f"{source} does not hold a learner ({error}).") from error


def read_arrays(table: dict[str, Any], body: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a state file; raise if the bytes do not match the header."""
    arrays = {}
    start = 0
    for name, (dtype, shape, length) in table.items():
        if dtype not in DTYPES:
            raise ValueError(f"the array {name!r} is of unknown type {dtype!r}")
        size = 8 * math.prod(shape)
        # bounded by the size in the header: a few forged bytes could decompress to all of the memory
        raw = zlib.decompressobj().decompress(body[start : start + length], max(size, 0) + 1)
        if len(raw) != size:
            raise ValueError(f"the array {name!r} is of the wrong length")
        arrays[name] = np.frombuffer(raw, dtype=dtype).reshape(shape)
        start += length
    return arrays


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file atomically: a crash leaves the old one or the new one.

    Raises:
        InvalidArgument: If there is something that is not an ordinary file.
        UnwritableState: If it cannot be written, as on a full disk.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidArgument(f"{target} is a folder; the name of a file is needed.")
    if target.exists() and not target.is_file():  # a device would be replaced by a file
        raise InvalidArgument(f"{target} is not an ordinary file.")
    fresh = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    except OSError as error:
        failed = UnwritableState(f"{target} cannot be written: {error.strerror or error}.")
        failed.errno = error.errno
        raise failed from error
    finally:
        with suppress(OSError):  # it has its new name, or there is no such folder
            fresh.unlink()


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file, or raise `UnreadableState`."""
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise UnreadableState(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
