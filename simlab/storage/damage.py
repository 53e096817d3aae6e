"""What HDF5 and h5py raise for damaged or foreign data, and how it is told.

A file may be cut, flipped, or made by a program that means harm. Whatever h5py then raises is caught at the object that it concerns, so
that one odd object costs itself and nothing else; what is left out is a gap, and gaps are told.
"""

from __future__ import annotations

from typing import Final

ODD: Final = (
    OSError, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, SystemError, MemoryError,
)  # fmt: skip
"""What h5py raises for objects that are damaged, or that it has no word for (UnicodeError and NotImplementedError are among them)."""

_MOST: Final = 300


def reason(error: BaseException) -> str:
    r"""Return what an error says, on one line and short enough for a message.

    Examples
    --------
    >>> reason(KeyError("no such\n name"))
    'no such name'
    >>> reason(MemoryError())
    'MemoryError'
    """
    said = error.args[0] if isinstance(error, KeyError) and len(error.args) == 1 else error
    text = " ".join(str(said).split()) or type(error).__name__
    return text if len(text) <= _MOST else text[:_MOST] + "..."
