"""Any HDF5 file is described: bounded, without following links out of it, whatever is in it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from simlab.errors import FormatError, RunInUseError, RunNotFoundError
from simlab.storage.tree import MOST_ATTRIBUTES, DatasetInfo, GroupInfo, Tree, describe


def datasets(tree: Tree) -> dict[str, DatasetInfo]:
    return {d.path: d for d in tree.root.every_dataset()}


def test_datasets_are_described_by_shape_type_chunks_and_filters(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        values = np.zeros((64, 32), "f4")
        file.create_dataset("g/zipped", data=values, chunks=(16, 32), compression="gzip", compression_opts=4, shuffle=True)
        file.create_dataset("lzf", data=values, compression="lzf", fletcher32=True)
        file.create_dataset("plain", data=values, maxshape=(None, 32), chunks=(8, 32))
        file.create_dataset("nothing", data=h5py.Empty("f4"))
        file["number"] = 3
        file["words"] = ["a", "bc"]
        file["flags"] = np.array([True, False])
        file["pair"] = np.zeros(2, [("x", "i4"), ("y", "f8")])
        file.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
        file.create_dataset("reference", (1,), h5py.ref_dtype)
        file["huge/empty"] = 0
        file.create_dataset("huge/all", (1 << 40, 1 << 20), "f8", chunks=(64, 64))
    found = datasets(describe(tmp_path / "a.h5"))
    zipped = found["/g/zipped"]
    assert (zipped.name, zipped.shape, zipped.dtype, zipped.chunks) == ("zipped", (64, 32), "float32", (16, 32))
    assert [(f.name, f.available, f.options) for f in zipped.filters] == [("shuffle", True, (4,)), ("gzip", True, (4,))]
    assert zipped.raw_bytes == 8192
    assert 0 < zipped.stored_bytes < 1000
    assert [f.name for f in found["/lzf"].filters] == ["lzf", "fletcher32"]
    assert found["/plain"].max_shape == (None, 32)
    assert found["/nothing"].shape is None
    assert found["/number"].shape == ()
    assert found["/words"].dtype == "text (variable length)"
    assert found["/words"].raw_bytes is None
    assert found["/flags"].dtype == "bool"
    assert "'x'" in found["/pair"].dtype
    assert found["/ragged"].dtype == "int32 (variable length)"
    assert found["/reference"].dtype == "reference"
    assert found["/huge/all"].raw_bytes == 1 << 63
    assert found["/huge/all"].stored_bytes == 0


def test_the_dimensions_of_netcdf_are_named(tmp_path: Path) -> None:
    netcdf = pytest.importorskip("netCDF4")
    with netcdf.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createVariable("time", "i8", ("time",))
        file.createGroup("g").createVariable("v", "f4", ("time", "x"), zlib=True).units = "m"
    found = datasets(describe(tmp_path / "a.nc"))
    assert found["/g/v"].dims == ("time", "x")
    assert found["/g/v"].attributes["units"] == "m"
    assert (found["/time"].dims, found["/time"].is_dimension) == (("time",), False)
    assert (found["/x"].dims, found["/x"].is_dimension) == (("x",), True)


def test_links_are_shown_and_never_followed_out_of_the_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = 1
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/x"] = 1
        file["b/soft"] = h5py.SoftLink("/a/x")
        file["b/dangling"] = h5py.SoftLink("/nowhere")
        file["b/outside"] = h5py.ExternalLink("other.h5", "/secret")
        file["b/again"] = file["a/x"]
        file["b/up"] = file["/"]
        file["b/loop"] = file["b"]
        file["b/kind"] = np.dtype("i4")
    tree = describe(tmp_path / "a.h5")
    [_, b] = tree.root.groups
    assert {link.name: (link.kind, link.target) for link in b.links} == {
        "soft": ("soft", "/a/x"),
        "dangling": ("soft", "/nowhere"),
        "outside": ("external", "other.h5:/secret"),
        "again": ("same", "/a/x"),
        "up": ("same", "/"),
        "loop": ("same", "/b"),
        "kind": ("type", "int32"),
    }
    assert list(datasets(tree)) == ["/a/x"]


def test_names_come_in_natural_order_unless_the_file_knows_their_order(tmp_path: Path) -> None:
    for tracked, names in ((False, ["demo_0", "demo_1", "demo_2", "demo_10"]), (True, ["demo_10", "demo_2", "demo_0", "demo_1"])):
        with h5py.File(tmp_path / "a.h5", "w", track_order=tracked) as file:
            for name in ["demo_10", "demo_2", "demo_0", "demo_1"]:
                file.create_group(name)
        assert [group.name for group in describe(tmp_path / "a.h5").root.groups] == names


def test_natural_order_takes_any_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("²", "10", "9", "a٣", "1" * 5000):
            file.create_group(name)
    assert [group.name for group in describe(tmp_path / "a.h5").root.groups][:2] == ["9", "10"]


def test_unknown_filters_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
        plist.set_filter(40000, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((8,)), dcpl=plist)
    zstd, unknown = datasets(describe(tmp_path / "a.h5"))["/x"].filters
    assert (zstd.name, unknown.name, unknown.available) == ("zstd", "filter 40000", False)


def test_attributes_are_plain_and_bounded(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", track_order=True, libver="v110") as file:
        file.attrs["text"] = "größe"
        file.attrs["bytes"] = np.bytes_(b"\xff")
        file.attrs["long"] = "x" * 10_000
        file.attrs["number"] = np.int16(3)
        file.attrs["flag"] = np.True_
        file.attrs["list"] = np.arange(3)
        file.attrs["words"] = ["a", "b"]
        file.attrs["many"] = np.arange(1000.0)
        file.attrs["grid"] = np.zeros((2, 2))
        file.attrs["nothing"] = h5py.Empty("f4")
        file.attrs["record"] = np.zeros(1, [("x", "i4")])
        file.attrs["nan"] = np.nan
    attributes = describe(tmp_path / "a.h5").root.attributes
    assert attributes["text"] == "größe"
    assert attributes["bytes"] == "\ufffd"
    assert attributes["long"].endswith("... (10000 characters)")
    assert attributes["number"] == 3
    assert attributes["flag"] is True
    assert attributes["list"] == [0, 1, 2]
    assert attributes["words"] == ["a", "b"]
    assert len(attributes["many"]) == 17
    assert attributes["many"][-1] == "... (1000 in all)"
    assert attributes["grid"] == "(float64 (2, 2))"
    assert attributes["nothing"] is None
    assert attributes["record"].startswith("(")
    assert attributes["nan"] != attributes["nan"]


def test_a_file_of_many_objects_is_cut_and_counted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="v110") as file:
        for i in range(60):
            file.create_group(f"g{i}")
        for i in range(150):
            file.attrs[f"a{i}"] = i
    tree = describe(tmp_path / "a.h5", most=25)
    assert not tree.complete
    assert len(tree.root.groups) == 25
    assert tree.root.left_out == 35
    assert len(tree.root.attributes) == MOST_ATTRIBUTES + 1
    assert describe(tmp_path / "a.h5").complete


def test_deep_groups_end_somewhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("/".join("g" * 1500))
    tree = describe(tmp_path / "a.h5")
    assert not tree.complete
    group: GroupInfo = tree.root
    while group.groups:
        group = group.groups[0]
    assert group.left_out == 1


def test_odd_names_and_types_do_not_stop_it(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["trail "] = 1
        file[b"\xff\xfe"] = 1
        file["\x1b[31mred"] = 1
        h5py.h5d.create(file.id, b"opaque", h5py.h5t.create(h5py.h5t.OPAQUE, 12), h5py.h5s.create_simple((2,)))
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((2,)))
    tree = describe(tmp_path / "a.h5")
    assert len(datasets(tree)) + len(tree.root.links) == 5
    json.dumps(dataclasses.asdict(tree))


def test_virtual_and_external_data_is_told_and_not_opened(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        layout = h5py.VirtualLayout((4,), "i4")
        layout[:] = h5py.VirtualSource("gone.h5", "x", (4,))
        file.create_virtual_dataset("v", layout)
        file.create_dataset("e", (4,), "i4", external=[(str(tmp_path / "gone.raw"), 0, 16)])
    found = datasets(describe(tmp_path / "a.h5"))
    assert found["/v"].elsewhere == "virtual"
    assert found["/e"].elsewhere == "external files"
    assert not (tmp_path / "gone.raw").exists()


def test_a_file_that_is_being_written_in_swmr_mode_is_described(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="v110") as file:
        file["x"] = np.arange(3)
        file.swmr_mode = True
        assert list(datasets(describe(tmp_path / "a.h5"))) == ["/x"]


def test_bad_files_have_their_reason(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="does not exist"):
        describe(tmp_path / "a.h5")
    (tmp_path / "a.h5").write_text("hello")
    with pytest.raises(FormatError, match="text file"):
        describe(tmp_path / "a.h5")
    with pytest.raises(FormatError, match="folder"):
        describe(tmp_path)
    with h5py.File(tmp_path / "a.h5", "w", libver="v110") as file:
        file["x"] = np.arange(1000)
    (tmp_path / "a.h5").write_bytes((tmp_path / "a.h5").read_bytes()[:-500])
    with pytest.raises(FormatError, match="truncated"):
        describe(tmp_path / "a.h5")


def test_a_locked_file_is_in_use(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = 1
        file.flush()
        code = f"""if True:
            from simlab.storage.tree import describe
            try:
                describe({str(tmp_path / "a.h5")!r})
            except Exception as error:
                print(type(error).__name__)
        """
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == RunInUseError.__name__
