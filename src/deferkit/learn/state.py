"""State files: arrays by name with a checksum, archives, and converters of older versions."""

import copy
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, MissingExtra, UnreadableState, UnwritableState
from deferkit.learn.components import Components
from deferkit.learn.consistency import check_sizes
from deferkit.learn.core import CONSTANTS
from deferkit.learn.core.layout import STATE
from deferkit.learn.embed import given_again
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.encode import Encoder
from deferkit.learn.initial_state import new_ledger, sizes_of
from deferkit.learn.ledger import Ledger
from deferkit.learn.settings import Settings
from deferkit.periods import START_OF_TIME

Arrays = dict[str, NDArray[Any]]

HEAD = 32  # length of the header of the int buffer; then come the offsets of the fields
N_FEATURES, N_EXPERTS, N_RESOURCES, MEMORY, OVERFLOW = range(5)
REWARD_LINK, COST_LINK, CAPACITY, STRIDE, N_VIEWS = 6, 7, 23, 26, 28
COUNTERS = {  # current name → index in the header of version 1
    "warm_up": 14,
    "next_id": 15,
    "price_due": 16,
    "n_forced": 18,
    "n_no_budget": 19,
    "n_expired": 20,
    "horizon_told": 21,
    "unsettled": 22,
    "n_seen": 29,
    "retrain_at": 30,
}
FIELDS = (  # name in version 1, buffer and shape, in the order of the offsets
    *("sees int G", "follows int K", "n_stashed int G", "drifted int G", "n_absorbed int G", "n_observed int G"),
    *("next_refit int G", "n_routed int A", "route int M", "status int M"),
    *("total float R", "horizon float R", "max_cost float R", "spent float R", "reserved float R", "overrun float R"),
    *("largest float R", "cost_sum float R", "cost_n float R", "owed float R", "log_up float R", "log_down float R"),
    *("price float R", "log_weight float R", "squares float R", "next_solve float 1"),
    *("inverse float G d d", "precision float G d d", "rounding float G d d", "stash float G S d"),
    *("theta float G d", "moment float G d", "power float 2", "misfit float G", "context float M V d"),
    *("held float M R", "reward float M A", "cost float M R"),
)
RENAMED = {
    "follows": "shares_design",
    "largest": "largest_cost",
    "power": "reward_power",
    "misfit": "squared_error",
}
DUAL = {  # fields of each pacing beside the price, and its constants, which version 1 kept in the state
    "resolve": (("next_solve",), ()),
    "adaptive": (("squares",), ()),
    "gradient": (("log_weight",), ("log_up", "log_down")),
    "paper": (("log_weight",), ("log_up", "log_down")),
}
STASH, LANES = 16, 4


