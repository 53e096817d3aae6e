"""Structure that appears while a run is recorded, applied so that a kill at any instant loses nothing.

HDF5 has no safe moment to add a group or a variable to a file that is being written: inside SWMR it breaks, outside a kill can cost the
whole file. So the change is made on an `Overlay`; the pages that differ go into one checksummed file beside the run (written under
another name, then renamed), and only then into the run. Who finds such a file applies it again: the same pages in the same places.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path
from typing import Final

from simlab.storage.overlay import Overlay

NAME: Final = "structure.redo"
_MAGIC: Final = b"simlabR1"
_HEAD: Final = struct.Struct("<8sQQ")
_PIECE: Final = struct.Struct("<QQ")


def sync_folder(folder: Path) -> None:
    """Have the names in a folder reach the disk itself, where the system has a way to say so."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_redo(overlay: Overlay, folder: Path, sync: bool = False) -> Path:
    """Write the changes of an overlay to a redo file, which is there as a whole or not at all.

    Raises
    ------
    OSError
        If the disk refuses; nothing is changed then.
    """
    place, work = folder / NAME, folder / (NAME + ".new")
    try:
        with open(work, "wb") as file:
            crc = 0
            pieces = list(overlay.changes())
            parts = [_HEAD.pack(_MAGIC, len(overlay), len(pieces))]
            for offset, data in pieces:
                parts += [_PIECE.pack(offset, len(data)), data]
            for part in parts:
                crc = zlib.crc32(part, crc)
                file.write(part)
            file.write(struct.pack("<I", crc))
            file.flush()
            os.fsync(file.fileno())
        os.replace(work, place)
        if sync:
            sync_folder(folder)
    except OSError:
        work.unlink(missing_ok=True)
        raise
    return place


def read_redo(place: Path) -> tuple[int, list[tuple[int, bytes]]] | None:
    """Return the length of the file and the pieces of it that a redo file holds, or None if it is not whole."""
    try:
        raw = place.read_bytes()
    except FileNotFoundError:
        return None
    if len(raw) < _HEAD.size + 4 or struct.unpack("<I", raw[-4:])[0] != zlib.crc32(raw[:-4]):
        return None
    magic, size, count = _HEAD.unpack_from(raw)
    if magic != _MAGIC:
        return None
    pieces, at = [], _HEAD.size
    for _ in range(count):
        offset, n = _PIECE.unpack_from(raw, at)
        at += _PIECE.size
        pieces.append((offset, raw[at : at + n]))
        at += n
    return size, pieces


def redo_onto(overlay: Overlay, place: Path) -> None:
    """Make the changes of a redo file, if there is one, on an overlay."""
    found = read_redo(place)
    if found is None:
        return
    size, pieces = found
    for offset, data in pieces:
        overlay.seek(offset)
        overlay.write(data)
    if len(overlay) < size:
        overlay.truncate(size)
    overlay.seek(0)


def apply_redo(place: Path, path: Path, sync: bool = False, identity: tuple[int, int] | None = None) -> bool:
    """Apply a redo file to the run and remove it; say whether there was one. Doing it twice, or half and then whole, ends in the same file.

    Parameters
    ----------
    place, path : Path
        The redo file and the run.
    sync : bool, optional
        Have it reach the disk itself.
    identity : tuple of int, optional
        Device and inode of the run, where they are known: another file in its place is not touched.

    Raises
    ------
    OSError
        If the disk refuses; the redo file stays and may be applied later.
    """
    found = read_redo(place)
    if found is not None:
        size, pieces = found
        with open(path, "r+b", buffering=0) as file:
            there = os.fstat(file.fileno())
            if identity not in (None, (there.st_dev, there.st_ino)):
                place.unlink()
                raise FileNotFoundError(errno.ENOENT, "it was replaced by another file", str(path))
            for offset, data in pieces:
                file.seek(offset)
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            if os.fstat(file.fileno()).st_size < size:
                file.truncate(size)
            if sync:
                os.fsync(file.fileno())
    place.unlink(missing_ok=True)
    return found is not None
