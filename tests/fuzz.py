"""Random damage: bytes flipped, blocks overwritten, ends cut. By hand: ``python -m tests.fuzz --cases 5000``.

Every case is one of

- right: every answer is that of the whole file;
- told: a warning or an error of simlab says what is wrong;
- unseen: a value differs and nothing was said. HDF5 keeps no checksum of data that are not compressed (labels, small attachments),
  and of the references that name the axes;
- raw: an error that is not simlab's;
- crash, hang: HDF5's own, on damaged metadata. They cannot be caught in the process that reads; a reader of files of strangers
  reads them in a process apart, as this does.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import hostile
from tests.apart import run_apart
from tests.random_damage import try_damage


def run(source: Path, seeds: range) -> Iterator[tuple[int, str, Any]]:
    """Yield seed, verdict and details of each case."""
    reference = hostile.ask_everything(source)
    wrong = {q: a for q, a in reference.items() if a[0] != "value"}
    assert not wrong, f"the whole file already has {wrong}"
    for case, outcome, value in run_apart(try_damage, ((seed,) for seed in seeds), (str(source), reference), limit=20):
        yield (case[0], *value) if outcome == "done" else (case[0], outcome, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--hostile", action="store_true", help="every single mutation of tests/hostile.py in place of random damage")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "whole.h5")
        hostile.small_run(source)
        count: Counter[str] = Counter()
        if given.hostile:
            for case, outcome, raw in run_apart(hostile.try_mutation, ((name,) for name in hostile.MUTATIONS), (str(source),)):
                count["raw" if outcome == "done" and raw else outcome] += 1
                if outcome != "done" or raw:
                    print(f"{case[0]}: {outcome} {str(raw)[:400]}", flush=True)
            print(dict(count))
            return
        for seed, verdict, details in run(source, range(given.first, given.first + given.cases)):
            count[verdict] += 1
            if verdict not in ("right", "told"):
                print(f"{seed}: {verdict} {str(details)[:400]}", flush=True)
        print(dict(count))


if __name__ == "__main__":
    main()
