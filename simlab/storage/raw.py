"""Chunks as they lie in the file, for a reader that decodes them elsewhere: a browser inflates what deflate has packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simlab.errors import SimlabError, StateError, StorageError
from simlab.storage.decoding import DEFLATE, SHUFFLE
from simlab.storage.reading import StoredVariable
from simlab.storage.written import never_written

_SIMPLE: Final = ((), (SHUFFLE,), (DEFLATE,), (SHUFFLE, DEFLATE))
_LARGEST: Final = 4 << 20
"""Raw bytes of a chunk that is passed on whole; of a larger one the reader wants a part."""


@dataclass(frozen=True, slots=True)
class RawChunk:
    """One chunk as it lies in the file.

    Attributes
    ----------
    octets : bytes
        What is stored.
    deflated : bool
        Whether it is a zlib stream.
    shuffled : bool
        Whether the bytes of its elements are sorted by significance (inside the zlib stream).
    """

    octets: bytes
    deflated: bool
    shuffled: bool


def passes_through(stored: StoredVariable, axes: int) -> bool:
    """Say whether chunks of a variable can be decoded by a simple reader, and hold whole values.

    Parameters
    ----------
    stored : StoredVariable
        The variable.
    axes : int
        How many axes come before those of one value: agent and time, or time alone.
    """
    if stored.chunks is None or stored.tail or stored.filters not in _SIMPLE or stored.stored.kind not in "iuf":
        return False
    if stored.stored.itemsize > 1 and stored.stored.byteorder not in "=|<":
        return False
    as_stored = stored.dtype == stored.stored.newbyteorder("=") or (stored.dtype.kind == "b" and stored.stored.itemsize == 1)
    size = stored.stored.itemsize
    for n in stored.chunks:
        size *= n
    return as_stored and size <= _LARGEST and stored.chunks[axes:] == stored.shape[axes:]


def read_raw(stored: StoredVariable, offset: tuple[int, ...]) -> RawChunk | None:
    """Read the chunk that begins at an offset, without decoding it.

    Parameters
    ----------
    stored : StoredVariable
        A variable that `passes_through`.
    offset : tuple of int
        Where the chunk begins, for each axis.

    Returns
    -------
    RawChunk or None
        None where nothing was ever written.

    Raises
    ------
    StateError
        If the file was closed, replaced or written again.
    StorageError
        If the chunk cannot be read.
    """
    try:
        dataset = stored.source.dataset(stored.path).id
        try:
            mask, octets = dataset.read_direct_chunk(offset)
        except (RuntimeError, OSError, ValueError, MemoryError, SystemError) as error:
            if not never_written(dataset, offset, error):
                raise
            return None
    except (OSError, RuntimeError, ValueError, KeyError, MemoryError, SystemError) as error:
        if isinstance(error, SimlabError):
            raise
        if stored.source.closed:
            raise StateError(f"{stored.source.path!r} was closed. Open the run again.") from error
        raise StorageError(f"A chunk of {stored.path!r} in {stored.source.path!r} could not be read: {error}") from error
    applied = [f for i, f in enumerate(stored.filters) if not mask >> i & 1]
    return RawChunk(octets, DEFLATE in applied, SHUFFLE in applied and stored.stored.itemsize > 1)
