"""One chunk, both ways: shuffle and deflate, outside HDF5 and outside the GIL.

HDF5's shuffle filter writes the first byte of every element, then the second of every element, and so on; its deflate filter
writes a zlib stream (RFC 1950). ISA-L makes and reads the same stream several times faster than zlib, and, unlike HDF5's own
filter pipeline, from as many threads as there are cores. Every reader of HDF5 takes the result for ordinary "gzip".
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from isal import isal_zlib

from simlab.errors import MissingPackageError, SchemaError, did_you_mean
from simlab.storage.checksums import fletcher32

Array = np.ndarray[Any, np.dtype[Any]]

_IsalError: Any = isal_zlib.error  # the type stubs call it an instance
DEFAULT_LEVEL: Final = 1
"""ISA-L 1: the size of zlib 4 on simulation data at ten times its speed."""
_HIGHEST_ISAL_LEVEL: Final = 3
_STORED_BLOCK: Final = 0xFFFF
_SAMPLE: Final = 1024
_FEWEST_EXAMPLES: Final = 256
MOST_EXAMPLES: Final = 1 << 15
_CLEARLY: Final = 0.9
_RICH_BITS: Final = 4.0
_NOISE_BITS: Final = 7.4
_NOISE_RATIO: Final = 0.97
_PLUGINS: Final = {"zstd": "Zstd", "blosc2": "Blosc2", "blosc": "Blosc", "lz4": "LZ4"}
_scratch = threading.local()
NAMES: Final = ("gzip", "lzf", *_PLUGINS)


@dataclass(frozen=True, slots=True)
class Compression:
    """How the chunks of a variable are compressed.

    Attributes
    ----------
    name : {"gzip", "none", "lzf", "zstd", "blosc2", ...}
        "gzip" and "none" are encoded here; the others run through HDF5's pipeline.
    level : int
        Of deflate: 0-3 are ISA-L's levels, 4-9 zlib's.
    shuffle : bool
        Whether bytes of like significance are brought together before deflate.
    checksum : bool
        Whether every chunk is given HDF5's fletcher32 checksum.
    """

    name: str
    level: int = DEFAULT_LEVEL
    shuffle: bool = True
    checksum: bool = False

    @property
    def direct(self) -> bool:
        """Whether chunks are encoded here and written past HDF5's pipeline."""
        return self.name in ("gzip", "none")

    def creation_options(self, itemsize: int) -> dict[str, Any]:
        """Return what h5py needs to create a dataset whose chunks are encoded this way."""
        options: dict[str, Any] = {"fletcher32": True} if self.checksum else {}
        if self.name == "none":
            return options
        if self.name == "gzip":
            return options | {"compression": "gzip", "compression_opts": self.level, "shuffle": itemsize > 1 and self.shuffle}
        if self.name == "lzf":
            return options | {"compression": "lzf", "shuffle": itemsize > 1}
        plugin = getattr(_hdf5plugin(self.name), _PLUGINS[self.name])
        return options | {"compression": plugin(), "shuffle": itemsize > 1 and self.name in ("zstd", "lz4")}

    def suited_to(self, example: Array) -> Compression:
        """Return this compression without shuffle, where that makes values like these clearly smaller.

        Shuffle is for numbers that are near each other. Where the same few come again and again (rewards, rounded numbers, floats that
        stand for categories) it takes apart what deflate would find as a whole.

        Parameters
        ----------
        example : ndarray
            Some values, in the stored dtype and the order of a chunk.

        Examples
        --------
        >>> import numpy as np
        >>> dice = np.random.default_rng(0)
        >>> smooth, few = np.cumsum(dice.normal(size=4096)), dice.choice([-0.01, 0.25, 1.0], 4096)
        >>> Compression("gzip").suited_to(smooth).shuffle, Compression("gzip").suited_to(few).shuffle
        (True, False)
        """
        if self.name != "gzip" or example.dtype.itemsize == 1 or example.size < _FEWEST_EXAMPLES:
            return self
        example = np.ascontiguousarray(example).reshape(-1)[:MOST_EXAMPLES]
        plain, shuffled = (len(isal_zlib.compress(octets, DEFAULT_LEVEL)) for octets in (_octets(example), shuffle(example)))
        return replace(self, shuffle=plain > _CLEARLY * shuffled)

    def encode(self, block: Array, period: int = 1) -> bytes | Array:
        """Encode one whole chunk.

        Parameters
        ----------
        block : ndarray
            Of the chunk's shape and stored dtype; any strides.
        period : int, optional
            Elements of one value: after so many, the next step begins and much may be as it was.

        Returns
        -------
        bytes-like
            What lies in the file.
        """
        octets = self._compressed(block, period)
        if not self.checksum:
            return octets
        raw = octets if isinstance(octets, bytes) else octets.tobytes()
        return raw + fletcher32(raw).to_bytes(4, "little")

    def _compressed(self, block: Array, period: int) -> bytes | Array:
        if self.name == "none":
            return np.ascontiguousarray(block)
        planes, period = (shuffle(block), period) if self.shuffle else (_octets(block), period * block.dtype.itemsize)
        if self.level <= _HIGHEST_ISAL_LEVEL:
            return _deflate(planes, self.level, period)
        return zlib.compress(planes.tobytes(), self.level)


