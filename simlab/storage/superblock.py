"""The first 48 bytes of an HDF5 file: who writes it, and where it ends.

HDF5 marks a file as open for writing in byte 11 and states its end in bytes 28 to 35 (superblock version 3, addresses of 8 bytes). A
writer that dies leaves the mark, and an end that may lie before data that were flushed since. HDF5's own ``h5clear -s`` and any
opening for writing cut the file at that end; the data are lost then. What is right is to take away the mark and to state the end of
the file as it is.
"""

from __future__ import annotations

import os
from typing import Final

from simlab.errors import FormatError

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_SIZE: Final = 48
_CHECKED: Final = 44
_FLAGS: Final = 11
_END: Final = slice(28, 36)


def is_marked(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it is open for writing, or ends elsewhere than it does.

    Raises
    ------
    FormatError
        If it has no superblock of version 3.
    """
    head = _head(path)
    return bool(head[_FLAGS]) or int.from_bytes(head[_END], "little") != os.stat(path).st_size


def ends_early(path: str | os.PathLike[str]) -> bool:
    """Whether a file that was closed is shorter than it says: a part of it is missing.

    Raises
    ------
    FormatError
        If it has no superblock of version 3.
    """
    head = _head(path)
    return not head[_FLAGS] and int.from_bytes(head[_END], "little") > os.stat(path).st_size


def mend(path: str | os.PathLike[str]) -> None:
    """Take away the mark of a dead writer, and state the end of the file as it is.

    Raises
    ------
    FormatError
        If the file has no superblock of version 3.
    """
    head = mended(_head(path), os.stat(path).st_size)
    with open(path, "r+b") as file:
        file.write(head)
        file.flush()
        os.fsync(file.fileno())


def trim(path: str | os.PathLike[str]) -> None:
    """Cut off what lies behind the end that a closed file states: room that was kept for more."""
    head = _head(path)
    end = int.from_bytes(head[_END], "little")
    if not head[_FLAGS] and os.stat(path).st_size > end:
        os.truncate(path, end)


def mended(head: bytes, size: int) -> bytes:
    """Return the first 48 bytes of a file without the mark, stating another end."""
    out = bytearray(head)
    out[_FLAGS] = 0
    out[_END] = size.to_bytes(8, "little")
    out[_CHECKED:_SIZE] = checksum(bytes(out[:_CHECKED])).to_bytes(4, "little")
    return bytes(out)


def _head(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        head = file.read(_SIZE)
    if len(head) < _SIZE or not head.startswith(SIGNATURE) or head[8] != 3 or head[9] != 8:
        raise FormatError(f"{os.fspath(path)!r} is no file that simlab writes (its head is not an HDF5 superblock of version 3).")
    return head


def checksum(data: bytes) -> int:
    """Bob Jenkins' lookup3 hash (hashlittle, initial value 0): the checksum of HDF5's metadata."""
    full = 0xFFFFFFFF

    def turn(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & full

    a = b = c = (0xDEADBEEF + len(data)) & full
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
    words += [0] * (-len(words) % 3)
    last = len(words) - 3
    for i in range(0, last + 1, 3):
        a, b, c = (a + words[i]) & full, (b + words[i + 1]) & full, (c + words[i + 2]) & full
        if i < last:
            for k1, k2, k3 in ((4, 6, 8), (16, 19, 4)):
                a = ((a - c) & full) ^ turn(c, k1)
                c = (c + b) & full
                b = ((b - a) & full) ^ turn(a, k2)
                a = (a + c) & full
                c = ((c - b) & full) ^ turn(b, k3)
                b = (b + a) & full
    for x, k in (("c", 14), ("a", 11), ("b", 25), ("c", 16), ("a", 4), ("b", 14), ("c", 24)):
        if x == "c":
            c = ((c ^ b) - turn(b, k)) & full
        elif x == "a":
            a = ((a ^ c) - turn(c, k)) & full
        else:
            b = ((b ^ a) - turn(a, k)) & full
    return c
