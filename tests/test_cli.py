"""The command line: what it prints, its exit codes, and that bad input never ends in a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

import simlab
from simlab.cli import main
from simlab.cli.facts import plain
from simlab.cli.terminal import escape, ratio, short, size


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    assert main([str(a) for a in arguments]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    if code:
        assert err
    return out if code == 0 else err


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def shell(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "simlab", *arguments], capture_output=True, text=True, check=False, **options)


# -- info on runs


def test_info_tells_what_is_in_a_run(demo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "info", demo_run)
    for part in ("a simlab run, format 1.0", "simulation_0001", "6 episodes of", "1,252 rows", "24 agents", "grid_world", "config.sight"):
        assert part in out
    for part in ("vision", "uint8", "agent 24 × time 1252 × y 11 × x 11 × channel 3", "gzip", "bool as int8", "times smaller", "open_run("):
        assert part in out


def test_info_as_json_has_stable_keys(demo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = strict(told(capsys, "info", demo_run, "--json"))
    assert list(facts) == ["path", "kind", "file_bytes", "format", "source", "simulations"]
    [run] = facts["simulations"]
    assert list(run) == [
        "name", "complete", "state", "rows", "agents", "populations", "episodes", "episode_lengths", "episode_fields", "seed", "date",
        "environment_type", "config", "attributes", "attachments", "variables", "raw_bytes", "stored_bytes", "report",
        "problems",
    ]  # fmt: skip
    assert (run["complete"], run["episodes"], run["seed"], run["config"]["sight"]) == (True, 6, 7, 5)
    vision = next(v for v in run["variables"] if v["name"] == "vision")
    assert list(vision) == [
        "name", "modality", "population", "dtype", "dims", "shape", "units", "long_name", "path", "stored_dtype", "chunks", "filters",
        "missing_filters", "raw_bytes", "stored_bytes",
    ]  # fmt: skip
    with h5py.File(demo_run) as file:
        for variable in run["variables"]:
            dataset = file[variable["path"]]
            assert tuple(variable["chunks"]) == dataset.chunks
            assert variable["stored_bytes"] == dataset.id.get_storage_size()
    assert run["report"]["rows"] == run["rows"]


def test_info_lists_several_simulations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.h5"
    for name in ("teacher_0000/iter_0003", "teacher_0000/iter_0020", "odd"):
        with simlab.HDF5Logger(path, mode="a", simulation=name, seed=3) as log:
            log.log_agent_step("a", 0, {"rewards": 1.0})
    with h5py.File(path, "r+") as file:
        file.move("odd", "odd \x1b[31m name")
    out = told(capsys, "info", path)
    assert "3 simulations" in out
    assert out.index("iter_0003") < out.index("iter_0020")
    assert "\x1b" not in out
    out = told(capsys, "info", path, "--simulation", "teacher_0000/iter_0020")
    assert "simulation='teacher_0000/iter_0020'" in out
    assert len(strict(told(capsys, "info", path, "--json"))["simulations"]) == 3
    assert "nonsense" in told(capsys, "info", path, "--simulation", "nonsense", code=1)


def test_info_on_runs_with_nothing_in_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with simlab.HDF5Logger(tmp_path / "a.h5"):
        pass
    assert "0 episodes, 0 rows, 0 agents" in told(capsys, "info", tmp_path / "a.h5")
    strict(told(capsys, "info", tmp_path / "a.h5", "--json"))


def test_info_escapes_what_a_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2066\r\n\u200bx"
    with simlab.HDF5Logger(tmp_path / "a.h5", config={evil: evil, "nan": float("nan")}, metadata={"note": evil}) as log:
        log.log_agent_step(evil, 0, {"rewards": 1.0})
        log.end_episode(remark=evil)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset(evil.replace("/", ""), data=np.zeros(3))
        file.attrs[evil] = evil
        file[evil + "2"] = h5py.SoftLink(evil)
    for path in ("a.h5", "b.h5"):
        out = told(capsys, "info", tmp_path / path)
        assert all(c.isprintable() for line in out.split("\n") for c in line)
        facts = told(capsys, "info", tmp_path / path, "--json")
        strict(facts)
        assert facts.isascii()


# -- info on other files


def test_info_shows_a_foreign_file_as_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(tmp_path / "robomimic.hdf5", "w") as file:
        for i in range(12):
            demo = file.create_group(f"data/demo_{i}")
            demo.create_dataset("actions", (50, 7), "f4", compression="gzip")
            demo.create_dataset("obs/agentview_image", (50, 84, 84, 3), "u1", chunks=(1, 84, 84, 3), compression="lzf")
            demo.attrs["num_samples"] = 50
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/x")
    out = told(capsys, "info", tmp_path / "robomimic.hdf5")
    for part in (
        "HDF5, not written by simlab",
        "demo_11/",
        "agentview_image",
        "50 × 84 × 84 × 3",
        "lzf",
        "@num_samples = 50",
        "h5py.File(",
    ):
        assert part in out
    assert out.index("demo_2/") < out.index("demo_10/")
    assert "elsewhere -> other.h5:/x (external)" in out
    facts = strict(told(capsys, "info", tmp_path / "robomimic.hdf5", "--json"))
    assert list(facts) == ["path", "kind", "file_bytes", "everything_shown", "root"]
    assert facts["kind"] == "hdf5"
    assert facts["root"]["groups"][0]["groups"][0]["datasets"][0]["shape"] == [50, 7]
    assert "is no run of simlab" in told(capsys, "info", tmp_path / "robomimic.hdf5", "--simulation", "x", code=1)


def test_info_on_netcdf(tmp_path: Path, capsys: pytest.CaptureFixture[str], require_module: Callable[[str], ModuleType]) -> None:
    netcdf = require_module("netCDF4")
    with netcdf.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("v", "f4", ("x",))[:] = np.nan
        file["v"].missing = np.float32("nan")
    out = told(capsys, "info", tmp_path / "a.nc")
    assert "netCDF-4" in out
    assert "x 3" in out
    assert "open_datatree" in out
    assert strict(told(capsys, "info", tmp_path / "a.nc", "--json"))["kind"] == "netcdf4"


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_info_on_classic_netcdf(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], require_module: Callable[[str], ModuleType], kind: str
) -> None:
    netcdf = require_module("netCDF4")
    with netcdf.Dataset(tmp_path / "a.nc", "w", format=kind) as file:
        file.createDimension("t", None)
        file.createDimension("x", 4)
        file.title = "a\x1b[2Jb"
        file.createVariable("temperature", "f4", ("t", "x"))[:3] = 1.0
    out = told(capsys, "info", tmp_path / "a.nc")
    for part in ("netCDF-3", "temperature  float32  t 3 × x 4", "48 B", "open_dataset", "a\\x1b[2Jb"):
        assert part in out
    facts = strict(told(capsys, "info", tmp_path / "a.nc", "--json"))
    assert facts["kind"] == "netcdf3"
    assert facts["root"]["datasets"][0]["max_shape"] == [None, 4]


def test_info_on_classic_netcdf_says_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.nc").write_bytes(b"CDF\x01" + bytes(50))
    monkeypatch.setitem(sys.modules, "netCDF4", None)
    out = told(capsys, "info", tmp_path / "a.nc", code=1)
    assert "pip install netCDF4" in out
    assert "conda-forge netcdf4" in out


def test_info_on_an_empty_and_on_a_crowded_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(tmp_path / "a.h5", "w"):
        pass
    assert "no groups and no arrays" in told(capsys, "info", tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        for i in range(300):
            file[f"x{i}"] = i
            file.create_group(f"g{i}")
    out = told(capsys, "info", tmp_path / "b.h5")
    assert "and 240 more arrays" in out
    assert len(out.splitlines()) < 200


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty (0 bytes)"),
        (b"hello\n", "a text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 99\n", "run git lfs pull"),
        (b"\x89HDF\r\n\x1a\n" + bytes(5) + b"\x08\x08" + bytes(25) + b"\x00\x08" + bytes(54), "stub"),
        (b"\x89HDF\r\n\x1a\n\xff\xff\xff" + bytes(900), "superblock"),
        (b"CDF\x01" + b"\xff" * 50, "netCDF-3"),
        (b"\x1f\x8b" + bytes(50), "gunzip"),
    ],
)
def test_info_on_what_is_no_hdf5_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, reason: str) -> None:
    (tmp_path / "a.h5").write_bytes(content)
    assert reason in told(capsys, "info", tmp_path / "a.h5", code=1)
    assert reason in told(capsys, "info", tmp_path / "a.h5", "--json", code=1)


def test_info_on_paths_that_lead_nowhere(tmp_path: Path, demo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no folder" in told(capsys, "info", tmp_path / "no" / "a.h5", code=1)
    assert "Did you mean 'demo.h5'" in told(capsys, "info", demo_run.parent / "demo2.h5", code=1)
    assert "folder, not a file" in told(capsys, "info", tmp_path, code=1)
    assert "\x1b" not in told(capsys, "info", tmp_path / "\x1b[31m.h5", code=1)
    told(capsys, "info", "a\0b", code=1)


def test_info_on_a_damaged_run_never_ends_in_a_traceback(tmp_path: Path, demo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = demo_run.read_bytes()
    path = tmp_path / "a.h5"
    path.write_bytes(whole[: len(whole) // 2])
    assert f"{len(whole) // 2} of {len(whole)} bytes" in told(capsys, "info", path, code=1)
    # HDF5 itself may crash on noise, so every case has a process of its own.
    code = f"""if True:
        import os, random, simlab.cli, simlab.cli.info
        whole = open({str(demo_run)!r}, "rb").read()
        for seed in range(40):
            if os.fork():
                os.wait()
                continue
            dice = random.Random(seed)
            broken = bytearray(whole)
            for _ in range(200):
                broken[dice.randrange(48, len(whole))] = dice.randrange(256)
            open({str(path)!r}, "wb").write(broken)
            code = simlab.cli.main(["info", {str(path)!r}])
            assert code in (0, 1), code
            os._exit(0)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["committed", "time", "agents", "agent", "episodes", "report"])
