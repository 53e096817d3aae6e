"""Every way in which one thing of a run file can be wrong: right data, a told gap or an error of ours; never a raw error, crash or hang."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tests import fuzz, hostile
from tests.apart import run_apart

SHARES = 4
FUZZED = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "whole.h5"
    hostile.small_run(path)
    return path


def test_of_a_whole_file_there_is_nothing_to_tell(whole: Path) -> None:
    assert not {question: answer for question, answer in hostile.ask_everything(whole).items() if answer[0] != "value"}


def test_one_thing_is_wrong(whole: Path) -> None:
    odd = [name for name in hostile.MUTATIONS if name.startswith("attribute_") or "_is_" in name or "_axis_" in name]
    some = [name for name in odd if zlib.crc32(name.encode()) % SHARES == 0]  # all of them: python -m tests.fuzz --hostile
    names = [*(name for name in hostile.MUTATIONS if name not in odd), *some]
    outcomes = {case[0]: (outcome, raw) for case, outcome, raw in run_apart(hostile.try_mutation, ((n,) for n in names), (str(whole),))}
    assert len(outcomes) == len(names) > 200
    assert not {name: told for name, told in outcomes.items() if told != ("done", [])}


def test_random_damage(whole: Path) -> None:
    verdicts = {seed: (verdict, details) for seed, verdict, details in fuzz.run(whole, range(FUZZED))}
    assert len(verdicts) == FUZZED
    assert not {seed: told for seed, told in verdicts.items() if told[0] == "raw"}
    # HDF5 itself may crash, or go round in circles, on damaged metadata; no more than now and then.
    assert sum(verdict in ("crash", "hang") for verdict, _ in verdicts.values()) <= FUZZED // 50
    # Nothing but what HDF5 keeps no checksum of passes unseen: attachments and labels that are not compressed.
    unseen = {question for verdict, details in verdicts.values() if verdict == "unseen" for question, _ in details}
    assert not {question for question in unseen if question.startswith(("variable", "part of", "present", "transitions"))}
