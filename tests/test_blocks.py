"""Chunks for a browser: what it unpacks is what the Dataset holds, whatever the type, the filter and the part of the run."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.errors import InputError
from simlab.read.behind import behind
from simlab.storage.codec import unshuffle
from simlab.view.blocks import Presence, layout_of, read_block
from simlab.view.frames import Episode

STEPS = 90


def record(path: Path, dtype: str, shape: tuple[int, ...], agents: int = 3, compression: Any = "gzip", every: int = 1) -> xr.Dataset:
    dice = np.random.default_rng(3)
    with simlab.HDF5Logger(path, mode="w", compression=compression) as log:
        for _episode in range(2):
            log.begin_episode()
            for step in range(STEPS):
                for agent in range(agents):
                    if agent == 1 and 30 <= step < 41:
                        continue
                    value = dice.integers(0, 100, shape).astype(dtype)
                    log.log_agent_step(f"a{agent}", step, {"picture": value})
                log.log_env_step(step, {"world": dice.integers(0, 255, (6, 5)).astype("int16")} if step % every == 0 else {"n": step})
            log.end_episode()
    return simlab.open_run(path)


def unpack(header: dict[str, Any], buffers: list[bytes], dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Do what the browser does."""
    kind = np.dtype(dtype)
    if header.get("empty"):
        return np.zeros(shape, kind)
    octets = zlib.decompress(buffers[0]) if header["deflated"] else buffers[0]
    flat = np.frombuffer(octets, np.uint8)
    return (unshuffle(flat, kind) if header["shuffled"] else flat.view(kind)).reshape(shape)


def check(episode: Episode, name: str, *, shown: int = 1, every: int = 1, inflate: bool = True) -> bool:
    """Compare every picture of a variable, as a browser would find it, with the Dataset. Returns whether chunks were passed on."""
    layout = layout_of(episode, name, shown, every)
    presence = Presence(episode)
    dim = episode.agent_dim(name)
    people = episode.agents(dim) if dim is not None else [None]
    for place, agent in enumerate(people):
        wanted = episode.values(name, agent)[::every]
        there = episode.there(name, agent)[::every]
        for row in range(len(wanted)):
            block = (place + layout.agent_offset) // layout.agents
            chunk = (row + layout.offset) // layout.length
            header, buffers = read_block(episode, presence, name, layout, block, chunk, inflate)
            values = unpack(header, buffers, layout.dtype, (layout.agents, layout.length, *episode.own_shape(name)))
            at = row - header["first"]
            assert at < header["rows"]
            inside = (place + layout.agent_offset) % layout.agents
            spans = header["there"][inside] if "there" in header else [0, layout.length]
            assert there[row] == any(a <= at < b for a, b in zip(spans[::2], spans[1::2], strict=True))
            if there[row]:
                assert np.array_equal(values[inside, at], wanted[row].astype(layout.dtype)), (place, row)
    return layout.stored is not None and inflate


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "int64", "float32", "float64", "bool"])
def test_chunks_are_passed_on_as_they_lie(tmp_path: Path, dtype: str) -> None:
    with record(tmp_path / "run.h5", dtype, (48, 44)) as ds:
        assert check(Episode(ds, 1), "picture")


def test_chunks_of_several_agents(tmp_path: Path) -> None:
    with record(tmp_path / "run.h5", "uint8", (7, 7, 3), agents=6) as ds:
        assert check(Episode(ds, 1), "picture", shown=2)
        assert not check(Episode(ds, 1), "picture", shown=1), "a chunk of many agents is not worth it for one"
        part = ds.isel(agent=slice(3, 6))
        assert check(Episode(part, 0), "picture", shown=4)


@pytest.mark.parametrize("compression", [None, "lzf", 9])
def test_other_filters(tmp_path: Path, compression: Any) -> None:
    with record(tmp_path / "run.h5", "uint8", (48, 44), compression=compression) as ds:
        assert check(Episode(ds, 1), "picture") == (compression != "lzf")


def test_half_floats_come_decoded(tmp_path: Path) -> None:
    with record(tmp_path / "run.h5", "float16", (48, 44)) as ds:
        assert not check(Episode(ds, 0), "picture")


CHANGES: list[Callable[[xr.Dataset], xr.Dataset]] = [
    lambda ds: ds.load(),
    lambda ds: ds.assign(picture=ds.picture[..., ::-1]),
    lambda ds: ds.assign(picture=(ds.picture + 1).assign_attrs(ds.picture.attrs)),
    lambda ds: ds.isel(agent=[2, 0]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_dataset_shows_what_it_holds(tmp_path: Path, change: Callable[[xr.Dataset], xr.Dataset]) -> None:
    with record(tmp_path / "run.h5", "uint8", (48, 44)) as ds:
        assert not check(Episode(change(ds), 1), "picture")


def test_a_part_of_the_time(tmp_path: Path) -> None:
    with record(tmp_path / "run.h5", "uint8", (48, 44)) as ds:
        assert check(Episode(ds.isel(time=slice(17, 150)), 0), "picture")


@pytest.mark.parametrize("every", [1, 4])
def test_a_variable_of_the_environment(tmp_path: Path, every: int) -> None:
    with record(tmp_path / "run.h5", "uint8", (4, 4), every=every) as ds:
        assert check(Episode(ds, 1), "world")


def test_an_old_browser_gets_plain_numbers(tmp_path: Path) -> None:
    with record(tmp_path / "run.h5", "float32", (48, 44)) as ds:
        assert not check(Episode(ds, 0), "picture", inflate=False)


def test_thinned(tmp_path: Path) -> None:
    with record(tmp_path / "run.h5", "uint8", (48, 44)) as ds:
        assert not check(Episode(ds, 1), "picture", every=7)


def test_presence_is_asked_from_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simlab.view.blocks._LITTLE_PRESENCE", 0)
    monkeypatch.setattr("simlab.view.blocks._WINDOW", 1)
    monkeypatch.setattr("simlab.view.blocks._MOST_PRESENCE", 60)
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for step in range(64):
            log.log_agent_step("a", step, {"rewards": float(step)})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        presence = Presence(Episode(ds, 0))
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as pool:
                jobs = [pool.submit(presence, "rewards", slice(None), start, start + 30) for start in [*range(0, 34, 3)] * 20]
                assert all(job.result().all() for job in jobs)
        finally:
            sys.setswitchinterval(before)


def test_there_is_no_such_chunk(tmp_path: Path) -> None:
    with record(tmp_path / "run.h5", "uint8", (48, 44)) as ds:
        episode = Episode(ds, 0)
        for place in ((0, 99), (0, -1), (9, 0)):
            with pytest.raises(InputError, match="no chunk"):
                read_block(episode, Presence(episode), "picture", layout_of(episode, "picture"), *place)


def test_what_stands_behind(demo_run: Path) -> None:
    with simlab.open_run(demo_run) as ds:
        found = behind(ds.vision.isel(agent=slice(2, 5), time=slice(10, 90)).variable)
        assert found is not None
        assert found.starts[:2] == (2, 10)
        assert behind(ds.vision.isel(time=slice(None, None, 2)).variable) is None
        assert behind(ds.vision.isel(agent=[4, 1]).variable) is None
        assert behind(ds.vision.transpose("time", "agent", ...).variable) is None
        assert behind(xr.Variable("x", [1])) is None