def test_info_on_a_run_that_lacks_a_part(tmp_path: Path, demo_run: Path, capsys: pytest.CaptureFixture[str], missing: str) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(demo_run.read_bytes())
    with h5py.File(path, "r+") as file:
        del file["simulation_0001"][missing]
    assert main(["info", str(path)]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


# -- demo


def test_demo_records_opens_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = told(capsys, "demo", "--episodes", "2")
    for part in ("Recorded 2 episodes", "2 episodes of 240 steps", "vision", "simlab_demo/demo.h5", "simlab_demo/episode.png"):
        assert part in out
    assert "jupyter lab simlab_demo/explore.ipynb" in out
    assert (tmp_path / "simlab_demo/episode.png").read_bytes().startswith(b"\x89PNG")
    assert "not overwritten" in told(capsys, "demo", "--episodes", "1", code=1)
    (tmp_path / "simlab_demo/explore.ipynb").write_text("mine")
    assert "1 episode of 240 steps" in told(capsys, "demo", "--episodes", "1", "--force")
    assert (tmp_path / "simlab_demo/explore.ipynb").read_text() == "mine"
    assert simlab.open_run("simlab_demo/demo.h5").sim.episodes.sizes["episode"] == 1


def test_the_notebook_of_the_demo_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, require_module: Callable[[str], ModuleType]
) -> None:
    nbformat = require_module("nbformat")
    nbclient = require_module("nbclient")
    told(capsys, "demo", tmp_path / "demo")
    monkeypatch.setenv("PYTHONPATH", str(Path(simlab.__file__).parents[1]), prepend=os.pathsep)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(tmp_path / "demo/explore.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path / "demo")}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(any("data" in out for out in cell.outputs) for cell in cells)
    assert all(out.output_type != "stream" for cell in cells for out in cell.outputs)
    [figure] = [cell for cell in cells if "plot_episode" in cell.source]
    assert "image/png" in figure.outputs[0].data


def test_demo_where_it_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in told(capsys, "demo", tmp_path / "file", code=1)
    assert "cannot be made" in told(capsys, "demo", tmp_path / "file" / "inside", code=1)


def test_demo_of_no_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "0 episodes" in told(capsys, "demo", tmp_path / "a", "--episodes", "0")
    assert not (tmp_path / "a/episode.png").exists()


# -- the command itself


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["info"], ["info", "a", "b"], ["demo", "--seed", "x"], ["demo", "--episodes", "-1"], ["--nonsense"]]
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "usage: simlab" in told(capsys, *arguments, code=2)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "--version") == f"simlab {simlab.__version__}\n"
    out = told(capsys, "--help")
    assert "demo" in out
    assert "info" in out
    assert "--json" in told(capsys, "info", "--help")
    assert "simlab_demo" in told(capsys, "demo", "--help")


