"""Random damage to a file, and the verdict on what a reader then says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests import hostile

Answers = dict[str, tuple[str, Any]]
KINDS = ("flip", "flips", "block", "zeros", "cut")
_OF_THE_FILE = ("info", "list_runs", "sizes")


def damage(whole: bytes, seed: int) -> bytes:
    """Return a damaged copy of a file; the same seed damages it the same way."""
    dice = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    if kind == "cut":
        return whole[: dice.randrange(len(whole))]
    broken = bytearray(whole)
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else dice.randrange(2, 100)):
            broken[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
    else:
        start, size = dice.randrange(len(whole)), dice.choice((16, 256, 4096))
        size = min(size, len(whole) - start)
        broken[start : start + size] = bytes(size) if kind == "zeros" else dice.randbytes(size)
    return bytes(broken)


def try_damage(folder: str, source: str, reference: Answers, seed: int) -> tuple[str, list[tuple[str, str]]]:
    """Damage a copy of a run, ask everything of it, and judge the answers."""
    path = Path(folder, "run.h5")
    path.write_bytes(damage(Path(source).read_bytes(), seed))
    answers = hostile.ask_everything(path)
    raw = [(question, str(value)) for question, (kind, value) in answers.items() if kind == "raw"]
    if raw:
        return "raw", raw
    changed = [q for q, (kind, value) in answers.items() if kind == "value" and q in reference and value != reference[q][1] and _counts(q)]
    if changed and not answers["warnings"][1]:
        return "unseen", [(q, str(answers[q][1])[:200]) for q in changed]
    told = any(kind == "told" for kind, _ in answers.values())
    return "told" if told else "right", []


def _counts(question: str) -> bool:
    return not question.startswith(_OF_THE_FILE)