def _octets(block: Array) -> Array:
    """Return the bytes of a block as they are, as one plane."""
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8).reshape(1, -1)


def _deflate(planes: Array, level: int, period: int) -> bytes:
    """Return the zlib stream of bytes, a plane of them after the other.

    The first bytes of smooth floats are alike, the last ones noise, and one Huffman table for both fits neither. So where a plane is
    rich, every plane is given blocks of its own, and noise is stored as it is, at the speed of a copy. Where none is, one call does.
    """
    entropy = [_entropy(plane) for plane in planes]
    if max(entropy) < _RICH_BITS:
        return bytes(isal_zlib.compress(planes, level))
    stream = isal_zlib.compressobj(level, isal_zlib.DEFLATED, -15)
    parts = [b"\x78\x01"]
    for plane, bits in zip(planes, entropy, strict=True):
        if bits > _NOISE_BITS and _is_noise(plane, level, period):
            for start in range(0, plane.size, _STORED_BLOCK):
                piece = plane[start : start + _STORED_BLOCK]
                parts += [struct.pack("<BHH", 0, piece.size, piece.size ^ 0xFFFF), piece]
        else:
            parts += [stream.compress(plane), stream.flush(isal_zlib.Z_FULL_FLUSH)]
    parts += [stream.flush(), struct.pack(">I", isal_zlib.adler32(planes))]
    return b"".join(parts)


