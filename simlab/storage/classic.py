"""What is in a netCDF file of the classic kind, which is no HDF5; read by netCDF4-python, where that is installed."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Final

from simlab.errors import FormatError, MissingPackageError
from simlab.storage.tree import DatasetInfo, GroupInfo, Tree, plain_attribute

_MAGIC: Final = (b"CDF\x01", b"CDF\x02", b"CDF\x05")


def is_classic(path: str | os.PathLike[str]) -> bool:
    """Say whether a file is netCDF of the classic kind."""
    with contextlib.suppress(OSError, ValueError), open(os.path.expanduser(os.fspath(path)), "rb") as file:
        return file.read(4) in _MAGIC
    return False


def describe_classic(path: str | os.PathLike[str]) -> Tree:
    """Describe what is in a netCDF file of the classic kind.

    Raises
    ------
    MissingPackageError
        If netCDF4 is not installed.
    FormatError
        If the file is damaged.
    """
    try:
        import netCDF4
    except ImportError:
        raise MissingPackageError("netCDF4", "to read netCDF-3 files", conda="netcdf4") from None
    place = os.path.expanduser(os.fspath(path))
    try:
        with netCDF4.Dataset(place) as file:
            file.set_auto_maskandscale(False)
            datasets = [_described(name, variable) for name, variable in file.variables.items()]
            root = GroupInfo("/", "/", _attributes(file), [], datasets, [])
    except (OSError, RuntimeError, ValueError) as error:
        raise FormatError(f"{place!r} looks like netCDF-3, but netCDF cannot read it: {error}. Restore it from a copy.") from error
    return Tree(path=place, file_bytes=os.path.getsize(place), root=root, complete=True)


def _described(name: str, variable: Any) -> DatasetInfo:
    size = int(variable.size) * variable.dtype.itemsize
    growing = [dim.isunlimited() for dim in variable.get_dims()]
    shape = tuple(int(n) for n in variable.shape)
    return DatasetInfo(
        name=name,
        path=f"/{name}",
        shape=shape,
        max_shape=tuple(None if grows else n for grows, n in zip(growing, shape, strict=True)),
        dtype=str(variable.dtype),
        dims=tuple(variable.dimensions) or None,
        chunks=None,
        filters=(),
        raw_bytes=size,
        stored_bytes=size,
        is_dimension=False,
        elsewhere="",
        attributes=_attributes(variable),
    )


def _attributes(obj: Any) -> dict[str, Any]:
    return {name: plain_attribute(obj.getncattr(name)) for name in obj.ncattrs()}
