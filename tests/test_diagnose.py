"""One sentence for every way in which a path can be no usable HDF5 file."""

from __future__ import annotations

import gzip
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest

from simlab.storage.diagnose import explain

VERSIONS = ["earliest", "v108", "v110"]


def good_file(path: Path, version: str = "v110", **options: object) -> Path:
    with h5py.File(path, "w", libver=(version, "v110") if version == "earliest" else (version, version), **options) as file:
        file["x"] = np.arange(10_000)
    return path


def sentence(path: str | os.PathLike[str]) -> str:
    told = explain(path)
    assert told is not None
    assert told.startswith(repr(str(path)))
    assert told[-1] in ".?"
    assert "\n" not in told
    return told


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("user_block", [0, 512, 1024, 8192])
def test_good_files_are_fine(tmp_path: Path, version: str, user_block: int) -> None:
    assert explain(good_file(tmp_path / "a.h5", version, userblock_size=user_block)) is None
    assert explain(str(tmp_path / "a.h5")) is None


def test_a_paged_file_and_an_empty_group_are_fine(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver=("v110", "v110"), track_order=True, fs_strategy="page", fs_page_size=4096):
        pass
    assert explain(tmp_path / "a.h5") is None


@pytest.mark.parametrize("block", [512, 2048])
def test_a_block_put_in_front_of_a_finished_file_is_fine(tmp_path: Path, block: int) -> None:
    path = good_file(tmp_path / "a.h5", "earliest")
    path.write_bytes(b"#!notes\n".ljust(block, b"\0") + path.read_bytes())
    with h5py.File(path) as file:
        assert file["x"][5] == 5
    assert explain(path) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("user_block", [0, 1024])
def test_half_of_a_good_file(tmp_path: Path, version: str, user_block: int) -> None:
    path = good_file(tmp_path / "a.h5", version, userblock_size=user_block)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert f"truncated: it holds {len(whole) // 2} of {len(whole)} bytes" in sentence(path)
    path.write_bytes(whole[:-1])
    assert f"{len(whole) - 1} of {len(whole)} bytes" in sentence(path)
    assert ("user block" in sentence(path)) == bool(user_block)