def _entropy(plane: Array) -> float:
    """Return the bits that a byte of a plane carries, from a sample of its middle."""
    sample = plane[plane.size // 2 :][:_SAMPLE]
    counts = np.bincount(sample)
    share = counts[counts > 0] / max(1, sample.size)
    return float(-(share * np.log2(share)).sum())


def _is_noise(plane: Array, level: int, period: int) -> bool:
    """Whether deflate would not make a plane smaller; noise that repeats from step to step is no noise, so the sample spans a few."""
    if plane.size < 8 * _SAMPLE:
        return False
    sample = plane[: min(plane.size, max(16 * _SAMPLE, 3 * period))]
    return len(isal_zlib.compress(sample, level)) > _NOISE_RATIO * sample.size


def _hdf5plugin(name: str) -> Any:
    try:
        import hdf5plugin
    except ImportError:
        raise MissingPackageError("hdf5plugin", f"for compression={name!r}", extra="filters") from None
    return hdf5plugin


def resolve_compression(choice: str | int | None, where: str) -> Compression:
    """Return the compression that was asked for.

    Parameters
    ----------
    choice : {"gzip", "lzf", "zstd", "blosc2", "blosc", "lz4"} or int or None
        A name, a deflate level from 0 to 9, or None for no compression.
    where : str
        Who asks, for the message.

    Raises
    ------
    SchemaError
        If there is no such compression.
    MissingPackageError
        If it needs hdf5plugin, which is not installed.

    Examples
    --------
    >>> resolve_compression("gzip", "example"), resolve_compression(None, "example")
    (Compression(name='gzip', level=1, shuffle=True, checksum=False), Compression(name='none', level=1, shuffle=True, checksum=False))
    """
    if choice is None:
        return Compression("none")
    if isinstance(choice, (int, np.integer)) and not isinstance(choice, bool):
        if 0 <= choice <= 9:
            return Compression("gzip", int(choice))
        raise SchemaError(f"{where} asks for compression level {choice}; levels go from 0 to 9.")
    if isinstance(choice, str) and choice in NAMES:
        if choice in _PLUGINS:
            _hdf5plugin(choice)
        return Compression(choice)
    raise SchemaError(
        f"{where} asks for compression={choice!r}; use one of {', '.join(NAMES)}, a level from 0 to 9, or None."
        f"{did_you_mean(str(choice), NAMES)}"
    )


_SHUFFLE: Final = 2
_FLETCHER32: Final = 3
_BY_FILTER: Final = {1: "gzip", 32000: "lzf", 32001: "blosc", 32004: "lz4", 32015: "zstd", 32026: "blosc2"}


def compression_of(filters: Sequence[tuple[int, Any]]) -> Compression:
    """Return the compression of a dataset by its filters: HDF5's number of each, and its options.

    Examples
    --------
    >>> compression_of([(2, (4,)), (1, (1,))]), compression_of([])
    (Compression(name='gzip', level=1, shuffle=True, checksum=False), Compression(name='none', level=1, shuffle=False, checksum=False))
    """
    checksum, shuffled = (any(number == wanted for number, _ in filters) for wanted in (_FLETCHER32, _SHUFFLE))
    for number, options in filters:
        if number in _BY_FILTER:
            return Compression(_BY_FILTER[number], int(options[0]) if number == 1 else DEFAULT_LEVEL, shuffled, checksum)
    return Compression("none", shuffle=shuffled, checksum=checksum)


def shuffle(block: Array) -> Array:
    """Return the bytes of a block as HDF5's shuffle filter lays them: all first bytes, all second bytes, ...

    Returns
    -------
    ndarray of uint8 of shape (itemsize, n)
        A plane for each byte. It is the calling thread's own scratch memory, and holds until the thread's next call.

    Examples
    --------
    >>> import numpy as np
    >>> shuffle(np.array([0x0102, 0x0304], "<u2")).tolist()
    [[2, 4], [1, 3]]
    """
    size = block.dtype.itemsize
    elements = np.ascontiguousarray(block).reshape(-1)
    if size == 1:
        return _octets(elements)
    planes = _scratch_of(elements.nbytes).reshape(size, -1)
    numbers = elements.view(f"<u{size}")
    used = int(np.bitwise_or.reduce(numbers)) if numbers.size else 0
    for i in range(size):
        if (used >> (8 * i)) & 0xFF:  # shifting and narrowing is twice as fast as copying every fourth byte
            np.right_shift(numbers, 8 * i, out=planes[i], casting="unsafe")
        else:  # small whole numbers, and floats that hold them, have nothing there
            planes[i] = 0
    return planes


def _scratch_of(nbytes: int) -> Array:
    memory: Array | None = getattr(_scratch, "memory", None)
    if memory is None or memory.size < nbytes:
        memory = _scratch.memory = np.empty(nbytes, np.uint8)
    return memory[:nbytes]


def unshuffle(planes: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements whose shuffled bytes are given; the opposite of `shuffle`."""
    size = dtype.itemsize
    if size == 1:
        return planes.view(dtype)
    planes = planes.reshape(size, -1)
    octets = np.empty((planes.shape[1], size), np.uint8)
    for i in range(size):  # plane by plane: three times faster than one transposed copy
        octets[:, i] = planes[i]
    return octets.reshape(-1).view(dtype)


def decode_chunk(raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], shuffled: bool, deflated: bool) -> Array:
    """Decode one chunk.

    Parameters
    ----------
    raw : bytes
        The chunk as it lies in the file.
    dtype : dtype
        The stored dtype.
    shape : tuple of int
        The chunk's shape.
    shuffled, deflated : bool
        Which of the two filters the dataset has.

    Returns
    -------
    ndarray of shape `shape`
        May be read-only.

    Raises
    ------
    ValueError
        If the bytes are no whole zlib stream, or decode to another size.
    """
    size = dtype.itemsize
    for n in shape:
        size *= n
    try:
        octets = isal_zlib.decompress(raw, 15, max(size, 1)) if deflated else raw
    except (_IsalError, EOFError) as e:
        raise ValueError(f"the chunk's deflate stream is damaged ({e})") from None
    if len(octets) != size:
        raise ValueError(f"the chunk decodes to {len(octets)} bytes, {size} were expected")
    planes = np.frombuffer(octets, np.uint8)
    return (unshuffle(planes, dtype) if shuffled else planes.view(dtype)).reshape(shape)
