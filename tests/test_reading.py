from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.errors import StorageError
from simlab.storage import decoding
from simlab.storage.describing import describe
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable
from simlab.storage.selection import select_axis
from tests import handmade

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "shuffle": {"shuffle": True},
    "gzip": {"compression": "gzip"},
    "gzip_shuffle": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "checksum": {"compression": "gzip", "fletcher32": True},
}
DTYPES = ("u1", "<i2", ">i4", "<f4", ">f8", "<i8", "f2", "?")


def store(path: Path, data: np.ndarray, chunks: tuple[int, ...] | None, missing: list[tuple[int, ...]], **options: Any) -> np.ndarray:
    """Write an array, leave some chunks out, and return what it then holds."""
    fill = np.nan if data.dtype.kind == "f" else 7 if data.dtype.kind in "iu" else 0
    out = np.full(data.shape, fill, data.dtype)
    with h5py.File(path, "w") as file:
        file.attrs["simlab_format"] = "1.0"
        d = file.create_dataset("v", shape=data.shape, dtype=data.dtype, chunks=chunks, fillvalue=out.dtype.type(fill), **options)
        for start in np.ndindex(*(-(-n // c) for n, c in zip(data.shape, chunks or data.shape, strict=True))):
            if start not in missing:
                at = tuple(slice(i * c, min(n, (i + 1) * c)) for i, c, n in zip(start, chunks or data.shape, data.shape, strict=True))
                d[at] = out[at] = data[at]
    return out


def opened(path: Path) -> StoredVariable:
    source = RunSource(path)
    return describe(source, source.dataset("v"))


def selectors(size: int) -> st.SearchStrategy[Any]:
    numbers = st.integers(-size, size - 1)
    return st.one_of(numbers, st.slices(size), st.lists(numbers, max_size=2 * size).map(lambda x: np.array(x, np.int64)))


def outer(data: np.ndarray, selection: list[Any]) -> np.ndarray:
    """What numpy gives when each axis is selected by itself."""
    for axis in reversed(range(len(selection))):
        data = data[(slice(None),) * axis + (selection[axis],)]
    return data


@given(data=st.data())
def test_any_selection_equals_numpys(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple), "shape")
    chunks = tuple(data.draw(st.integers(1, n), "chunk") for n in shape)
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES), "dtype"))
    options = FILTERS[data.draw(st.sampled_from(sorted(FILTERS)), "filters")]
    grid = list(np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks, strict=True))))
    missing = data.draw(st.lists(st.sampled_from(grid), max_size=4), "missing")
    values = np.random.default_rng(len(grid)).integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    path = tmp_path_factory.mktemp("selection") / "v.h5"
    held = store(path, values, chunks, missing, **options)
    variable = opened(path)
    for _ in range(4):
        selection = [data.draw(selectors(n), "selection") for n in shape[: data.draw(st.integers(0, len(shape)), "axes")]]
        got, expected = variable.read(*selection), outer(held, selection)
        assert got.shape == expected.shape
        assert got.dtype == dtype.newbyteorder("=")
        np.testing.assert_array_equal(got, expected)
    variable.source.close()


@given(size=st.integers(1, 40), chunk=st.integers(1, 40), data=st.data())
def test_parts_of_an_axis_cover_the_selection_once(size: int, chunk: int, data: st.DataObject) -> None:
    selector = data.draw(selectors(size))
    axis = select_axis(selector, size, chunk)
    out = np.full(axis.length, -1)
    for part in axis.parts:
        assert (out[part.target] == -1).all()
        out[part.target] = (np.arange(chunk) + part.chunk * chunk)[part.inside]
    if axis.backwards:
        out = out[::-1]
    np.testing.assert_array_equal(out, np.atleast_1d(np.arange(size)[selector]))
    assert len({part.chunk for part in axis.parts}) == len(axis.parts)


