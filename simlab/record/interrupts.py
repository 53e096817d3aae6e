"""Ctrl-C while a call of the logger is under way: it comes when the call is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_main = threading.main_thread().ident


class Uninterrupted:
    """A block that is not left halfway by an interrupt: rows that are handed over at that moment would be nobody's.

    The first interrupt is raised at the end of the block, a second one at once: somebody may wait for a disk that does not answer.
    Interrupts are raised in the main thread only; anywhere else there is nothing to do.
    """

    __slots__ = ("_before", "_came")

    def __enter__(self) -> Self:
        self._came: tuple[int, FrameType | None] | None = None
        self._before: Any = None
        if threading.get_ident() == _main:
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before = before
                signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came is None:
            self._came = (number, frame)
        else:
            self._before(number, frame)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._came is not None:
                self._before(*self._came)
