"""Where the variables of a schema lie in the file, and how they are made.

A `Grid` is a set of variables that share axes and logged bits: the agents of one population (agent, time), or the environment
(time). A `Column` is one of its variables.
"""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import (
    ATTR_KIND,
    ATTR_MODALITY,
    ATTR_ORIGINAL_NAME,
    FLAT_NAMES,
    LABEL_SUFFIX,
    LOGGED,
    STRLEN_SUFFIX,
)
from simlab.metadata import to_json
from simlab.schema import INHERIT, Variable
from simlab.schema.names import disk_name
from simlab.storage.chunking import chunk_of_agents
from simlab.storage.codec import Compression, compression_of, resolve_compression
from simlab.storage.dtypes import TEXT_BLOCK, StoredType, stored_type
from simlab.storage.netcdf import create_dimension, create_group, create_labels, create_variable
from simlab.storage.writable import WritableFile

Array = np.ndarray[Any, np.dtype[Any]]

BITS: Final = 64
_BIT_ROOM: Final = ((6, 8), (14, 16), (28, 32))
"""Up to so many variables are given so many bits: a few more may come, and one column of bits is cheapest to read."""


Examples = Callable[[int], Array | None]
"""Returns some values of a grid's variable, by its place, as far as any are known."""


@dataclass(slots=True)
class Column:
    """One variable of the file that has chunks.

    Attributes
    ----------
    variable : Variable
        What was declared or inferred.
    type : StoredType
        How its values are stored.
    file : WritableFile
        The file.
    path : str
        Where they are stored in it.
    compression : Compression
        How its chunks are encoded.
    agents, rows : int
        Agents and rows of one chunk; a column without an agent axis has 0 agents.
    strlen : str
        The path of the dimension of a text's characters, which grows with the longest; "" where it is no text.
    """

    variable: Variable
    type: StoredType
    file: WritableFile
    path: str
    compression: Compression
    agents: int
    rows: int
    strlen: str = ""

    @property
    def dataset(self) -> h5py.Dataset:
        """Where its values are stored, in the file's handle of the moment."""
        return self.file.dataset(self.path)

    def widen(self, width: int) -> None:
        """Make room for texts of so many bytes."""
        if self.strlen and self.dataset.shape[-1] < width:
            self.dataset.resize((*self.dataset.shape[:-1], width))
            self.file.dataset(self.strlen).resize((width,))


@dataclass(slots=True)
class LoggedField:
    """One variable of logged bits; bit i belongs to variable ``first + i`` of the grid."""

    column: Column
    first: int
    bits: int


