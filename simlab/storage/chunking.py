"""How big the chunks are: 256 KiB to 1 MiB of raw data where there is that much, powers of two in time."""

from __future__ import annotations

from typing import Final

TARGET_BYTES: Final = 1 << 19
LARGEST_BYTES: Final = 1 << 20
WIDE_ROW_BYTES: Final = 1 << 11
"""From this size on a value is read as a picture: one agent in a chunk, and few steps, so that scrubbing decodes little."""
WIDE_ROWS: Final = 64
SMALL_BLOCK_BYTES: Final = 1 << 14
SERIES_ROWS: Final = 16


def power_of_two_below(n: float) -> int:
    """Return the largest power of two that is not above `n`, and at least 1.

    Examples
    --------
    >>> power_of_two_below(49), power_of_two_below(64), power_of_two_below(0.3)
    (32, 64, 1)
    """
    return 1 << max(0, int(n).bit_length() - 1)


def chunk_of_agents(row_bytes: int, window: int, n_agents: int) -> tuple[int, int]:
    """Return how many agents and how many rows one chunk of an agent variable holds.

    Parameters
    ----------
    row_bytes : int
        Bytes of one stored value.
    window : int
        Rows that are staged together, a power of two; no chunk is longer.
    n_agents : int
        Agents that are known when the variable is made. More may come; those who are there tell how many to expect.

    Examples
    --------
    >>> chunk_of_agents(21168, 256, 16)          # a picture of 84 x 84 x 3
    (1, 32)
    >>> chunk_of_agents(64, 256, 32)             # 16 numbers
    (32, 256)
    >>> chunk_of_agents(4, 256, 1)
    (4, 256)
    """
    row_bytes = max(1, row_bytes)
    if row_bytes >= WIDE_ROW_BYTES:
        return 1, min(window, WIDE_ROWS, power_of_two_below(LARGEST_BYTES / row_bytes))
    block = row_bytes * window
    expected = 1 << max(0, n_agents - 1).bit_length()
    if block <= SMALL_BLOCK_BYTES:
        expected = max(4, expected)
    return min(expected, power_of_two_below(max(TARGET_BYTES, LARGEST_BYTES if block > TARGET_BYTES / 2 else 0) / block)), window


def chunk_of_series(row_bytes: int) -> int:
    """Return how many rows one chunk of a variable with a time axis of its own holds.

    Examples
    --------
    >>> chunk_of_series(64 * 64 * 4), chunk_of_series(10_000_000)
    (16, 1)
    """
    return min(SERIES_ROWS, power_of_two_below(LARGEST_BYTES / max(1, row_bytes)))
