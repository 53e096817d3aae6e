"""A run file made by plain h5py from what docs/reference/file-format.md says, as somebody else's program would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

T, N, E = 300, 5, 3
NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable.%10d"
IDS = [f"agent_{i}é" for i in range(N)]
BORN = np.array([0, 10, 50, 120, 250])
VARIABLES = (
    "camera.rgb", "vision", "proprioception", "actions", "rewards", "done", "phase", "heat", "when", "word", "odd", "hunger"
)  # fmt: skip


def attributes(obj: h5py.HLObject, **given: Any) -> None:
    for name, value in given.items():
        obj.attrs.create(name, np.bytes_(value.encode()) if isinstance(value, str) else value)


def dimension(group: h5py.Group, name: str, size: int) -> h5py.Dataset:
    scale = group.create_dataset(name, shape=(size,), dtype=">f4", track_order=True)
    scale.make_scale(NOT_A_VARIABLE % size)
    return scale


def coordinate(group: h5py.Group, name: str, data: np.ndarray, **attrs: Any) -> h5py.Dataset:
    scale = group.create_dataset(name, data=data, maxshape=(None,), chunks=(1024,), track_order=True)
    scale.make_scale(name)
    attributes(scale, **attrs)
    return scale


def variable(
    group: h5py.Group,
    name: str,
    dims: list[h5py.Dataset],
    data: Any,
    chunks: tuple[int, ...] | None = None,
    options: Any = None,
    **attrs: Any,
) -> h5py.Dataset:
    data = np.asarray(data)
    options = {"compression": "gzip", "shuffle": True} if options is None and chunks else options or {}
    fill = {"fillvalue": np.nan} if data.dtype.kind == "f" else {}
    maxshape = tuple(d.maxshape[0] for d in dims) if chunks else None
    shape = {"shape": data.shape, "maxshape": maxshape, "chunks": chunks}
    out = group.create_dataset(name, dtype=data.dtype, track_order=True, **shape, **fill, **options)
    if chunks and len(chunks) > 1:
        for i in range(0, data.shape[0], chunks[0]):
            for j in range(0, data.shape[1], chunks[1]):
                block = data[i : i + chunks[0], j : j + chunks[1]]
                empty = np.isnan(block) if data.dtype.kind == "f" else block == np.zeros((), block.dtype)
                if not empty.all():  # absent is absent
                    out[i : i + chunks[0], j : j + chunks[1]] = block
    else:
        out[...] = data
    if dims:
        lists = np.empty(len(dims), dtype=object)
        for i, scale in enumerate(dims):
            lists[i] = np.array([scale.ref], dtype=h5py.ref_dtype)
        out.attrs.create("DIMENSION_LIST", lists, dtype=h5py.vlen_dtype(h5py.ref_dtype))
    attributes(out, **attrs)
    return out


def characters(texts: list[str]) -> np.ndarray:
    width = max(1, *(len(t.encode()) for t in texts))
    return np.array([t.encode() for t in texts], f"S{width}").reshape(-1, 1).view("S1").reshape(len(texts), width)


def labels(group: h5py.Group, name: str, dim: h5py.Dataset, texts: list[str]) -> None:
    data = characters(texts)
    variable(group, name, [dim, dimension(group, name + "_strlen", data.shape[1])], data, _Encoding="utf-8")


def values() -> dict[str, np.ndarray]:
    """What the run holds, in the types that were logged; absent values as readers show them."""
    rng = np.random.default_rng(0)
    alive = np.arange(T) >= BORN[:, None]
    out: dict[str, np.ndarray] = {
        "camera.rgb": rng.integers(1, 255, (N, T, 2, 2, 3), dtype=np.uint8),
        "vision": rng.integers(1, 255, (N, T, 7, 7, 3), dtype=np.uint8),
        "proprioception": rng.normal(size=(N, T, 4)).astype("f4"),
        "actions": rng.integers(0, 5, (N, T), dtype=np.int32),
        "rewards": np.arange(N * T, dtype="f4").reshape(N, T),
        "done": np.zeros((N, T), bool),
        "phase": (rng.normal(size=(N, T)) + 1j).astype("c8"),
        "heat": rng.normal(size=(N, T)).astype("f2"),
        "when": rng.integers(0, 10**15, (N, T)).astype("M8[us]"),
        "word": np.array([["ab", "é", "", "long word"][i % 4] for i in range(N * T)]).reshape(N, T),
        "odd": np.arange(N * T, dtype="i8").reshape(N, T) + 2**53 + 1,
        "hunger": rng.normal(size=(N, T)),
    }
    out["done"][:, 99::100] = True
    for name, array in out.items():
        fill = np.nan if array.dtype.kind == "f" else (np.nan + 1j * np.nan) if array.dtype.kind == "c" else np.zeros((), array.dtype)
        array[~alive] = fill.astype(array.dtype) if isinstance(fill, np.ndarray) else fill
        assert name in VARIABLES
    return out


def alive() -> np.ndarray:
    return np.arange(T) >= BORN[:, None]


def write(path: Path, name: str = "simulation_0001", mode: str = "w", version: str = "1.0", committed: int = T, ended: int = E) -> Path:
    """Write the file; `committed` rows count, `ended` of the three episodes were ended."""
    with h5py.File(path, mode, libver=("v110", "v110"), track_order=True, fs_strategy="page" if mode == "w" else None) as file:
        if mode == "w":
            attributes(file, Conventions="CF-1.11", simlab_format=version, source="by hand", history="2026-11-30 made by hand", title="t")
        _simulation(file.create_group(name, track_order=True), committed, ended)
    return path


def _simulation(run: h5py.Group, committed: int, ended: int) -> None:
    config = {"lr": 0.1, "wind": None, "shape": [3], "nested": {"a": [1, None]}}
    attributes(run, seed=np.int64(4), config=json.dumps(config), date="2026-11-30T00:00:00Z", environment_type="grid_world", lab="Gießen")
    attributes(run, step_duration=np.float64(0.1), tags='["a"]', flag="true", nothing="null", json_attributes='["tags", "flag", "nothing"]')
    time = coordinate(run, "time", np.arange(T, dtype="i8"), axis="T", long_name="run clock", units="1")
    agent = coordinate(run, "agent", np.arange(N, dtype="i4"), long_name="place of the agent")
    labels(run, "agent_id", agent, IDS)
    variable(run, "step", [time], np.arange(T, dtype="i4") % 100, (1024,), units="1")
    variable(run, "episode", [time], (np.arange(T) // 100).astype("i4"), (1024,), units="1")
    variable(run, "committed", [], np.int64(committed))
    variable(run, "complete", [], np.int8(ended == E and committed == T))
    v = values()
    agents = run.create_group("agents", track_order=True)
    seen = agents.create_group("observations", track_order=True)
    camera = seen.create_group("camera", track_order=True)
    states = agents.create_group("states", track_order=True)
    y, x, c = dimension(seen, "vision_y", 7), dimension(seen, "vision_x", 7), dimension(seen, "vision_channel", 3)
    labels(seen, "vision_channel_label", c, ["walls", "food", "agents"])
    own = [dimension(camera, f"camera_rgb_{s}", n) for s, n in (("y", 2), ("x", 2), ("channel", 3))]
    common = {"units": "1", "coordinates": "agent_id step episode"}
    obs, pair = {**common, "modality": "observations"}, [agent, time]
    variable(camera, "rgb", [*pair, *own], v["camera.rgb"], (2, 64, 2, 2, 3), original_name="camera.rgb", kind="image", **obs)
    variable(seen, "vision", [*pair, y, x, c], v["vision"], (1, 64, 7, 7, 3), **{**obs, "coordinates": "agent_id vision_channel_label"})
    variable(seen, "proprioception", [*pair, dimension(seen, "proprioception_channel", 4)], v["proprioception"], (4, 256, 4), **obs)
    actions = {**common, "modality": "actions", "flag_values": np.arange(5, dtype="i4"), "flag_meanings": "up down left right stay"}
    variable(agents, "actions", pair, v["actions"], (8, 1024), **actions)
    variable(agents, "rewards", pair, v["rewards"], (8, 1024), modality="rewards", **common)
    variable(agents, "done", pair, v["done"].astype("i1"), (8, 1024), dtype="bool", modality="terminations", coordinates="agent_id")
    part = dimension(seen, "phase_part", 2)
    variable(seen, "phase", [*pair, part], v["phase"].view("f4").reshape(N, T, 2), (2, 256, 2), simlab_dtype="complex64", **obs)
    variable(seen, "heat", pair, v["heat"].astype("f4"), (1, 32), options={"compression": "lzf"}, simlab_dtype="float16", **obs)
    when = {**obs, "units": "microseconds since 1970-01-01T00:00:00"}
    variable(seen, "when", pair, v["when"].view("i8"), (3, 100), simlab_dtype="M8[us]", **when)
    strlen = dimension(seen, "word_strlen", 9)
    text = characters(v["word"].ravel().tolist()).reshape(N, T, 9)
    variable(seen, "word", [*pair, strlen], text, (2, 200, 8), _Encoding="utf-8", modality="observations")
    variable(states, "odd", pair, v["odd"], (5, 300), options={}, **{**common, "modality": "states"})
    checked = {"compression": "gzip", "fletcher32": True}
    variable(states, "hunger", pair, v["hunger"], (5, 128), options=checked, **{**common, "modality": "states"})
    bits = (alive() * np.uint16((1 << len(VARIABLES)) - 1)).astype("u2")
    bits[2, 60:70] &= np.uint16(~(1 << VARIABLES.index("actions")) & 0xFFFF)
    masks = np.array([1 << i for i in range(len(VARIABLES))], "u2")
    variable(agents, "logged", pair, bits, (8, 1024), flag_masks=masks, flag_meanings=" ".join(VARIABLES))
    _environment(run, time)
    _episodes(run, ended)
    report = run.create_group("report", track_order=True)
    variable(report, "rows", [], np.int64(committed))
    variable(report, "seconds_logging", [], np.float64(0.5))


def _environment(run: h5py.Group, time: h5py.Dataset) -> None:
    world = run.create_group("environment", track_order=True)
    often = {"units": "1", "modality": "environment", "coordinates": "step episode"}
    food = np.where(np.arange(T) % 2 == 0, np.arange(T), 0).astype("i4")
    variable(world, "resource_count", [time], food, (1024,), **often)
    even = (np.arange(T) % 2 == 0).astype("u1")
    variable(world, "logged", [time], even, (1024,), flag_masks=np.array([1], "u1"), flag_meanings="resource_count")
    clock = coordinate(world, "state_snapshots_time", np.arange(0, T, 100, dtype="i8"), axis="T")
    square = [dimension(world, "state_snapshots_y", 6), dimension(world, "state_snapshots_x", 6)]
    grids = np.arange(3 * 36, dtype="i4").reshape(3, 6, 6)
    variable(world, "state_snapshots", [clock, *square], grids, (1, 6, 6), modality="environment", units="1", every=np.int32(100))
    clock = coordinate(world, "wind_time", np.arange(T, dtype="i8"), axis="T")
    wind = [clock, dimension(world, "wind_channel", 2)]
    variable(world, "wind", wind, np.arange(2 * T, dtype="f8").reshape(T, 2), (64, 2), modality="environment", units="m s-1")


def _episodes(run: h5py.Group, ended: int) -> None:
    table = run.create_group("episodes", track_order=True)
    dim = coordinate(table, "episode", np.arange(ended, dtype="i4"))
    variable(table, "start", [dim], np.arange(0, 100 * ended, 100, dtype="i8"), (256,))
    variable(table, "length", [dim], np.full(ended, 100, "i8"), (256,))
    variable(table, "seed", [dim], np.arange(ended, dtype="i8") + 7, (256,))
    variable(table, "return_mean", [dim], np.arange(ended, dtype="f8"), (256,))
    variable(table, "terminated", [dim], np.ones(ended, "i1"), (256,), dtype="bool")
    labels(table, "outcome", dim, ["starved", "won", "lost in the wööds"][:ended] or [""])
    names = ["seed", "return_mean", "terminated", "outcome"]
    given = np.full(ended, 15, "u1")
    given[:1] = 7
    variable(table, "logged", [dim], given, (256,), flag_masks=2 ** np.arange(4, dtype="u1"), flag_meanings=" ".join(names))