@dataclass(slots=True)
class Grid:
    """Variables that share axes and logged bits.

    Attributes
    ----------
    file : WritableFile
        The file.
    group : str
        The path of ``agents``, ``agents/<population>`` or ``environment``.
    simulation : str
        The path of the simulation; dimensions that a schema names lie there.
    axes : list of str
        Paths of the scales of the shared axes.
    coordinates : str
        What the variables' ``coordinates`` attribute starts with.
    prefix : str
        What its own dimensions start with: the population's name and "_".
    """

    file: WritableFile
    group: str
    simulation: str
    axes: list[str]
    coordinates: str
    prefix: str = ""
    columns: list[Column] = field(default_factory=list)
    fields: list[LoggedField] = field(default_factory=list)

    @property
    def has_agents(self) -> bool:
        """Whether the first axis is one of agents."""
        return len(self.axes) == 2

    @property
    def n_agents(self) -> int:
        """Length of the axis of agents; 1 where there is none."""
        return int(self.file.dataset(self.axes[0]).shape[0]) if self.has_agents else 1

    def add(self, variables: Sequence[Variable], default: Compression, window: int, examples: Examples) -> None:
        """Take the variables that it does not have yet, making those that the file lacks; `variables` are all of the grid's, in order."""
        if len(variables) == len(self.columns):
            return
        with self.file.changing():
            for variable in variables[len(self.columns) :]:
                self.columns.append(self._column(variable, default, window, examples))
            changed = False
            while len(self.columns) > sum(f.bits for f in self.fields):
                changed |= self._add_field(window, default)
            if self.fields:
                self._name_bits(changed)

    def _column(self, variable: Variable, default: Compression, window: int, examples: Examples) -> Column:
        path = self._path(variable)
        if not self.file.has(path):
            with self.file.structure():
                self._make(variable, path, default, window, examples(len(self.columns)))
        column = bound_column(self.file, path, variable, self.has_agents)
        if variable.is_text:
            column.strlen = f"{path.rsplit('/', 1)[0]}/{self._stem(variable)}{STRLEN_SUFFIX}"
        return column

    def _stem(self, variable: Variable) -> str:
        return self.prefix + disk_name(variable.name).replace(".", "_")

    def _make(self, variable: Variable, path: str, default: Compression, window: int, example: Array | None) -> None:
        kind = stored_type(variable.dtype)
        compression = default
        if variable.compression != INHERIT:
            chosen = resolve_compression(variable.compression, f"Variable {variable.name!r}")
            compression = replace(chosen, checksum=default.checksum)
        if example is not None and not variable.is_text:
            compression = compression.suited_to(kind.to_disk(example))
        home, name = path.rsplit("/", 1)
        group = create_group(self.file.file, home)
        dims, attributes = self._own_dimensions(variable, kind, group)
        own = tuple(TEXT_BLOCK if d.maxshape == (None,) else d.shape[0] for d in dims)
        agents, rows = self._chunk(math.prod(own) * kind.stored.itemsize, window)
        create_variable(
            group,
            name,
            [*map(self.file.dataset, self.axes), *dims],
            kind.stored,
            chunks=((agents, rows) if agents else (rows,)) + own,
            attributes=variable_attributes(variable, kind, " ".join([self.coordinates, *attributes])),
            fillvalue=kind.fill if kind.stored.kind == "f" else None,
            **compression.creation_options(kind.stored.itemsize),
        )

    def _chunk(self, row_bytes: int, window: int) -> tuple[int, int]:
        agents, rows = chunk_of_agents(row_bytes, window, self.n_agents)
        return (agents, rows) if self.has_agents else (0, rows)

    def _path(self, variable: Variable) -> str:
        *path, name = disk_name(variable.name).split(".")
        if self.has_agents and FLAT_NAMES.get(variable.name) != variable.modality:
            path.insert(0, variable.modality)
        return "/".join([self.group, *path, name])

    def _own_dimensions(self, variable: Variable, kind: StoredType, group: h5py.Group) -> tuple[list[h5py.Dataset], list[str]]:
        """Return the scales of a variable's own axes, made where they are not there, and the names of their labels."""
        home = group if variable.has_natural_dims else self.file.group(self.simulation)
        prefix = self.prefix if variable.has_natural_dims else ""
        dims, labels = [], []
        for name, size in zip(variable.dims or (), variable.shape, strict=True):
            dim = prefix + name
            dims.append(home[dim] if dim in home else create_dimension(home, dim, size))
        if variable.channels:
            label = dims[-1].name.rsplit("/", 1)[-1] + LABEL_SUFFIX
            if label not in home:
                create_labels(home, dims[-1], label, variable.channels)
            labels.append(label)
        for suffix, size in kind.extra:
            growing, dim = suffix == "strlen", f"{self._stem(variable)}_{suffix}"
            dims.append(group[dim] if dim in group else create_dimension(group, dim, 1 if growing else size, unlimited=growing))
        return dims, labels

    def _add_field(self, window: int, default: Compression) -> bool:
        """Take the next variable of logged bits, and say whether it had to be made."""
        first = sum(f.bits for f in self.fields)
        name = LOGGED if not self.fields else f"{LOGGED}_{len(self.fields)}"
        path = f"{self.group}/{name}"
        made = not self.file.has(path)
        if made:
            wanted = len(self.columns) - first
            dtype = np.dtype(f"uint{next((bits for most, bits in _BIT_ROOM if wanted <= most), BITS)}")
            agents, rows = self._chunk(dtype.itemsize, window)
            with self.file.structure():
                create_variable(
                    self.file.group(self.group),
                    name,
                    [*map(self.file.dataset, self.axes)],
                    dtype,
                    chunks=(agents, rows) if agents else (rows,),
                    attributes={"long_name": "which variables were logged", "coordinates": self.coordinates},
                    **Compression("gzip", checksum=default.checksum).creation_options(dtype.itemsize),
                )
        # "logged" itself is a reserved name; the bits are no variable of the schema, only a column that is written like one.
        bits_of = Variable("logged_bits", dtype=self.file.dataset(path).dtype)
        self.fields.append(LoggedField(bound_column(self.file, path, bits_of, self.has_agents), first, 8 * bits_of.dtype.itemsize))
        return made

    def _name_bits(self, made: bool) -> None:
        for logged in self.fields:
            names = [disk_name(c.variable.name) for c in self.columns[logged.first : logged.first + logged.bits]]
            text = " ".join(names).encode()
            if not made and logged.column.dataset.attrs.get("flag_meanings") == text:
                continue
            with self.file.structure():
                attrs = logged.column.dataset.attrs
                attrs.create("flag_masks", np.array([1 << i for i in range(len(names))], logged.column.type.stored))
                attrs.create("flag_meanings", np.array(text), dtype=h5py.string_dtype("utf-8", max(1, len(text))))

    def begins_at(self, row: int) -> bool:
        """Whether a chunk of every variable begins at a row, so that rows from there on need none that is in the file."""
        return all(row % column.rows == 0 for column in (*self.columns, *(f.column for f in self.fields)))

    def resize(self, sizes: Sequence[int]) -> None:
        """Give every variable of the grid the lengths of the shared axes; nothing shrinks."""
        for column in (*self.columns, *(f.column for f in self.fields)):
            dataset = column.dataset.id
            had = dataset.shape
            shape = tuple(map(max, had, sizes)) + had[len(sizes) :]
            if shape != had:
                dataset.set_extent(shape)


