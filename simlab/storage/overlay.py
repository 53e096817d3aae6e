"""A file as it would be after changes that are kept in memory: what HDF5 writes goes into pages here, the file itself stays as it is.

Structure that appears while a run is recorded is made on such an overlay first (see `simlab.storage.redo`), and what a dead writer
left is put together on one without touching its file.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from typing import Any, Final

from simlab.storage.superblock import mended

PAGE: Final = 4096
_inside = threading.local()


class Overlay(io.RawIOBase):
    """A file object for ``h5py.File``; changes stay in memory.

    Parameters
    ----------
    path : path-like or None
        The file below; None for an empty one.
    mend : bool, optional
        Show the superblock of a file whose writer died as if it had been closed.

    Examples
    --------
    >>> import h5py
    >>> overlay = Overlay(None)
    >>> with h5py.File(overlay, "w") as file:
    ...     file["x"] = [1, 2, 3]
    >>> len(overlay) > 0, sum(len(data) for _, data in overlay.changes()) > 0
    (True, True)
    """

    def __init__(self, path: str | os.PathLike[str] | None, mend: bool = False) -> None:
        super().__init__()
        self._below = None if path is None else os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._base = 0 if self._below is None else os.fstat(self._below).st_size
        self._size = self._base
        self._at = 0
        self._pages: dict[int, bytearray] = {}
        if mend:
            self.seek(0)
            head = self.read(48)
            self.seek(0)
            self.write(mended(head, self._base))

    def __len__(self) -> int:
        """Return the length of the file with its changes."""
        return self._size

    def __bool__(self) -> bool:
        return True

    def changes(self) -> Iterator[tuple[int, bytes]]:
        """Yield offset and bytes of each run of pages that differs from the file below."""
        start, run = 0, bytearray()
        for number in sorted(self._pages):
            page = bytes(self._pages[number])[: max(0, self._size - number * PAGE)]
            if number * PAGE < self._base and page == self._fetch(number * PAGE, len(page)) and (number + 1) * PAGE <= self._base:
                continue
            if run and start + len(run) != number * PAGE:
                yield start, bytes(run)
                run = bytearray()
            if not run:
                start = number * PAGE
            run += page
        if run:
            yield start, bytes(run)

    def content(self) -> bytes:
        """Return the whole file with its changes."""
        self.seek(0)
        return self.read(self._size)

    def write_into(self, path: str | os.PathLike[str]) -> None:
        """Write the changes into a file that is like the one below."""
        with open(path, "r+b") as file:
            for offset, data in self.changes():
                file.seek(offset)
                file.write(data)
            file.truncate(self._size)

    # -- what h5py asks of a file object

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def writable(self) -> bool:
        """Say that it can be written."""
        return True

    def seekable(self) -> bool:
        """Say that it has places."""
        return True

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def truncate(self, size: int | None = None) -> int:
        """Set the length."""
        self._size = self._at if size is None else size
        return self._size

    def _fetch(self, offset: int, n: int) -> bytes:
        if self._below is None or offset >= self._base:
            return bytes(n)
        found = os.pread(self._below, n, offset) if hasattr(os, "pread") else self._fetch_by_seek(offset, n)
        return found if len(found) == n else found.ljust(n, b"\0")

    def _fetch_by_seek(self, offset: int, n: int) -> bytes:  # Windows has no pread
        assert self._below is not None
        os.lseek(self._below, offset, os.SEEK_SET)
        return os.read(self._below, n)

    @staticmethod
    def is_busy() -> bool:
        """Whether this thread is inside a call that HDF5 made: HDF5 cannot be called from there."""
        return getattr(_inside, "depth", 0) > 0

    def readinto(self, buffer: Any) -> int:
        """Read from the place on."""
        _inside.depth = getattr(_inside, "depth", 0) + 1
        try:
            return self._read_into(buffer)
        finally:
            _inside.depth -= 1

    def _read_into(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self._size - self._at))
        done = 0
        while done < wanted:
            number, inside = divmod(self._at + done, PAGE)
            page = self._pages.get(number)
            if page is not None:
                n = min(wanted - done, PAGE - inside)
                view[done : done + n] = page[inside : inside + n]
            else:  # as many pages as lie below unchanged, at once
                n = PAGE - inside
                while n < wanted - done and (self._at + done + n) // PAGE not in self._pages:
                    n += PAGE
                n = min(n, wanted - done)
                view[done : done + n] = self._fetch(self._at + done, n)
            done += n
        self._at += wanted
        return wanted

    def write(self, data: Any) -> int:
        """Write at the place; the file below is not touched."""
        _inside.depth = getattr(_inside, "depth", 0) + 1
        try:
            return self._write(data)
        finally:
            _inside.depth -= 1

    def _write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            number, inside = divmod(self._at + done, PAGE)
            n = min(len(view) - done, PAGE - inside)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(self._fetch(number * PAGE, PAGE) if n < PAGE else PAGE)
            page[inside : inside + n] = view[done : done + n]
            done += n
        self._at += done
        self._size = max(self._size, self._at)
        return done

    def flush(self) -> None:
        """Do nothing: there is no disk here."""

    def close(self) -> None:
        """Let go of the file below."""
        if self._below is not None:
            os.close(self._below)
            self._below = None
            self._base = 0
        super().close()
