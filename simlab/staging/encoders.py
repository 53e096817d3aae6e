"""Chunks on their way to the file: encoded in a pool of threads, written in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from simlab.staging.sealing import Chunk, Encoded, encode_batch
from simlab.storage.writable import PAGE_SIZE

ENCODERS: Final = 2
"""Deflate in two threads keeps up with any simulation that Python drives; more would take its cores."""
BATCH_BYTES: Final = 2 << 20
"""Raw bytes that one encoder takes at a time."""


class Encoders:
    """The threads that encode."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(ENCODERS, thread_name_prefix="simlab-encode")

    def stop(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def write(self, chunks: Iterator[Chunk]) -> None:
        """Encode chunks in the pool, many at a time, and write them in order.

        Every hand-over between threads may have to wait for the simulation to let go of the interpreter; few large ones do least.
        """
        pending: deque[Future[list[Encoded]]] = deque()
        batch: list[Chunk] = []
        size = 0
        for chunk in chunks:
            if chunk.column.variable.is_text:
                chunk.trim_text()
            batch.append(chunk)
            size += chunk.values.nbytes
            if size >= BATCH_BYTES:
                pending.append(self._encode_soon(batch))
                batch, size = [], 0
                if len(pending) > 4 * ENCODERS:
                    self.put(pending.popleft().result())
        if batch:
            pending.append(self._encode_soon(batch))
        while pending:
            self.put(pending.popleft().result())

    def _encode_soon(self, batch: list[Chunk]) -> Future[list[Encoded]]:
        try:
            return self._pool.submit(encode_batch, batch)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads: encode here
            done: Future[list[Encoded]] = Future()
            done.set_result(encode_batch(batch))
            return done

    @staticmethod
    def put(encoded: list[Encoded]) -> None:
        """Write encoded chunks."""
        for column, offset, raw in encoded:
            if column.compression.direct:
                column.file.make_room(len(raw) + PAGE_SIZE if isinstance(raw, bytes) else raw.nbytes + PAGE_SIZE)
                column.dataset.id.write_direct_chunk(offset, raw)
                continue
            column.file.make_room(raw.nbytes + PAGE_SIZE)
            shape = column.dataset.shape
            at = tuple(slice(o, min(o + n, m)) for o, n, m in zip(offset, raw.shape, shape, strict=True))
            column.dataset[at] = raw[tuple(slice(0, s.stop - s.start) for s in at)]
