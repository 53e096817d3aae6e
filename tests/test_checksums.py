from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from simlab.errors import StorageError
from simlab.storage import reading
from simlab.storage.checksums import fletcher32, verify_fletcher32
from simlab.storage.describing import describe
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable


@pytest.mark.parametrize("n", [1, 2, 3, 719, 720, 721, 4096, 262_143, 262_146, 600_001])
@pytest.mark.parametrize("kind", ["random", "zeros", "ones", "last"])
def test_the_checksum_is_that_of_hdf5(tmp_path: Path, n: int, kind: str) -> None:
    octets = np.random.default_rng(n).integers(0, 256, n, np.uint8) if kind == "random" else np.full(n, 255 * (kind == "ones"), np.uint8)
    if kind == "last":
        octets[-1] = 1
    with h5py.File(tmp_path / "a.h5", "w") as file:
        _, raw = file.create_dataset("a", data=octets, chunks=(n,), fletcher32=True).id.read_direct_chunk((0,))
    assert bytes(verify_fletcher32(raw)) == octets.tobytes()
    assert fletcher32(octets.tobytes()) == int.from_bytes(raw[-4:], "little")


def test_the_swapped_checksum_of_old_versions() -> None:
    found = fletcher32(b"abcdef")
    swapped = bytes([found >> 8 & 255, found & 255, found >> 24 & 255, found >> 16 & 255])
    assert verify_fletcher32(b"abcdef" + swapped) == b"abcdef"
    with pytest.raises(ValueError, match="checksum is wrong"):
        verify_fletcher32(b"abcdeg" + swapped)
    with pytest.raises(ValueError, match="2 bytes"):
        verify_fletcher32(b"ab")


PIPELINES = {
    "all": {"shuffle": True, "compression": "gzip", "fletcher32": True},
    "gzip": {"compression": "gzip", "fletcher32": True},
    "shuffle": {"shuffle": True, "fletcher32": True},
    "alone": {"fletcher32": True},
}


@pytest.fixture(params=PIPELINES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, np.ndarray]:
    values = np.random.default_rng(0).integers(0, 99, (4, 1000)).astype("i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["simlab_format"] = "1.0"
        file.create_dataset("rewards", data=values, chunks=(1, 400), **PIPELINES[request.param])
    return tmp_path / "a.h5", values


def opened(path: Path) -> StoredVariable:
    source = RunSource(path)
    return describe(source, source.dataset("rewards"))


def test_chunks_with_a_checksum_are_decoded_here(stored: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    path, values = stored
    monkeypatch.setattr(reading.StoredVariable, "_read_through_hdf5", None)
    np.testing.assert_array_equal(opened(path).read(), values)


def test_any_flipped_bit_is_found(stored: tuple[Path, np.ndarray]) -> None:
    path, values = stored
    with h5py.File(path) as file:
        info = file["rewards"].id.get_chunk_info_by_coord((2, 400))
    whole = path.read_bytes()
    for at in (0, 1, info.size // 2, info.size - 5, info.size - 4, info.size - 1):
        for bit in (1, 128):
            broken = bytearray(whole)
            broken[info.byte_offset + at] ^= bit
            path.write_bytes(broken)
            variable = opened(path)
            with pytest.raises(
                StorageError, match=r"'/rewards'.*a\.h5.*1 chunk.*rewards_dim_0 2-2, rewards_dim_1 400-799.*checksum is wrong"
            ):
                variable.read()
            np.testing.assert_array_equal(variable.read(slice(0, 2)), values[:2])
            np.testing.assert_array_equal(variable.read(slice(None), slice(800, None)), values[:, 800:])
            variable.source.close()
