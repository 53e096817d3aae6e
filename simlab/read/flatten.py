"""A simulation as one flat xarray.Dataset: every variable under its unique name, on labelled axes, read when asked for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import xarray as xr

from simlab.conventions import (
    ATTR_BOOL,
    ATTR_CONFIG,
    ATTR_CONVENTIONS,
    ATTR_ENCODING,
    ATTR_HISTORY,
    ATTR_JSON_ATTRIBUTES,
    ATTR_LOGGED_DTYPE,
    ATTR_ORIGINAL_NAME,
    ATTR_SOURCE,
    ATTR_STEP_DURATION,
    EPISODE,
    STEP,
    TIME,
    TIME_SUFFIX,
)
from simlab.errors import FormatError, MetadataError, NotInRunError, StorageError, did_you_mean
from simlab.metadata import from_json
from simlab.read.arrays import StoredArray, lazy
from simlab.read.origin import KEY, Origin, read_agents
from simlab.schema.names import disk_name
from simlab.storage.dtypes import Array
from simlab.storage.grids import Member, PopulationContents, RunContents
from simlab.storage.reading import StoredVariable

SIMULATED_TIME: Final = "simulated_time"
_OF_THE_FILE: Final = (ATTR_CONVENTIONS, ATTR_SOURCE, ATTR_HISTORY, "title")
_ONLY_ON_DISK: Final = frozenset({ATTR_BOOL, ATTR_LOGGED_DTYPE, ATTR_ENCODING, ATTR_ORIGINAL_NAME, "coordinates", "_FillValue", "axis"})
_COMPRESSED_KINDS: Final = "iufb"


def flatten(contents: RunContents, population: str | None = None) -> xr.Dataset:
    """Return a simulation as one lazy Dataset.

    Parameters
    ----------
    contents : RunContents
        What the simulation holds.
    population : str, optional
        Show the agents of one population only, under plain names.

    Raises
    ------
    NotInRunError
        If there is no such population.
    """
    if population is not None and population not in contents.populations:
        named = [name for name in contents.populations if name]
        raise NotInRunError(
            f"{contents.source.path!r} has no population {population!r}; "
            + (f"it has {', '.join(named)}.{did_you_mean(str(population), named)}" if named else "all its agents are of one kind.")
        )
    builder = _Builder(contents, Origin(contents.source, contents.simulation, population, [contents]))
    builder.add_clocks()
    for each in contents.populations.values():
        if builder.origin.shows(each.name):
            builder.add_population(each)
    builder.add_environment()
    return builder.dataset()


class _Builder:
    def __init__(self, contents: RunContents, origin: Origin) -> None:
        self.contents = contents
        self.origin = origin
        self.sizes: dict[str, int] = {TIME: contents.rows}
        self.coords: dict[str, xr.Variable] = {}
        self.variables: dict[str, xr.Variable] = {}

    def add_clocks(self) -> None:
        clocks = self.contents.clocks
        self.time = self.contents.times
        self.coords[TIME] = xr.Variable((TIME,), self.time, clean_attributes(clocks[TIME]) if TIME in clocks else {})
        for name in (STEP, EPISODE):
            if name in clocks:
                self.coords[name] = lazy((TIME,), StoredArray(clocks[name]), clean_attributes(clocks[name]))
        duration = self.contents.attrs.get(ATTR_STEP_DURATION)
        if isinstance(duration, (int, float, np.integer, np.floating)) and STEP in clocks:
            # From the steps, not summed up: no drift.
            with self._telling("Simulated time is left out"):
                values = clocks[STEP].read().astype(np.float64) * float(duration)
                self.coords[SIMULATED_TIME] = xr.Variable((TIME,), values, {"long_name": "simulated time in the episode"})

    @contextlib.contextmanager
    def _telling(self, instead: str) -> Iterator[None]:
        """Note as a gap what cannot be read."""
        try:
            yield
        except (FormatError, StorageError) as error:
            self.contents.gaps.append(f"{error} {instead}")

    def _stored(self, member: Member) -> StoredVariable | None:
        with self._telling("It is left out"):
            stored = member.stored
            self.contents.gaps += stored.gaps
            return stored
        return None

    def add_population(self, population: PopulationContents) -> None:
        dim = self.origin.dim(population.name)
        plain = not population.name or population.name == self.origin.population
        strip = f"{population.name}_" if population.name and plain else ""
        agents = read_agents(population, dim, self.contents.gaps)
        self.coords[dim] = xr.Variable((dim,), agents.coordinate(), {"long_name": "agent"})
        self.sizes[dim] = population.n_agents
        for member in population.members:
            stored = self._stored(member)
            if stored is not None:
                dims = tuple(dim if d == population.dim else d.removeprefix(strip) for d in stored.dims)
                self._add(stored, member.name if plain else f"{population.name}.{member.name}", dims)

    def add_environment(self) -> None:
        for member in self.contents.environment.members:
            stored = self._stored(member)
            if stored is not None:
                stored, dims = self._on_a_clock(stored)
                self._add(stored, member.name, dims)

    def _on_a_clock(self, stored: StoredVariable) -> tuple[StoredVariable, tuple[str, ...]]:
        """Cut a variable that was logged now and then to the rows that count; one that was logged at every row goes on ``time``."""
        dims = stored.dims
        clock = self.contents.coordinates.get(dims[0]) if dims else None
        if clock is None or clock.dims != dims[:1] or not dims[0].endswith(TIME_SUFFIX):
            return stored, dims
        with self._telling(f"{stored.name!r} has no times"):
            times = clock.read()
            if not self.contents.complete:
                times = times[: _whole(times, self.time)]
            times = times[times <= self.time[-1]] if self.time.size else times[:0]
            if clock.shape[0] < stored.shape[0] and self.contents.complete:
                lengths = f"{clock.shape[0]:,} times for the {stored.shape[0]:,} entries"
                self.contents.gaps.append(f"{clock.path!r} has {lengths} of {stored.name!r}")
            before = stored.gaps
            stored = stored.fitted(dims[0], times.size)
            self.contents.gaps += stored.gaps[len(before) :]
            if np.array_equal(times, self.time):
                return stored, (TIME, *dims[1:])
            self.coords.setdefault(dims[0], xr.Variable(dims[:1], times, clean_attributes(clock)))
        return stored, dims

    def _add(self, stored: StoredVariable, name: str, dims: tuple[str, ...]) -> None:
        if name in self.variables or name in self.coords or name in self.sizes:
            name = self._unused(f"{stored.attrs.get('modality', 'other')}.{name}")
        renamed: list[str] = []
        for dim, disk, size in zip(dims, stored.dims, stored.shape, strict=True):
            # Dimensions of groups beside each other may share a name; in one Dataset they cannot.
            unique = dim if self._fits(dim, size, name, renamed) else f"{name}_{dim}"
            while not self._fits(unique, size, name, renamed):
                unique += "_"
            self.sizes[unique] = size
            renamed.append(unique)
            label = self.contents.labels.get(disk)
            if label is not None and unique not in self.coords and label.shape == (size,):
                with self._telling(f"{unique!r} has no labels"):
                    self.coords[unique] = xr.Variable((unique,), label.read())
        variable = lazy(tuple(renamed), StoredArray(stored), clean_attributes(stored))
        variable.encoding = encoding_of(stored, tuple(renamed))
        self.variables[name] = variable

    def _fits(self, dim: str, size: int, name: str, others: list[str]) -> bool:
        """Whether a variable can have an axis of that name."""
        coordinate = self.coords.get(dim)
        free = dim != name and dim not in others and dim not in self.variables
        return free and self.sizes.get(dim, size) == size and (coordinate is None or coordinate.dims == (dim,))

    def _unused(self, name: str) -> str:
        while name in self.variables or name in self.coords or name in self.sizes:
            name += "_"
        return name

    def dataset(self) -> xr.Dataset:
        ds = xr.Dataset(self.variables, self.coords, dataset_attributes(self.contents))
        for name in ds.coords:
            ds.variables[name].encoding["_FillValue"] = None  # CF wants none on coordinates
        ds.variables[TIME].encoding[KEY] = self.origin
        ds.encoding = {"source": self.contents.source.path, KEY: self.origin}
        return ds


def _whole(times: Array, rows: Array) -> int:
    """Return how many entries of a series are there: not those that are just being written, or whose times were lost."""
    wrong = ~np.isin(times, rows) & (times <= (rows[-1] if rows.size else -1))
    wrong[1:] |= np.diff(times) <= 0
    return int(np.argmax(wrong)) if wrong.any() else times.size


def with_netcdf_names(ds: xr.Dataset) -> xr.Dataset:
    """Return a Dataset whose variables and axes have names that netCDF takes; the attribute ``original_name`` keeps what they were.

    Examples
    --------
    >>> with_netcdf_names(xr.Dataset({"a/b": 1, "a_b": 2}))["a_b_2"].attrs
    {'original_name': 'a/b'}
    """
    taken = {str(name) for name in (*ds.variables, *ds.dims)}
    names: dict[Hashable, str] = {}
    for old in dict.fromkeys((*ds.variables, *ds.dims)):
        plain = new = disk_name(str(old).strip("/").replace("/", "_") or "_")
        if new == str(old):
            continue
        n = 2
        while new in taken:
            new, n = f"{plain}_{n}", n + 1
        taken.add(new)
        names[old] = new
    renamed = ds.rename(names) if names else ds
    for old, new in names.items():
        if new in renamed.variables:
            renamed[new].attrs[ATTR_ORIGINAL_NAME] = str(old)
    return renamed


def clean_attributes(stored: StoredVariable) -> dict[str, Any]:
    """Return the attributes of a variable, without those that only say how it lies on disk."""
    dates = stored.dtype.kind in "Mm"
    return {k: v for k, v in stored.attrs.items() if k not in _ONLY_ON_DISK and not (dates and k in ("units", "calendar"))}


def encoding_of(stored: StoredVariable, dims: Iterable[str]) -> dict[str, Any]:
    """Return how xarray should chunk the variable for dask, and write it to a netCDF file."""
    out: dict[str, Any] = {}
    if stored.own_chunks is not None:
        out["preferred_chunks"] = dict(zip(dims, stored.own_chunks, strict=True))
        if stored.dtype.kind in _COMPRESSED_KINDS and not stored.tail:
            out |= {"chunksizes": stored.own_chunks, "original_shape": stored.shape, "zlib": True, "complevel": 1}
            out["shuffle"] = stored.stored.itemsize > 1
    if stored.dtype == np.float16:
        out["dtype"] = np.dtype("float32")  # netCDF has no half, and its library crashes on one
    elif stored.dtype.kind == "f" and stored.dtype.itemsize > 8:
        out["dtype"] = np.dtype("float64")
    return out


def dataset_attributes(contents: RunContents) -> dict[str, Any]:
    """Return the attributes of a simulation in the Python values that netCDF can hold.

    Lists, numbers and text come back as they were given, truth values as 1 and 0. What netCDF has no word for (None, lists of one entry,
    nested data, dates) stays JSON text, so that `to_netcdf` takes the Dataset; ``ds.sim.attributes`` gives all of them as they were.
    """
    raw = {k: v for k, v in contents.file_attrs.items() if k in _OF_THE_FILE} | contents.attrs
    out: dict[str, Any] = {}
    texts = []
    for name, value in decoded_attributes(raw, contents.gaps).items():
        if isinstance(value, bool):
            out[name] = int(value)
        else:
            out[name] = value if _netcdf_takes(value) else raw[name]
        if out[name] is not value:
            texts.append(name)
    if texts:
        out[ATTR_JSON_ATTRIBUTES] = json.dumps(texts, ensure_ascii=False)
    return out


def decoded_attributes(raw: dict[str, Any], gaps: list[str] | None = None) -> dict[str, Any]:
    """Return attributes as they were given, with those that are JSON text decoded.

    Parameters
    ----------
    raw : dict
        As they lie in the file.
    gaps : list of str, optional
        Takes one sentence for each that should be JSON and is not; it is shown as it lies there.

    Examples
    --------
    >>> decoded_attributes({"tags": '["a"]', "n": 3, "json_attributes": '["tags"]'})
    {'tags': ['a'], 'n': 3}
    """
    gaps = [] if gaps is None else gaps
    named = _names_of_json(raw.get(ATTR_JSON_ATTRIBUTES), gaps)
    out = {}
    for name, value in raw.items():
        if name == ATTR_JSON_ATTRIBUTES:
            continue
        if (name in named or name == ATTR_CONFIG) and isinstance(value, str):
            try:
                value = from_json(value)
            except MetadataError as error:
                gaps.append(f"attribute {name!r} is damaged: {error}")
        elif name in named and isinstance(value, (int, np.integer)):
            value = bool(value)  # `dataset_attributes` made it a number
        elif name == ATTR_CONFIG:
            gaps.append(f"attribute {name!r} is {type(value).__name__}, not JSON text")
        elif isinstance(value, np.generic):
            value = value.item()
        out[name] = value
    return out


def _names_of_json(told: object, gaps: list[str]) -> frozenset[str]:
    """Return the names of the attributes whose text is JSON."""
    if told is None:
        return frozenset()
    try:
        named = from_json(told) if isinstance(told, str) else None
    except MetadataError:
        named = None
    if isinstance(named, list):
        return frozenset(name for name in named if isinstance(name, str))
    gaps.append(f"attribute {ATTR_JSON_ATTRIBUTES!r} is no list of names: attributes are shown as they lie in the file")
    return frozenset()


def _netcdf_takes(value: object) -> bool:
    if isinstance(value, (str, np.ndarray)):
        return True
    if isinstance(value, (int, float)):
        return isinstance(value, float) or -(2**63) <= value < 2**63
    if not isinstance(value, list) or len(value) < 2:  # of a list of one, netCDF readers make its entry
        return False
    kinds = {type(v) for v in value}
    return kinds == {str} or (kinds <= {int, float} and all(_netcdf_takes(v) for v in value))