@pytest.mark.parametrize("options", ["", "libver=('v110', 'v110'), fs_strategy='page', fs_page_size=4096"])
def test_the_stub_of_a_writer_that_died_before_its_first_flush(tmp_path: Path, options: str) -> None:
    path = tmp_path / "a.h5"
    code = f"""
        import h5py, os, signal
        f = h5py.File({str(path)!r}, "w", {options})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert path.stat().st_size < 1024
    told = sentence(path)
    assert f"holds {path.stat().st_size}" in told
    assert "no data" in told
    assert "writer died" in told


@pytest.mark.parametrize("size", [8, 9, 20, 48, 96, 800])
def test_stubs_of_every_size(tmp_path: Path, size: int) -> None:
    path = good_file(tmp_path / "a.h5", "earliest")
    path.write_bytes(path.read_bytes()[:size])
    assert f"holds {size}" in sentence(path)
    assert "stub" in sentence(path)


def test_an_open_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file["x"] = np.arange(10_000)
        file.flush()
        assert "open in another program" in sentence(path)
        file.swmr_mode = True
        assert "SWMR" in sentence(path)
        dead = tmp_path / "dead.h5"
        dead.write_bytes(path.read_bytes())
    assert explain(path) is None
    assert "writer died" in sentence(dead)


def test_a_damaged_head(tmp_path: Path) -> None:
    path = good_file(tmp_path / "a.h5")
    whole = bytearray(path.read_bytes())
    newer, width, torn, lost = whole.copy(), whole.copy(), whole.copy(), whole.copy()
    newer[8] = 9
    width[9] = 3
    torn[36] ^= 1
    lost[:8] = bytes(8)
    for content, words in ((newer, "version 9"), (width, "damaged"), (torn, "checksum"), (lost, "first bytes are zero")):
        path.write_bytes(content)
        assert words in sentence(path)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.h5").touch()
    assert "empty (0 bytes)" in sentence(tmp_path / "a.h5")


def test_a_git_lfs_pointer(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d" * 32 + "\nsize 73400320\n")
    told = sentence(path)
    assert "git-LFS pointer" in told
    assert "run git lfs pull" in told
    assert "73.4 MB" in told
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "run git lfs pull" in sentence(path)


def numpy_archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=np.arange(3))


def zip_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes.txt", "x")


def numpy_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p.write_bytes(gzip.compress(b"x")), "gunzip"),
        (zip_archive, "a zip archive"),
        (numpy_archive, "numpy.load"),
        (numpy_array, "numpy.load"),
        (lambda p: p.write_bytes(pickle.dumps({"a": 1})), "pickle"),
        (lambda p: p.write_bytes(b"CDF\x01" + bytes(40)), "netCDF-3"),
        (lambda p: p.write_bytes(b"CDF\x05" + bytes(40)), "netCDF-3"),
        (lambda p: p.write_bytes(b"MATLAB 5.0 MAT-file, Platform".ljust(128)), "MATLAB"),
        (lambda p: p.write_bytes(bytes(257) + b"ustar" + bytes(300)), "tar archive"),
        (lambda p: p.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30)), "PNG"),
        (lambda p: p.write_bytes(bytes(5000)), "holds zeros"),
        (lambda p: p.write_text("step,reward\n0,1\n"), "a text file of 16 bytes, beginning 'step,reward'"),
        (lambda p: p.write_text('{"a": 1}'), "JSON text"),
        (lambda p: p.write_text("<!DOCTYPE html>\n<html>"), "web page"),
        (lambda p: p.write_text("ä" * 40_000), "a text file of 80 kB"),
        (lambda p: p.write_text("\n\n"), "a text file"),
        (lambda p: p.write_bytes(b"\xfe\x01\x02garbage" * 50), "signature is missing"),
    ],
)
def test_other_kinds_of_file(tmp_path: Path, make: object, words: str) -> None:
    path = tmp_path / "a.h5"
    make(path)  # type: ignore[operator]
    assert words in sentence(path)


def test_a_classic_netcdf_file_of_a_real_writer(tmp_path: Path, require_module: Callable[[str], ModuleType]) -> None:
    netcdf = require_module("netCDF4")
    with netcdf.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 3)
    assert "netCDF-3" in sentence(tmp_path / "a.nc")


def test_text_with_an_escape_sequence_stays_quoted(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_text("\x1b[31mred")
    assert "\x1b" not in sentence(tmp_path / "a.h5")


def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good_file(tmp_path / "run_12.h5")
    told = sentence(tmp_path / "run_13.h5")
    assert "does not exist" in told
    assert "'run_12.h5'" in told
    assert repr(str(tmp_path / "missing")) in sentence(tmp_path / "missing" / "deeper" / "a.h5")
    assert "a part of its path is a file" in sentence(tmp_path / "run_12.h5" / "a.h5")
    (tmp_path / "link.h5").symlink_to(tmp_path / "gone.h5")
    assert "is a link to" in sentence(tmp_path / "link.h5")
    monkeypatch.chdir(tmp_path)
    assert "'run_12.h5'" in sentence("run_1.h5")
    assert "no folder 'nowhere'" in sentence("nowhere/a.h5")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert explain("~/run_12.h5") is None


def test_folders_and_odd_things(tmp_path: Path) -> None:
    assert re.search(r"is a folder, not a file\.$", sentence(tmp_path))
    for i in range(5):
        good_file(tmp_path / f"{i}.h5")
    assert "'0.h5', '1.h5', '2.h5' and 2 more" in sentence(tmp_path)
    (tmp_path / "zarr.json").touch()
    assert "Zarr" in sentence(tmp_path)
    assert "pipe, socket or device" in sentence(os.devnull)
    assert "no path that this system accepts" in sentence("a\0b")
    assert "no path that this system accepts" in sentence("x" * 5000)


def test_a_file_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's own folder, which others may not enter
        path = good_file(Path(folder) / "a.h5")
        os.chmod(folder, 0o755)
        path.chmod(0)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)  # root may read everything; nobody may not
            told = sentence(path)
        finally:
            os.seteuid(user)
    assert "may not be read" in told


def test_no_prefix_of_a_good_file_and_no_noise_raises(tmp_path: Path) -> None:
    path = good_file(tmp_path / "a.h5", "earliest")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in [*range(1, 200), 500, 900, 2000, len(whole) - 1]:
        path.write_bytes(whole[:size])
        assert explain(path) is not None
        path.write_bytes(b"\x89HDF\r\n\x1a\n" + rng.bytes(size))
        explain(path)
        path.write_bytes(rng.bytes(size))
        assert explain(path) is not None
