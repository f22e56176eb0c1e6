"""The character set of a text file: UTF-8, UTF-16, or Windows-1252 (Latin-1) where it is neither."""

import codecs
import re

from deferkit.errors import InvalidArgument

LOOK = 65_536  # bytes that tell text from something else
WIDE = 0.4  # share of zero bytes in every second place from which on a text is UTF-16
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]")  # no text has these


def as_utf8(path: str, data: bytes) -> tuple[bytes, str]:
    r"""Return a text in UTF-8 without a byte order mark, and a remark if it was written in another character set.

    >>> as_utf8("tasks.csv", "Käse".encode("utf-16"))
    (b'K\xc3\xa4se', 'tasks.csv is read as UTF-16.')
    """
    charset = wide_charset(data)
    if charset:
        try:
            return data.decode(charset).removeprefix("\ufeff").encode(), f"{path} is read as UTF-16."
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{path} begins like UTF-16, but is not: save it as CSV UTF-8.") from error
    if b"\0" in data[:LOOK]:
        raise InvalidArgument(f"{path} is not text, but something binary. CSV must be text, such as UTF-8.")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        data.decode()
    except UnicodeDecodeError:
        return from_latin(path, data)
    return data, ""


def wide_charset(data: bytes) -> str:
    """Return which UTF-16 a text is in, by its byte order mark or its zero bytes; "" if it is in none."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    look = data[: LOOK - LOOK % 2]
    pairs = len(look) // 2
    even, odd = look[0::2].count(0), look[1::2].count(0)
    if pairs and odd > WIDE * pairs and not even:
        return "utf-16-le"
    if pairs and even > WIDE * pairs and not odd:
        return "utf-16-be"
    return ""


def from_latin(path: str, data: bytes) -> tuple[bytes, str]:
    """Return a text that is not UTF-8 as Windows-1252, which has all printed characters of Latin-1, and a remark."""
    try:
        text, charset = data.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:  # five bytes mean nothing there
        text, charset = data.decode("latin-1"), "Latin-1"
    if CONTROLS.search(text[:LOOK]):
        raise InvalidArgument(f"{path} is not text, but something binary. CSV must be text, such as UTF-8.")
    letter = next(character for character in text if character > "\x7f")
    return text.encode(), f"{path} is not UTF-8 and is read as {charset}: check that {letter!r} is right."
