"""Say in one sentence why a path is no usable HDF5 file. Reads a few bytes with plain Python; HDF5 is never asked.

HDF5's own answer to all of these is "file signature not found" or "truncated file", which tells nobody what to do.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from typing import BinaryIO, Final

from simlab.storage.superblock import SIGNATURE, checksum

_STUB_BYTES: Final = 1024
"""HDF5 writes a head of 96, 108 or 800 bytes when it creates a file, and the rest with the first flush."""
_SAMPLE: Final = 1 << 16
_WRITING: Final = 1
_SWMR: Final = 4

_KINDS: Final = (
    (b"CDF\x01", "a netCDF-3 file (classic); open it with xarray.open_dataset"),
    (b"CDF\x02", "a netCDF-3 file (64-bit offset); open it with xarray.open_dataset"),
    (b"CDF\x05", "a netCDF-3 file (CDF-5); open it with xarray.open_dataset(path, engine='netcdf4')"),
    (b"\x0e\x03\x13\x01", "an HDF4 file, which HDF5 cannot read; convert it with h4toh5"),
    (b"\x93NUMPY", "a numpy array (.npy); open it with numpy.load"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first with gunzip"),
    (b"BZh", "compressed with bzip2; unpack it first with bunzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz; unpack it first with unxz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first with unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"PAR1", "a Parquet table; open it with pandas.read_parquet"),
    (b"ARROW1", "an Arrow or Feather table; open it with pandas.read_feather"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"MATLAB 5.0 MAT-file", "a MATLAB file of version 5; open it with scipy.io.loadmat, or save it in MATLAB with -v7.3"),
    (b"\x89PNG", "a PNG picture"),
    (b"GIF8", "a GIF picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF document"),
)


def explain(path: str | os.PathLike[str], left: bool = False) -> str | None:
    """Return one sentence that says why `path` is no usable HDF5 file, or None where nothing is wrong with it.

    Parameters
    ----------
    path : str or path-like
        The path as the user gave it; ``~`` is expanded.
    left : bool, optional
        Whether its writer is known to be dead: that the file is marked as being written is no reason then.

    Returns
    -------
    str or None
        A sentence with the path in it, and what to do where there is something to do. A file that a writer has open, or
        left open when it died, gets a sentence too: HDF5 opens it for nobody but a reader that asks for SWMR.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> file = folder / "run.h5"
    >>> file.write_bytes(b"")
    0
    >>> explain(file).removeprefix(repr(str(file)))
    ' is empty (0 bytes): nothing was ever written to it, or the copy failed.'
    """
    place = os.path.expanduser(os.fspath(path))
    shown = repr(place)
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        return _missing(place, shown)
    except NotADirectoryError:
        return f"{shown} does not exist: a part of its path is a file, not a folder."
    except PermissionError:
        return f"{shown} cannot be reached: a folder on its path does not let you in."
    except (OSError, ValueError) as error:
        return f"{shown} is no path that this system accepts ({getattr(error, 'strerror', None) or error})."
    if stat.S_ISDIR(mode):
        return _folder(place, shown)
    if not stat.S_ISREG(mode):
        return f"{shown} is a pipe, socket or device, not a file."
    try:
        with open(place, "rb") as file:
            return _content(file, shown, left)
    except PermissionError:
        return f"{shown} may not be read by you; change its permissions."
    except OSError as error:
        return f"{shown} could not be read: {error.strerror or error}."


def _missing(place: str, shown: str) -> str:
    if os.path.islink(place):
        return f"{shown} is a link to {os.readlink(place)!r}, which does not exist."
    folder, name = os.path.split(place)
    if folder and not os.path.isdir(folder):
        while not os.path.isdir(os.path.dirname(folder) or os.curdir):
            folder = os.path.dirname(folder)
        return f"{shown} does not exist: there is no folder {folder!r}."
    try:
        with os.scandir(folder or os.curdir) as entries:
            names = [entry.name for entry, _ in zip(entries, range(5000), strict=False)]
    except OSError:
        names = []
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.7)
    where = f"in {os.path.abspath(folder or os.curdir)!r}"
    return f"{shown} does not exist {where}. " + (f"Did you mean {' or '.join(map(repr, near))}?" if near else "Check the name.")


def _folder(place: str, shown: str) -> str:
    try:
        names = sorted(os.listdir(place))
    except OSError:
        names = []
    if any(name in (".zgroup", ".zarray", ".zmetadata", "zarr.json") for name in names):
        return f"{shown} is a folder, a Zarr store; open it with xarray.open_zarr."
    files = [name for name in names if name.lower().endswith((".h5", ".hdf5", ".nc", ".nc4", ".he5", ".hdf"))]
    if not files:
        return f"{shown} is a folder, not a file."
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return f"{shown} is a folder, not a file. It holds {', '.join(map(repr, files[:3]))}{more}."


def _content(file: BinaryIO, shown: str, left: bool) -> str | None:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return f"{shown} is empty (0 bytes): nothing was ever written to it, or the copy failed."
    start = 0
    while start + len(SIGNATURE) <= size:  # HDF5 looks for its signature at 0, 512, 1024, 2048, ...
        file.seek(start)
        if file.read(len(SIGNATURE)) == SIGNATURE:
            return _superblock(file, start, size, shown, left)
        start = 2 * start or 512
    file.seek(0)
    return _stranger(file.read(_SAMPLE), size, shown)


def _superblock(file: BinaryIO, start: int, size: int, shown: str, left: bool) -> str | None:
    """Judge an HDF5 file by its superblock: whether all of it is there, and whether a writer holds it."""
    file.seek(start)
    head = file.read(128)
    version = head[8] if len(head) > 8 else 0
    if version > 3:
        return f"{shown} is HDF5 with a superblock of version {version}, newer than any known; update h5py, or the file is damaged."
    width, fields = (head[13:14], 24 + 4 * (version == 1)) if version < 2 else (head[9:10], 12)
    offset = width[0] if width else 8
    if offset not in (2, 4, 8, 16):
        return f"{shown} begins like HDF5, but its head (superblock) is damaged: addresses of {offset} bytes."
    base, _, end = (int.from_bytes(head[fields + i * offset : fields + (i + 1) * offset], "little") for i in range(3))
    whole = len(head) >= fields + 4 * offset
    expected = end - base + start if whole else 0  # a user block put in front moves all addresses
    if not whole or size < min(expected, start + _STUB_BYTES):
        of = f" of {expected}" if whole else ""
        return (
            f"{shown} holds {size}{of} bytes, only the stub that HDF5 writes when it creates a file: its writer died, or still "
            "works, and had not flushed yet. There is no data in it."
        )
    if size < expected:
        user_block = f" (its HDF5 part begins at byte {start}, after a user block)" if start else ""
        return f"{shown} is truncated: it holds {size} of {expected} bytes{user_block}. Copy or download it again."
    flags = head[11] if version == 3 and not left else 0
    if flags & _WRITING and flags & _SWMR:
        return (
            f"{shown} is being written (SWMR), or its writer died without closing it. Wait until it is closed; if "
            "the writer is dead, mend the file: simlab repair FILE."
        )
    if flags & _WRITING:
        return (
            f"{shown} is open in another program that writes to it, or that program died without closing it. Wait for it, "
            "or close the file there; if the program is dead, mend the file: simlab repair FILE."
        )
    if version >= 2 and checksum(head[: 12 + 4 * offset]) != int.from_bytes(head[12 + 4 * offset : 16 + 4 * offset], "little"):
        return f"{shown} is HDF5, but its head (superblock) is damaged: its checksum is wrong. Restore it from a copy."
    return None


def _stranger(head: bytes, size: int, shown: str) -> str:
    """Say what a file without the HDF5 signature is."""
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        told = re.search(rb"^size (\d+)", head, re.M)
        of = f" of the {_bytes(int(told[1]))} that belong here" if told else ""
        return f"{shown} is a git-LFS pointer of {size} bytes, not the file itself; run git lfs pull to fetch the content{of}."
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return f"{shown} is not HDF5 but {kind}."
    if head.startswith(b"PK\x03\x04"):
        inner = "a numpy archive (.npz); open it with numpy.load" if b".npy" in head[30:300] else "a zip archive; unpack it first"
        return f"{shown} is not HDF5 but {inner}."
    if head[257:262] == b"ustar":
        return f"{shown} is not HDF5 but a tar archive; unpack it first."
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and len(head) > 2:
        return f"{shown} is not HDF5 but a Python pickle (or a torch file); it may run code when loaded, so open it only if you trust it."
    if not head.strip(b"\0"):
        return f"{shown} holds zeros where an HDF5 file begins ({_bytes(size)}): its copy or download never finished."
    if not any(head[:8]) and re.search(rb"OHDR|TREE|HEAP|SNOD|FRHP|FADB|EAHD", head):
        return f"{shown} was HDF5, but its first bytes are zero: the disk lost the beginning of the file. Restore it from a copy."
    return _text(head, size, shown) or (
        f"{shown} is not HDF5: the signature is missing; its {_bytes(size)} begin with {head[:8].hex(' ')}. Is it the right file?"
    )


def _text(head: bytes, size: int, shown: str) -> str | None:
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # more than a character cut at the end of the sample
            return None
        text = head[: error.start].decode("utf-8-sig")
    if any(ord(character) < 32 and character not in "\t\n\r\f\x1b" for character in text):
        return None
    first = text.strip().splitlines()[0].strip() if text.strip() else ""
    if re.match(r"<!doctype html|<html", first, re.I):
        return f"{shown} is a web page, not HDF5: the download was answered by a page, perhaps a login. Download the file itself."
    sort = "JSON text" if first[:1] in ("{", "[") else "a text file"
    begins = f", beginning {first[:60]!r}" if first else ""
    return f"{shown} is not HDF5 but {sort} of {_bytes(size)}{begins}."


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count} bytes"
    power = 1 if count < 1e6 else 2 if count < 1e9 else 3
    return f"{count / 1000**power:.3g} {('kB', 'MB', 'GB')[power - 1]}"
