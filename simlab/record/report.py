"""What the logger did: counted, never silent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Report:
    """What a logger recorded and what it had to do to the values.

    Attributes
    ----------
    rows, agents, episodes : int
        Rows of the run, agents that ever logged, episodes that were opened.
    values : int
        Values that were logged: one for each variable, agent and step.
    bytes_raw, bytes_stored : int
        Bytes of those values, and bytes of the file's chunks that hold them.
    overwritten : int
        Values that replaced one of the same variable, agent and step.
    coerced : int
        Values whose type was not the variable's and was converted, none of them changed beyond rounding to the declared float.
    late : int
        Values that came after their rows were on disk and were merged there.
    dropped : int
        Values that could not be kept, because the disk refused them, or was too slow for them (``drop_when_slow``).
    seconds_logging : float
        Time spent inside ``log_*`` calls, without waiting (estimated from one in 64 calls by agent, drawn by lot).
    seconds_waiting : float
        Time the simulation had to wait for the disk or the encoder.
    seconds_open : float
        Time between opening and finalizing.

    Examples
    --------
    >>> print(Report(rows=10, agents=2, episodes=1, values=40, bytes_raw=400, bytes_stored=100))
    10 rows, 2 agents, 1 episode; 40 values, 400 B raw in 100 B (4.0×)
    """

    rows: int = 0
    agents: int = 0
    episodes: int = 0
    values: int = 0
    bytes_raw: int = 0
    bytes_stored: int = 0
    overwritten: int = 0
    coerced: int = 0
    late: int = 0
    dropped: int = 0
    seconds_logging: float = 0.0
    seconds_waiting: float = 0.0
    seconds_open: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the counters by name."""
        return asdict(self)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{n:,} {noun if n == 1 else noun + 's'}"
            for n, noun in ((self.rows, "row"), (self.agents, "agent"), (self.episodes, "episode"))
        )
        ratio = f" ({self.bytes_raw / self.bytes_stored:.1f}×)" if self.bytes_stored else ""
        sizes = f"{self.values:,} values, {_bytes(self.bytes_raw)} raw in {_bytes(self.bytes_stored)}{ratio}"
        odd = [f"{n:,} {what}" for what in ("overwritten", "coerced", "late", "dropped") if (n := getattr(self, what))]
        return "; ".join([counts, sizes, *odd])


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"
