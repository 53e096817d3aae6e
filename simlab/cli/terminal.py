"""Text that is safe and readable in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def escape(text: object) -> str:
    r"""Return text in which nothing acts on a terminal: control characters, escape sequences, marks that turn the direction of writing.

    Examples
    --------
    >>> escape("\x1b[31mred\u202eabc")
    '\\x1b[31mred\\u202eabc'
    >>> escape("größe")
    'größe'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))


def size(count: float | None) -> str:
    """Return a number of bytes for people.

    Examples
    --------
    >>> size(999), size(12_345), size(None)
    ('999 B', '12.3 kB', '?')
    """
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if count < 1000 or unit == "PB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}" if count < 1000 else f"{count:,.0f} {unit}"
        count /= 1000
    raise AssertionError


def ratio(raw: int | None, stored: int | None) -> str:
    """Return how many times smaller the stored bytes are.

    Examples
    --------
    >>> ratio(1000, 100), ratio(1000, 0)
    ('10.0×', '-')
    """
    return f"{raw / stored:.1f}×" if raw and stored else "-"


def short(value: Any, most: int = 90) -> str:
    """Return a value on one line, escaped, cut where it is long."""
    text = escape(value if isinstance(value, str) else _plain(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_plain(item) for item in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def table(rows: Sequence[Sequence[str]], indent: str = "  ", right: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns; `right` lists the columns that are aligned on the right.

    Examples
    --------
    >>> table([["a", "10"], ["bcd", "5"]], right=[1])
    ['  a    10', '  bcd   5']
    """
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def count(n: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count(1, "agent"), count(2000, "agent")
    ('1 agent', '2,000 agents')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