@pytest.mark.parametrize("filters", sorted(FILTERS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_reads_in_threads(tmp_path: Path, filters: str, dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, (37, 5000, 3)).astype(dtype)
    held = store(tmp_path / "v.h5", values, (4, 512, 3), [(0, 0, 0), (9, 9, 0), (3, 2, 0)], **FILTERS[filters])
    variable = opened(tmp_path / "v.h5")
    np.testing.assert_array_equal(variable.read(), held)
    np.testing.assert_array_equal(variable.read(slice(None, None, 5), np.arange(4999, -1, -7)), held[::5][:, np.arange(4999, -1, -7)])


def test_without_chunks(tmp_path: Path) -> None:
    values = np.arange(60_000.0).reshape(20_000, 3)
    held = store(tmp_path / "v.h5", values, None, [])
    variable = opened(tmp_path / "v.h5")
    np.testing.assert_array_equal(variable.read(slice(19_990, 3, -7), 1), held[19_990:3:-7, 1])
    np.testing.assert_array_equal(variable.read(np.array([5, 19_999, 5])), held[[5, 19_999, 5]])


def test_scalars_and_empty_axes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.attrs["simlab_format"] = "1.0"
        file["v"] = np.float32(2.5)
        file.create_dataset("empty", shape=(0, 4), maxshape=(None, 4), chunks=(8, 4), dtype="i2")
    variable = opened(tmp_path / "v.h5")
    assert variable.read().shape == ()
    assert variable.read() == np.float32(2.5)
    empty = describe(variable.source, variable.source.dataset("empty"))
    assert empty.read().shape == (0, 4)
    assert empty.read(slice(None), 2).shape == (0,)


@pytest.mark.parametrize("selection", [(9,), (-10,), (0, 0, 0), (np.array([3, 9]),), (slice(None), np.array([-9]))])
def test_out_of_range(tmp_path: Path, selection: tuple[Any, ...]) -> None:
    store(tmp_path / "v.h5", np.zeros((9, 8)), (4, 4), [])
    with pytest.raises(IndexError):
        opened(tmp_path / "v.h5").read(*selection)


def test_logged_types_come_back(tmp_path: Path) -> None:
    handmade.write(tmp_path / "run.h5")
    source = RunSource(tmp_path / "run.h5")
    places = {name: f"observations/{name}" for name in ("word", "phase", "heat", "when")} | {"done": "done"}
    for name, expected in handmade.values().items():
        if name in places:
            variable = describe(source, source.dataset(f"simulation_0001/agents/{places[name]}"))
            assert variable.dims == ("agent", "time")
            got = variable.read(slice(1, 4), np.array([290, 3, 40]))
            assert got.dtype == (np.dtype("U9") if name == "word" else expected.dtype)
            np.testing.assert_array_equal(got, expected[1:4][:, [290, 3, 40]])
            assert variable.read(2, 299).shape == ()
            assert variable.read(2, 299) == expected[2, 299]


def test_only_touched_chunks_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.attrs["simlab_format"] = "1.0"
        d = file.create_dataset("v", shape=(500, 20_000), chunks=(1, 1000), dtype="f4", compression="gzip", shuffle=True)
        d[123] = np.arange(20_000)
        d[124] = 1
    decoded = []
    plain = decoding.decode_chunk
    monkeypatch.setattr(decoding, "decode_chunk", lambda *given: decoded.append(1) or plain(*given))
    variable = opened(tmp_path / "v.h5")
    np.testing.assert_array_equal(variable.read(123), np.arange(20_000, dtype="f4"))
    assert len(decoded) == 20
    variable.read(123, slice(1500, 1600))
    assert len(decoded) == 21
    variable.read(slice(200, 300))
    assert len(decoded) == 21


def test_memory_is_the_result_and_a_few_chunks(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.attrs["simlab_format"] = "1.0"
        d = file.create_dataset("v", shape=(64, 4096, 32), chunks=(1, 2048, 32), dtype="f4", compression="gzip", shuffle=True)
        d[...] = np.random.default_rng(0).normal(size=d.shape)  # does not compress
    variable = opened(tmp_path / "v.h5")
    variable.read(0)
    tracemalloc.start()
    result = variable.read(slice(None), slice(None), 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.nbytes == 1 << 20
    assert peak < 14 << 20  # of 32 MiB


def test_a_missing_filter_costs_its_own_variable_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = handmade.write(tmp_path / "run.h5")
    available = h5py.h5z.filter_avail
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda number: number != 32000 and available(number))
    source = RunSource(path)
    heat = describe(source, source.dataset("simulation_0001/agents/observations/heat"))
    with pytest.raises(StorageError, match=r"heat.*lzf \(HDF5 filter 32000\).*pip install hdf5plugin"):
        heat.read()
    assert describe(source, source.dataset("simulation_0001/agents/rewards")).read().shape == (5, 300)


def test_plug_ins_are_used_where_they_are(tmp_path: Path) -> None:
    plugin = pytest.importorskip("hdf5plugin")
    values = np.arange(40_000, dtype="i4").reshape(40, 1000)
    held = store(tmp_path / "v.h5", values, (8, 300), [(1, 1)], compression=plugin.Zstd())
    variable = opened(tmp_path / "v.h5")
    assert variable.compression == "zstd"
    np.testing.assert_array_equal(variable.read(slice(3, 30), slice(None, None, -3)), held[3:30, ::-3])


def test_a_damaged_chunk_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as file:
        file.attrs["simlab_format"] = "1.0"
        d = file.create_dataset("v", shape=(8, 100), chunks=(1, 100), dtype="f4", compression="gzip")
        d[...] = 1
        d.id.write_direct_chunk((3, 0), b"no deflate stream")
    variable = opened(path)
    with pytest.raises(StorageError, match=r"/v.*v\.h5.*damaged"):
        variable.read()
    np.testing.assert_array_equal(variable.read(4), np.ones(100, "f4"))


def test_chunks_that_skipped_a_filter(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    data = np.arange(100, dtype="<f4")
    with h5py.File(path, "w") as file:
        file.attrs["simlab_format"] = "1.0"
        d = file.create_dataset("v", shape=(2, 100), chunks=(1, 100), dtype="<f4", compression="gzip", shuffle=True)
        d[0] = data
        d.id.write_direct_chunk((1, 0), data.tobytes(), filter_mask=0b11)
    np.testing.assert_array_equal(opened(path).read(), np.stack([data, data]))
