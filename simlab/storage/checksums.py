"""HDF5's Fletcher-32 checksum of a chunk: four bytes at its end, over the bytes as they lie in the file."""

from __future__ import annotations

from typing import Final

import numpy as np

_MODULUS: Final = 0xFFFF
_BLOCK: Final = 1 << 17
"""Words that are summed at once: their weighted sum is exact in float64."""
_BYTES: Final = 4


def fletcher32(octets: bytes | memoryview) -> int:
    """Return the checksum that HDF5's filter "fletcher32" puts behind the bytes of a chunk.

    The sums of HDF5 fold their carry back, so they are never zero once a byte was not: 65535 stands for it.

    Examples
    --------
    >>> hex(fletcher32(b"abcde"))
    '0x4ff029c7'
    """
    even = len(octets) // 2 * 2
    words = np.frombuffer(octets, ">u2", even // 2)
    if len(octets) > even:
        words = np.append(words, np.array(octets[-1] << 8, ">u2"))
    first = second = 0
    seen = False
    for start in range(0, words.size, _BLOCK):
        block = words[start : start + _BLOCK].astype(np.float64)
        total = int(block.sum())
        second = (second + block.size * first + int(block @ np.arange(block.size, 0, -1.0))) % _MODULUS
        first = (first + total) % _MODULUS
        seen = seen or total > 0
    return ((second or _MODULUS) << 16 | (first or _MODULUS)) if seen else 0


def verify_fletcher32(chunk: bytes) -> bytes:
    """Return the bytes of a chunk without the checksum behind them.

    Raises
    ------
    ValueError
        If the checksum is not theirs.
    """
    if len(chunk) < _BYTES:
        raise ValueError(f"the chunk has {len(chunk)} bytes, not even those of its checksum")
    octets, told = chunk[:-_BYTES], int.from_bytes(chunk[-_BYTES:], "little")
    found = fletcher32(octets)
    # HDF5 1.6.2 swapped the bytes of each half, and every later version takes that too.
    swapped = (found & 0x00FF00FF) << 8 | (found >> 8) & 0x00FF00FF
    if told not in (found, swapped):
        raise ValueError(f"the chunk's checksum is wrong: {told:08x} is stored, its bytes make {found:08x}")
    return octets