def convert_v1(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 2."""
    ints, floats = arrays["ints"], arrays["floats"]
    head = ints[:HEAD].tolist()
    k, r, stride = head[N_EXPERTS], head[N_RESOURCES], head[STRIDE]
    letters = {"d": stride, "K": k, "R": r, "A": k + 1, "G": 1 + k + k * r, "S": STASH, "V": head[N_VIEWS]}
    letters["M"] = head[MEMORY] + head[OVERFLOW]
    found: Arrays = {}
    for field, offset in zip(FIELDS, ints[HEAD:].tolist(), strict=False):
        name, buffer, *dims = field.split()
        shape = tuple(letters[each] if each in letters else int(each) for each in dims)
        whole = (ints if buffer == "int" else floats)[offset : offset + math.prod(shape)].reshape(shape)
        features = slice(0, head[N_FEATURES])
        found[RENAMED.get(name, name)] = whole[tuple(features if each == "d" else slice(None) for each in dims)]
    pacing = settings["deferrer"]["pacing"]
    memory, constants = DUAL[pacing["kind"]]
    found["view"] = found.pop("sees") // stride
    found["past_width"] = np.zeros_like(found["reward"])  # not used by learners of version 1
    found["context_power"] = np.zeros(2)
    found["dual"] = np.concatenate([found["price"], *(found[name] for name in memory)])
    given = {"resolve": ("every",), "adaptive": ("step",)}.get(pacing["kind"], ())
    found["pacing_constant"] = np.concatenate(
        [np.array([float(pacing[name]) for name in given]), *(found[name] for name in constants)]
    )
    samples = arrays["samples"]
    if len(samples):
        rows = samples.reshape(-1, head[CAPACITY], stride + LANES)
        found["samples"] = np.concatenate([rows[..., : head[N_FEATURES]], rows[..., stride : stride + 1]], axis=2)
    else:
        found["samples"] = np.zeros((0, 0, 0))
    others = {name: array for name, array in arrays.items() if name not in ("ints", "floats", "samples")}
    counters = {name: head[index] for name, index in COUNTERS.items()} | {"n_model_seen": 0}
    return settings | {"counters": counters}, found | others


def convert_v2(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 3: a mixture with one member."""
    deferrer = {**settings["deferrer"], "forget": "never", "representation": "linear"}
    n_observed = arrays["n_observed"]
    targets, rows = len(n_observed), arrays["reward"].shape
    added: Arrays = {
        "member_prior": np.ones(1),
        "forget_every": np.zeros(1, dtype=np.int64),
        "keep": np.ones(1),
        "member_weight": np.ones((targets, 1)),
        "member_samples": n_observed.astype(np.float64),
        "forecast_error": np.zeros(targets),
        "drift_strength": np.zeros(targets),
        # 0: a correction takes the sample as fully remembered, which it is
        "learned_as": np.zeros((rows[0], rows[1] + 1), dtype=np.int64),
    }
    added |= {name: np.zeros(targets, dtype=np.int64) for name in ("drift_told", "n_drifts", "drift_at")}
    counters = settings["counters"]
    heard = {
        "n_model_due": 0,
        "heard_to": 0,
        "n_heard": 0,
        "delay_sum": 0,
    }  # read by mixtures with several members only
    return settings | {"deferrer": deferrer, "counters": counters | heard}, arrays | added


NEW_BY_RESOURCE = (
    *("timing", "allowance", "carry", "period_start", "period_end", "spent_before", "bin_length"),
    *("arrivals", "past_arrivals", "past_periods", "hold_fixed", "hold_means", "limit", "pending_cost"),
)
NOT_GIVEN = ("period_start", "period_end", "hold_fixed", "hold_means", "limit")  # NaN in a budget with a horizon


def convert_v3(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 4: no period, and holds as they were."""
    resources, rows = len(arrays["total"]), len(arrays["route"])
    declared = {each.name: each for each in STATE}
    added: Arrays = {}
    for name in NEW_BY_RESOURCE:
        shape = (resources, *(int(size) for size in declared[name].shape.split()[1:]))
        kind = np.float64 if declared[name].kind == "double" else np.int64
        added[name] = np.full(shape, np.nan) if name in NOT_GIVEN else np.zeros(shape, dtype=kind)
    added |= {"clock": np.array([START_OF_TIME]), "at": np.zeros(rows), "expected": np.zeros((rows, resources))}
    n_open = int((arrays["status"] == CONSTANTS["open"]).sum())
    counters = settings["counters"] | {"n_open": n_open, "n_stopped": 0, "n_backwards": 0}
    return settings | {"counters": counters}, arrays | added


FIT = "representation fit ledger "  # prefix of the arrays that a fit of trees under way learns with


def convert_v4(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 5: the defaults of November 2026."""
    added: Arrays = {}
    for prefix in ("", FIT):
        if prefix + "n_observed" in arrays:
            added |= {prefix + name: array for name, array in _add(len(arrays[prefix + "n_observed"])).items()}
    counters = settings["counters"] | {"link_state": 0, "n_in_ranks": 0, "spending_told": 0, "n_unavailable": 0}
    return settings | {"counters": counters}, arrays | added


def _add(targets: int) -> Arrays:
    return {
        "evidence": np.zeros(targets),
        "change_score": np.zeros(targets),
        "change_at": np.zeros(targets, dtype=np.int64),
        "change_sums": np.zeros((targets, 6)),
        "drift_since": np.zeros(targets, dtype=np.int64),
        "drift_resumes": np.zeros(targets, dtype=np.int64),
        "drift_sums": np.zeros((targets, 6)),
        "rank_table": np.zeros((0, 100)),
        "rank_count": np.zeros(0, dtype=np.int64),
    }


ADDED = tuple(_add(1))


def convert_v5(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 6: no cost above max_cost was booked, and none books itself."""
    added: Arrays = {}
    for prefix in ("", FIT):
        if prefix + "status" in arrays:
            added[prefix + "uncovered"] = np.zeros_like(arrays[prefix + "overrun"])
            added[prefix + "announced"] = np.zeros_like(arrays[prefix + "status"])
    return settings, arrays | added


MAGIC = b"deferkit-state\n"
VERSION = 6
CONVERSIONS = (convert_v1, convert_v2, convert_v3, convert_v4, convert_v5)  # each to the version after it
DTYPES = {"<f8", "<i8"}
MAX_HEADER = 1 << 26


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
    end = data.find(b"\n", len(MAGIC), len(MAGIC) + MAX_HEADER)
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


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file, or raise `UnreadableState`."""
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise UnreadableState(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


REPRESENTATION = "representation "  # prefix of the names of its arrays


class StateCopy(NamedTuple):
    """A copy of a learner's state, which does not change with the learner: another thread may write it as bytes.

    Attributes:
        plain: Settings, counters, encoder and rows before it was frozen.
        arrays: The arrays by name.
    """

    plain: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        """Return the saved state as of the time of the copy, as `Deferrer.to_bytes` does."""
        return pack(self.plain, self.arrays)


def copy_state(components: Components) -> StateCopy:
    """Return a copy of the state of a learner; it takes a fraction of the time of `to_bytes`."""
    plain, arrays = plain_and_arrays(components)
    return StateCopy(copy.deepcopy(plain), {name: np.array(array) for name, array in arrays.items()})


def to_bytes(components: Components) -> bytes:
    """Return settings, counters, encoder and arrays of a learner as the bytes of a state file."""
    return pack(*plain_and_arrays(components))


def plain_and_arrays(components: Components) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the state of a learner; the arrays are those that it goes on to change."""
    saved = {
        "deferrer": components.settings.to_dict(),
        "counters": components.ledger.counters(),
        "encoder": None if components.contexts.encoder is None else components.contexts.encoder.to_dict(),
        "rows": components.contexts.rows_before_freeze,
    }
    arrays = components.ledger.state()
    if components.settings.forget_used == "never":  # read by forgetting members only, and absent in version 2
        arrays["learned_as"] = np.zeros_like(arrays["learned_as"])
    arrays |= {REPRESENTATION + name: array for name, array in components.representation.state().items()}
    return saved, arrays


class SavedLearner(NamedTuple):
    """The settings, counters, encoder and arrays in a state file."""

    plain: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    source: str

    @classmethod
    def from_bytes(cls, data: bytes, source: str, embedding: Embedding | None) -> "SavedLearner":
        """Parse the bytes of a state file, or raise `UnreadableState`."""
        plain, arrays = unpack(data, source)
        if isinstance(plain, dict) and isinstance(plain.get("deferrer"), dict):
            plain["deferrer"]["embedding"] = given_again(plain["deferrer"].get("embedding"), embedding, source)
        return cls(plain, arrays, source)

    @contextmanager
    def errors_as_unreadable_state(self) -> Iterator[None]:
        """Convert errors about missing or invalid values to `UnreadableState`."""
        try:
            yield
        except MissingExtra:
            raise  # not the fault of the file
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
            raise UnreadableState(f"{self.source} does not hold a learner ({error}).") from error

    def settings(self) -> Settings:
        """Return the settings, checked."""
        return Settings.from_dict(self.plain["deferrer"])

    def ledger(self) -> Ledger:
        """Return the ledger, checked and restored."""
        settings = self.settings()
        check_sizes(self.arrays, sizes_of(settings))  # before memory is allocated for these sizes
        ledger = new_ledger(settings)
        ledger.restore(self.plain["counters"], self.arrays)
        return ledger

    def encoder(self) -> Encoder | None:
        """Return the encoder, or None."""
        if self.plain["encoder"] is None:
            return None
        encoder = Encoder.from_dict(self.plain["encoder"])
        if encoder.n_features != self.plain["deferrer"]["n_features"]:
            raise ValueError(f"its encoder makes {encoder.n_features} features")
        return encoder

    def restore(self, components: Components) -> None:
        """Restore the representation, and the rows that wait for the encoder to be frozen."""
        start = len(REPRESENTATION)
        kept = {name[start:]: array for name, array in self.arrays.items() if name.startswith(REPRESENTATION)}
        components.representation.restore(kept)
        unsettled, rows, encoder = self.plain["counters"]["unsettled"], self.plain["rows"], components.contexts.encoder
        if len(rows) != (components.ledger.next_id if unsettled else 0) or (unsettled and encoder is None):
            raise ValueError(f"there are {len(rows)} rows to settle an encoder on")
        components.contexts.rows_before_freeze = [] if encoder is None else [encoder.check(row) for row in rows]
        components.ledger.set("unsettled", unsettled)
