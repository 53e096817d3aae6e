"""How fast a run is recorded, beside h5py on the same arrays.

Run ``python -m tests.benchmarks.record``; ``--runs 5`` is what docs/explanation/performance.md quotes. Every way runs in this
process, in turn, so that a machine that slows down slows all of them; the ratio of medians is what counts. Memory and import
times are taken in processes of their own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import simlab
from tests.benchmarks.workload import workload

Array = np.ndarray[Any, np.dtype[Any]]
Way = Callable[[Path], None]


def raw_bulk(arrays: dict[str, Array]) -> Way:
    """Return h5py's fastest: whole arrays, contiguous, no compression."""

    def way(path: Path) -> None:
        with h5py.File(path, "w") as f:
            for name, values in arrays.items():
                f[name] = values

    return way


def gzip_bulk(arrays: dict[str, Array]) -> Way:
    """Return whole arrays in chunks, gzip-4 with shuffle."""

    def way(path: Path) -> None:
        with h5py.File(path, "w") as f:
            for name, values in arrays.items():
                rows = 256 if values[0].nbytes < 20_000 else 16
                chunks = (rows, *values.shape[1:])
                f.create_dataset(name, data=values, chunks=chunks, compression="gzip", compression_opts=4, shuffle=True)

    return way


def row_append(arrays: dict[str, Array], steps: int) -> Way:
    """Return the usual hand-made logger: a dataset for each agent and variable, resized and written for each value."""

    def way(path: Path) -> None:
        n_agents = next(iter(arrays.values())).shape[1]
        with h5py.File(path, "w") as f:
            datasets: dict[tuple[int, str], h5py.Dataset] = {}
            for t in range(steps):
                for a in range(n_agents):
                    for name, values in arrays.items():
                        value = values[t, a]
                        if (a, name) not in datasets:
                            datasets[a, name] = f.create_dataset(
                                f"agent_{a}/{name}",
                                (0, *value.shape),
                                value.dtype,
                                maxshape=(None, *value.shape),
                                chunks=(256, *value.shape),
                            )
                        dataset = datasets[a, name]
                        dataset.resize(t + 1, axis=0)
                        dataset[t] = value

    return way


def log_step(arrays: dict[str, Array], durability: Any = "process") -> Way:
    """Return `log_step`: one call for all agents."""

    def way(path: Path) -> None:
        steps, n_agents = next(iter(arrays.values())).shape[:2]
        ids = [f"agent_{i}" for i in range(n_agents)]
        with simlab.HDF5Logger(path, mode="w", durability=durability) as log:
            for t in range(steps):
                log.log_step(t, agents={name: values[t] for name, values in arrays.items()}, agent_ids=ids)

    return way


def log_agent_step(arrays: dict[str, Array], durability: Any = "process") -> Way:
    """Return `log_agent_step`: one call for each agent and step."""

    def way(path: Path) -> None:
        steps, n_agents = next(iter(arrays.values())).shape[:2]
        ids = [f"agent_{i}" for i in range(n_agents)]
        items = list(arrays.items())
        with simlab.HDF5Logger(path, mode="w", durability=durability) as log:
            for t in range(steps):
                for a in range(n_agents):
                    log.log_agent_step(ids[a], t, {name: values[t, a] for name, values in items})

    return way


