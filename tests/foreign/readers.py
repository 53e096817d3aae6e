"""The readers: each takes the path of a file and returns a `Reading`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from tests.foreign.reading import Reading, as_array, is_bare_dimension

HERE = Path(__file__).parent


def with_xarray(path: Path, engine: str) -> Reading:
    """Read every group with xarray, undecoded."""
    out = Reading()
    with xr.open_datatree(path, engine=engine, decode_cf=False) as tree:
        for node in tree.subtree:
            where = "" if node.path == "/" else node.path
            out.attributes |= {(where, name): as_array(value) for name, value in node.attrs.items()}
            for name, variable in node.to_dataset(inherit=False).variables.items():
                full = f"{where}/{name}"
                values, attributes = np.asarray(variable.values), dict(variable.attrs)
                if values.dtype.kind == "b":
                    # Booleans come decoded even so: what the file says is turned into what it means.
                    values, attributes["dtype"] = values.astype(np.int8), "bool"
                out.variables[full] = values
                out.dims[full] = tuple(str(d) for d in variable.dims)
                out.attributes |= {(full, str(key)): as_array(value) for key, value in attributes.items()}
    return out


def with_netcdf4(path: Path) -> Reading:
    """Read everything with netCDF4-python, as it is stored."""
    import netCDF4

    out = Reading()

    def walk(group: netCDF4.Group, where: str) -> None:
        out.attributes.update({(where, name): as_array(group.getncattr(name)) for name in group.ncattrs()})
        for name, variable in group.variables.items():
            full = f"{where}/{name}"
            out.variables[full] = np.asarray(variable[...])
            out.dims[full] = variable.dimensions
            out.attributes.update({(full, key): as_array(variable.getncattr(key)) for key in variable.ncattrs()})
        for name, child in group.groups.items():
            walk(child, f"{where}/{name}")

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        walk(file, "")
    return out


def with_octave_netcdf(octave: str, path: Path, folder: Path) -> Reading:
    """Read everything with Octave's netcdf package."""
    _run([octave, "-qf", "--no-history", str(HERE / "read_netcdf.m"), str(path), str(folder)])
    return _from_folder(folder)


def with_octave_hdf5(octave: str, path: Path, folder: Path) -> Reading:
    """Read everything with Octave's ``load -hdf5``."""
    _run([octave, "-qf", "--no-history", str(HERE / "read_hdf5.m"), str(path), str(folder)])
    return _from_folder(folder)


def with_r(rscript: str, path: Path, folder: Path) -> Reading:
    """Read everything with R's ncdf4."""
    _run([rscript, "--vanilla", str(HERE / "read_ncdf4.R"), str(path), str(folder)])
    return _from_folder(folder)


def without_characters(path: Path, copy: Path) -> Path:
    """Write a copy of a file that has no arrays of characters, which ``load -hdf5`` cannot take."""
    with h5py.File(path, "r") as source, h5py.File(copy, "w", libver=("v110", "v110")) as target:

        def visit(name: str, obj: h5py.HLObject) -> None:
            if isinstance(obj, h5py.Group):
                target.require_group(name)
            elif obj.dtype.kind != "S" and not is_bare_dimension(obj):
                source.copy(obj, target, name, expand_refs=False, without_attrs=True)

        source.visititems(visit)
    return copy


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command[0]} failed: {done.stderr[-2000:]}"


def _from_folder(folder: Path) -> Reading:
    """Collect what a script wrote: index.tsv, and one file of raw values in the order of the file for each item."""
    out = Reading()
    for line in (folder / "index.tsv").read_text(encoding="utf-8").splitlines():
        kind, path, name, type_, item = line.split("\t")
        raw = (folder / item).read_bytes()
        values: np.ndarray
        if type_ == "text":
            values = np.array([bytes.fromhex(text) for text in raw.decode("ascii").split("\n")[:-1]], dtype=object)
        elif type_ == "char":
            values = np.frombuffer(raw, "S1") if kind == "variable" else as_array(raw)
        else:
            values = np.frombuffer(raw, np.dtype(type_))
        if kind == "variable":
            out.variables[path] = values
        else:
            out.attributes[path, name] = values
    return out