def test_an_interruption_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.cli.info.file_facts", interrupted)
    assert "interrupted" in told(capsys, "info", "a.h5", code=130)


def test_python_m_simlab_works_and_starts_without_analysis_packages(demo_run: Path) -> None:
    assert shell("--version").stdout == f"simlab {simlab.__version__}\n"
    assert shell("info", "missing.h5").returncode == 1
    heavy = ("numpy", "h5py", "xarray", "matplotlib")
    code = f"import sys, simlab.cli; simlab.cli.main(['--version']); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_is_no_error(demo_run: Path) -> None:
    command = f"{sys.executable} -m simlab info {demo_run} --json; echo code $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | true"], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_terminal_without_unicode_gets_numbers(demo_run: Path) -> None:
    done = shell("info", str(demo_run), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "\\xd7" in done.stdout


def test_words_and_numbers_for_people() -> None:
    assert escape("a\tb\x7f\u202e") == "a\\tb\\x7f\\u202e"
    assert escape("\udcff") == "\\udcff"
    assert [size(n) for n in (0, 999, 1000, 999_999, 10**9, 10**18)] == ["0 B", "999 B", "1 kB", "1e+03 kB", "1 GB", "1,000 PB"]
    assert ratio(0, 5) == "-"
    assert short("x" * 200) == "x" * 89 + "…"
    assert short({"a": [1, 2.5], "b": None}) == "a: [1, 2.5], b: None"


def test_plain_values_are_strict_json() -> None:
    nested: Any = 1
    for _ in range(2000):
        nested = [nested]
    odd = {
        "inf": np.inf, "array": np.array([1.0, np.nan]), 5: np.float32(0.5), "date": np.datetime64("2020-01-01"), "bytes": b"x",
        "text": "\udcff", "deep": nested, "set": {1}, "big": 2**70, "complex": 1j,
    }  # fmt: skip
    found = strict(json.dumps(plain(odd), allow_nan=False))
    assert found["array"] == [1.0, None]
    assert found["date"] == "2020-01-01"
    assert found["big"] == 2**70


# -- pictures


def test_export_and_plot(demo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = told(capsys, "export", demo_run, "ep.html", "--episode", "-1", "--agents", "agent_0")
    assert out.startswith("ep.html   ")
    told(capsys, "export", demo_run, "ep.gif", "--stop", "8", "--every", "2")
    told(capsys, "export", demo_run, "ep.png", "--step", "20", "--agents", "all")
    for what in ("episode", "agents", "returns"):
        assert told(capsys, "plot", demo_run, what, "-o", f"{what}.png").strip() == f"{what}.png"
    assert {p.name for p in tmp_path.iterdir()} == {"ep.html", "ep.gif", "ep.png", "episode.png", "agents.png", "returns.png"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "RUN", "ep.mov"], ".mp4"),
        (["export", "RUN", "ep.html", "--episode", "77"], "no episode 77"),
        (["export", "RUN", "ep.html", "--agents", "nobody"], "nobody"),
        (["export", "RUN", "ep.html", "--max-mb", "0.01"], "max_mb"),
        (["export", "missing.h5", "ep.html"], "missing.h5"),
        (["plot", "RUN", "-o", "x.docx"], ".png"),
        (["plot", "RUN", "-o", "no/such/folder.png"], "cannot be written"),
        (["plot", "RUN", "--episode", "99"], "99"),
        (["view", "RUN", "--episode", "99"], "99"),
        (["view", "missing.h5"], "missing.h5"),
    ],
)
def test_pictures_that_cannot_be_made(
    demo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in told(capsys, *[demo_run if a == "RUN" else a for a in arguments], code=1)
    assert not list(tmp_path.iterdir())


def test_the_state_of_a_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.h5"
    log = simlab.HDF5Logger(path)
    log.log_agent_step("a\x1b[31m", 0, {"x": 1.0})
    done = subprocess.run([sys.executable, "-m", "simlab", "info", str(path)], capture_output=True, text=True, check=True)
    assert "simulation_0001   (being recorded)" in done.stdout
    assert not done.stderr
    sidecar = tmp_path / "run.h5.journal"
    shutil.copytree(sidecar, tmp_path / "dead.h5.journal")
    shutil.copy(path, tmp_path / "dead.h5")
    owner = tmp_path / "dead.h5.journal" / "owner.json"
    owner.write_text(owner.read_text().replace(str(os.getpid()), "0"))
    log.finalize()
    assert main(["info", str(tmp_path / "dead.h5")]) == 0
    out, err = capsys.readouterr()
    assert "(not finalized: its program ended early" in out
    (line,) = err.splitlines()  # a warning is one line, without the place in the code
    assert line.startswith("simlab: ")
    assert "did not finish" in line
    assert main(["info", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["simulations"][0]["state"] == "finalized"
