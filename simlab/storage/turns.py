"""Whether the structure of a run is being changed: who reads beside its writer asks before and after.

New structure is applied to the file page by page. Each page is whole at any instant, but not all of them together: a reader in between
may see a variable and not the bits that belong to it. So the writer counts, before the first page and after the last one; a reader
that finds another number than before reads again. No lock is taken.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NAME: Final = "structure.turn"
_MARK: Final = 8
_STORM_SECONDS: Final = 1.0
_STORM_CHANGES: Final = 10
_PAUSE_SECONDS: Final = 0.15


class Turns:
    """The writer's side.

    Parameters
    ----------
    folder : Path
        The run's sidecar folder.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> turns, before = Turns(folder), turn(folder)
    >>> with turns.change():
    ...     is_steady(turn(folder))
    False
    >>> is_steady(turn(folder)), turn(folder) == before
    (True, False)
    """

    def __init__(self, folder: Path) -> None:
        self._place = folder / NAME
        self._mark = os.urandom(_MARK)  # another writer's numbers are others
        self._count = 0
        self._let_in_at, self._let_in_last = 0, 0.0

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Change the file inside. If that fails halfway, readers wait until it is done again and succeeds."""
        self._tell(1 + self._count % 2)  # one that failed left an odd number
        yield
        self._tell(1)
        self._let_readers_in()

    def _let_readers_in(self) -> None:
        """Pause now and then where one change follows the other: readers, who start over with every change, would wait for ever."""
        now = time.monotonic()
        if now - self._let_in_last > _STORM_SECONDS:
            if self._count - self._let_in_at > 2 * _STORM_CHANGES:
                time.sleep(_PAUSE_SECONDS)
            self._let_in_at, self._let_in_last = self._count, time.monotonic()

    def _tell(self, more: int) -> None:
        self._count += more
        number = os.open(self._place, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        try:
            os.write(number, self._mark + self._count.to_bytes(_MARK, "little"))
        finally:
            os.close(number)


def turn(folder: Path) -> bytes:
    """Return what changes with every change of structure; empty where there was none."""
    try:
        return (folder / NAME).read_bytes()
    except OSError:
        return b""


def is_steady(told: bytes) -> bool:
    """Whether no change was under way when this was told."""
    return not told or (len(told) == 2 * _MARK and told[_MARK] % 2 == 0)