def short_lives(steps: int, alive: int, life: int) -> Way:
    """Return agents of which `alive` live at a time, each for `life` steps."""
    values = np.random.default_rng(0).normal(size=(alive, 16)).astype(np.float32)

    def way(path: Path) -> None:
        with simlab.HDF5Logger(path, mode="w") as log:
            for t in range(steps):
                first = max(0, (t - life) * alive // life)
                for a in range(first, t * alive // life):
                    log.log_agent_step(a, t, {"x": values[a % alive], "rewards": 0.5})

    return way


def measure(ways: dict[str, Way], runs: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Return the median seconds and the megabytes of each way."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    size: dict[str, float] = {}
    for _ in range(runs):
        for name, way in ways.items():
            path = folder / "benchmark.h5"
            path.unlink(missing_ok=True)
            began = time.perf_counter()
            way(path)
            seconds[name].append(time.perf_counter() - began)
            size[name] = path.stat().st_size / 1e6
    return {name: (statistics.median(times), size[name]) for name, times in seconds.items()}


def peak_memory(steps: int) -> float:
    """Return the peak memory, in MB, of a process that logs so many steps of made-up values (no arrays of the whole run)."""
    code = f"""
import re, tempfile, pathlib, numpy as np, simlab
rng = np.random.default_rng(0)
pool = [(rng.random((32, 11, 11, 3)) < 0.15).astype(np.float32) for _ in range(64)]
ids = [f"agent_{{i}}" for i in range(32)]
with tempfile.TemporaryDirectory() as folder:
    with simlab.HDF5Logger(pathlib.Path(folder) / "run.h5") as log:
        for t in range({steps}):
            log.log_step(t, agents={{"vision": pool[t % 64], "rewards": pool[t % 64][:, 0, 0, 0]}}, agent_ids=ids)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1000)  # ru_maxrss would tell the parent's
"""
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def import_seconds(module: str, runs: int) -> float:
    """Return the median seconds that a new interpreter takes for an import, with its own start taken off."""

    def once(statement: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - began

    pairs = [(once(f"import {module}"), once("pass")) for _ in range(2 * runs + 1)]
    return statistics.median(a - b for a, b in pairs)


def row(name: str, seconds: float, megabytes: float, note: str = "") -> None:
    """Print a line of the table."""
    print(f"| {name:58} | {seconds:8.3f} | {megabytes:7.1f} | {note}", flush=True)


def reference(runs: int, folder: Path) -> None:
    """Print the reference work."""
    arrays = workload()
    raw_megabytes = sum(v.nbytes for v in arrays.values()) / 1e6
    got = measure(
        {
            "h5py, whole arrays, raw": raw_bulk(arrays),
            "h5py, whole arrays, gzip-4 + shuffle": gzip_bulk(arrays),
            "log_step": log_step(arrays),
            "log_agent_step": log_agent_step(arrays),
            "log_step, no journal": log_step(arrays, "none"),
            "log_agent_step, no journal": log_agent_step(arrays, "none"),
        },
        runs,
        folder,
    )
    part = measure({"rows": row_append(arrays, 40)}, 1, folder)["rows"][0] * 100
    raw, gzip = got["h5py, whole arrays, raw"], got["h5py, whole arrays, gzip-4 + shuffle"]
    print(f"\n32 agents × 4,000 steps, {raw_megabytes:.0f} MB raw, medians of {runs}\n")
    print(f"| {'way':58} |  seconds |      MB | ratio")
    for name, (seconds, megabytes) in got.items():
        row(name, seconds, megabytes)
    row("h5py, one resize and write for each value (from 40 steps)", part, 0.0)
    step, agent = got["log_step"], got["log_agent_step"]
    print(f"\nlog_step is {raw[0] / step[0]:.2f}× as fast as h5py raw; its file is {raw_megabytes / step[1]:.1f}× smaller than raw")
    print(f"log_agent_step is {gzip[0] / agent[0]:.2f}× as fast as h5py gzip-4; its file is {agent[1] / gzip[1]:.3f}× the size")
    for name in ("log_step", "log_agent_step"):
        print(f"{name} takes {got[name][0] / got[name + ', no journal'][0]:.2f}× the time with the journal")
    print(f"log_agent_step is {part / agent[0]:.0f}× as fast as a resize and write for each value")


def crowds(runs: int, folder: Path) -> None:
    """Print many agents."""
    rng = np.random.default_rng(0)
    arrays = {"x": np.cumsum(rng.normal(size=(1000, 1000, 16)).astype(np.float32) * np.float32(0.05), 0, dtype=np.float32)}
    got = measure(
        {"raw": raw_bulk(arrays), "gzip": gzip_bulk(arrays), "step": log_step(arrays), "agent": log_agent_step(arrays)}, runs, folder
    )
    print("\n1,000 agents × 1,000 steps × 16 floats, 64 MB raw\n")
    row("h5py, whole arrays, raw", *got["raw"])
    row("h5py, whole arrays, gzip-4 + shuffle", *got["gzip"])
    row("log_step", *got["step"], f"{got['raw'][0] / got['step'][0]:.2f}× raw")
    row("log_agent_step", *got["agent"], f"{got['gzip'][0] / got['agent'][0]:.2f}× gzip-4; {got['agent'][0]:.2f} µs a call")
    lives = measure({"short": short_lives(5000, 200, 200)}, 1, folder)["short"]
    print("\n5,000 agents, 200 alive at a time, 5,000 steps, 16 floats and a reward\n")
    row("log_agent_step", *lives, f"{lives[0] / 0.98:.2f} µs a call")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each way; the median counts (default: 5)")
    runs = parser.parse_args().runs
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, numpy {np.__version__}, h5py {h5py.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference(runs, folder)
        crowds(runs, folder)
    short, long = statistics.median(peak_memory(4_000) for _ in range(3)), statistics.median(peak_memory(40_000) for _ in range(3))
    print(f"\npeak memory: 4,000 steps {short:.0f} MB, 40,000 steps {long:.0f} MB: {long / short:.3f}×")
    ours, theirs = import_seconds("simlab", runs), import_seconds("h5py", runs)
    logger = import_seconds("simlab.record.logger", runs)
    print(f"import simlab {ours * 1e3:.0f} ms, h5py {theirs * 1e3:.0f} ms: {ours / theirs:.2f}×; with HDF5Logger {logger / theirs:.2f}×")


if __name__ == "__main__":
    main()
