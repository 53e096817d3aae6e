"""Chunks on their way to the file: encoded in a pool of threads, written in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from simlab.staging.sealing import Chunk, Encoded, encode_batch
from simlab.storage.writable import PAGE_SIZE

ENCODERS: Final = 2
"""Deflate in two threads keeps up with any simulation that Python drives; more would take its cores."""
BATCH_BYTES: Final = 2 << 20
"""Raw bytes that one encoder takes at a time."""
_MOST_PENDING: Final = 4 * ENCODERS
"""Batches that are encoded, or wait for it, before the first of them is written."""


class Encoders:
    """The threads that encode."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(ENCODERS, thread_name_prefix="simlab-encode")

    def stop(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def begin(self, chunks: Iterator[Chunk]) -> Encoding:
        """Begin to encode chunks; what is encoded waits to be written."""
        return Encoding(chunks, self._encode_soon)

    def _encode_soon(self, batch: list[Chunk]) -> Future[list[Encoded]]:
        try:
            return self._pool.submit(encode_batch, batch)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads: encode here
            done: Future[list[Encoded]] = Future()
            done.set_result(encode_batch(batch))
            return done


class Encoding:
    """Chunks that are being encoded in the pool, many at a time.

    Every hand-over between threads may have to wait for the simulation to let go of the interpreter; few large ones do least.

    Parameters
    ----------
    chunks : iterator of Chunk
        What to encode; no more of it is taken than is encoded soon.
    encode_soon : callable
        Gives chunks to an encoder.
    """

    def __init__(self, chunks: Iterator[Chunk], encode_soon: Callable[[list[Chunk]], Future[list[Encoded]]]) -> None:
        self._chunks, self._encode_soon = chunks, encode_soon
        self._pending: deque[Future[list[Encoded]]] = deque()
        self._go_on()

    def _go_on(self) -> None:
        """Keep the encoders busy."""
        while len(self._pending) < _MOST_PENDING and (batch := self._next_batch()):
            self._pending.append(self._encode_soon(batch))

    def _next_batch(self) -> list[Chunk]:
        batch: list[Chunk] = []
        size = 0
        for chunk in self._chunks:
            if chunk.column.variable.is_text:
                chunk.trim_text()
            batch.append(chunk)
            size += chunk.values.nbytes
            if size >= BATCH_BYTES:
                break
        return batch

    def write(self, nearly_done: Callable[[], None]) -> None:
        """Write the chunks in order, each as soon as it is encoded.

        Parameters
        ----------
        nearly_done : callable
            Is called once, when encoders are about to run out of work.
        """
        told = False
        while self._pending:
            if not told and len(self._pending) <= ENCODERS:
                told = True
                nearly_done()
            put(self._pending.popleft().result())
            self._go_on()


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
