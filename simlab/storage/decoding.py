"""Chunks decoded into a result, a few at a time, in a small pool of threads; and filters that are not there."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final

import h5py
import numpy as np

from simlab.errors import StorageError
from simlab.storage.checksums import verify_fletcher32
from simlab.storage.codec import decode_chunk
from simlab.storage.dtypes import Array
from simlab.storage.selection import Piece, copy_piece

DEFLATE: Final = int(h5py.h5z.FILTER_DEFLATE)
SHUFFLE: Final = int(h5py.h5z.FILTER_SHUFFLE)
FLETCHER32: Final = int(h5py.h5z.FILTER_FLETCHER32)
_COMPRESSIONS: Final = ((), (SHUFFLE,), (DEFLATE,), (SHUFFLE, DEFLATE))
DIRECT: Final = (*_COMPRESSIONS, *((*filters, FLETCHER32) for filters in _COMPRESSIONS))
"""Pipelines that are undone here; others go through HDF5."""
PLUGIN_NAMES: Final = {
    307: "bzip2", 32000: "lzf", 32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd", 32026: "blosc2",
}  # fmt: skip
_INLINE_BYTES: Final = 1 << 19
"""Below this much raw data a thread costs more than it saves."""

Job = tuple[tuple[int, ...], bytes, int, tuple[Piece, ...], tuple[Piece, ...]]
"""Where a chunk begins, its bytes as they lie in the file, its filter mask, what to take of it, and where that goes."""

_pool: ThreadPoolExecutor | None = None
_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _forget_pool() -> None:
    # The threads of a parent do not live in its forked child.
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _decoders() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(min(8, max(2, _threads)), thread_name_prefix="simlab-decode")
    return _pool


def decode_into(
    result: Array,
    stored: np.dtype[Any],
    chunks: tuple[int, ...],
    filters: tuple[int, ...],
    raw: bytes,
    mask: int,
    inside: tuple[Piece, ...],
    where: tuple[Piece, ...],
) -> None:
    """Decode one chunk and copy what is wanted of it to its place in `result`.

    Raises
    ------
    ValueError
        If its checksum is wrong, or it decodes to something else than a chunk.
    """
    # Bit i of the mask: filter i was left out for this chunk.
    applied = [f for i, f in enumerate(filters) if not mask >> i & 1]
    if FLETCHER32 in applied:
        raw = verify_fletcher32(raw)
    copy_piece(result, where, decode_chunk(raw, stored, chunks, SHUFFLE in applied, DEFLATE in applied), inside)


def decode_all(decode: Callable[..., None], jobs: Iterator[Job], chunk_bytes: int, chunks: int) -> None:
    """Run `decode` on every job, in threads where there is enough to do.

    Parameters
    ----------
    decode : callable
        Takes the entries of a job.
    jobs : iterator of Job
        Taken from in this thread only: it reads the file.
    chunk_bytes, chunks : int
        Raw size of a chunk, and how many there are at most.
    """
    if _threads == 1 or chunk_bytes * chunks <= _INLINE_BYTES:
        _run_inline(decode, jobs)
    else:
        _run_in_threads(decode, jobs, max(1, _INLINE_BYTES // max(1, chunk_bytes)))


def _run_inline(decode: Callable[..., None], jobs: Iterator[Job]) -> None:
    for job in jobs:
        decode(*job)


def _run_in_threads(decode: Callable[..., None], jobs: Iterator[Job], chunks_at_once: int) -> None:
    """Decode in the pool. Only a few compressed chunks wait at any time, so memory does not grow with what is read."""
    pool = _decoders()
    waiting: deque[Future[None]] = deque()
    try:
        while batch := list(islice(jobs, chunks_at_once)):
            if len(waiting) >= 2 * min(8, max(2, _threads)):
                waiting.popleft().result()
            waiting.append(pool.submit(_run_inline, decode, iter(batch)))
        while waiting:
            waiting.popleft().result()
    finally:
        # After an error the others still write into the result: let them end before it goes away.
        for future in waiting:
            if not future.cancel():
                future.exception()


def ensure_filters(path: str, filters: tuple[int, ...]) -> None:
    """Make sure that HDF5 knows the filters of a dataset.

    Raises
    ------
    StorageError
        If one is not installed; the message names it.
    """
    missing = [f for f in filters if not h5py.h5z.filter_avail(f)]
    if not missing:
        return
    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401  (registers its filters)
    for number in missing:
        if not h5py.h5z.filter_avail(number):
            name = PLUGIN_NAMES.get(number, "")
            raise StorageError(
                f"{path!r} is compressed with {f'{name} (HDF5 filter {number})' if name else f'HDF5 filter {number}'}, which is not "
                "installed; the other variables can be read. Add it with: python -m pip install hdf5plugin"
            )