def bound_column(file: WritableFile, path: str, variable: Variable, has_agents: bool) -> Column:
    """Return the column of a variable that is in the file, as the file has it."""
    dataset = file.dataset(path)
    options = dataset.id.get_create_plist()
    filters = [options.get_filter(i)[::2] for i in range(options.get_nfilters())]
    agents, rows = dataset.chunks[:2] if has_agents else (0, dataset.chunks[0])
    return Column(variable, stored_type(variable.dtype), file, path, compression_of(filters), agents, rows)


def variable_attributes(variable: Variable, kind: StoredType, coordinates: str) -> dict[str, Any]:
    """Return the attributes of a variable on disk."""
    out: dict[str, Any] = {"long_name": variable.long_name or variable.name.replace("_", " ").replace(".", " ")}
    if kind.stored.kind != "S" and variable.dtype.kind not in "b":
        out["units"] = variable.units
    out[ATTR_MODALITY], out[ATTR_KIND] = variable.modality, variable.kind
    out |= kind.attributes
    if coordinates.strip():
        out["coordinates"] = coordinates.strip()
    if variable.categories:
        out["flag_values"] = np.arange(len(variable.categories)).astype(kind.stored)
        # A word of flag_meanings holds no blank; "%20" stands for one, and the labels as given are kept beside.
        out["flag_meanings"] = " ".join(urllib.parse.quote(c, safe="") or "%" for c in variable.categories)
        out["categories"] = to_json(list(variable.categories), f"the categories of {variable.name!r}")
    if disk_name(variable.name) != variable.name:
        out[ATTR_ORIGINAL_NAME] = variable.name
    for name, bound in (("valid_min", variable.low), ("valid_max", variable.high)):
        if bound is not None and kind.stored.kind in "iuf" and np.isfinite(bound):
            out[name] = np.array(bound).astype(kind.stored)
    if kind.stored.kind == "f":
        out["_FillValue"] = np.array(np.nan, kind.stored)
    return out
