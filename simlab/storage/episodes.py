"""The table of episodes: one row for each episode that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import ATTR_BOOL, ATTR_ORIGINAL_NAME, EPISODE, LOGGED
from simlab.schema.names import disk_name
from simlab.storage.attributes import write_attribute
from simlab.storage.netcdf import create_coordinate, create_text_column, create_variable, read_text_rows, write_text_rows
from simlab.storage.writable import WritableFile

_CHUNK: Final = 256
_BITS: Final = 64
_ALWAYS: Final = (("start", "first row of the episode"), ("length", "rows of the episode"))


class EpisodeTable:
    """The writer's side of the table of episodes.

    Parameters
    ----------
    file : WritableFile
        The file.
    group : str
        The path of its group, which is there.
    """

    def __init__(self, file: WritableFile, group: str) -> None:
        self.file = file
        self.group = group
        self._columns: dict[str, str] = {}
        self._logged: list[str] = []
        self._given: list[str] = []
        if not file.has(f"{group}/{EPISODE}"):
            with file.structure():
                create_coordinate(file.group(group), EPISODE, "int32", long_name="episode", units="1")
                for name, text in _ALWAYS:
                    self._make(name, np.dtype("int64"), {"long_name": text, "units": "1"})
        self._columns = {name: f"{group}/{name}" for name, _ in _ALWAYS}
        self._bind()

    def _bind(self) -> None:
        """Take the fields that the file has."""
        while self.file.has(path := f"{self.group}/{LOGGED}_{len(self._logged)}" if self._logged else f"{self.group}/{LOGGED}"):
            self._logged.append(path)
            told = self.file.dataset(path).attrs.get("flag_meanings", b"")
            self._given += (told.decode() if isinstance(told, bytes) else str(told)).split()
        for disk in self._given:
            given = self.file.dataset(f"{self.group}/{disk}").attrs.get(ATTR_ORIGINAL_NAME, disk)
            self._columns[given.decode() if isinstance(given, bytes) else str(given)] = f"{self.group}/{disk}"

    def fields(self) -> dict[str, str]:
        """Return the paths of the fields that were given, by name."""
        return {name: path for name, path in self._columns.items() if name not in dict(_ALWAYS)}

    def __len__(self) -> int:
        return int(self._dim.shape[0])

    @property
    def _dim(self) -> h5py.Dataset:
        return self.file.dataset(f"{self.group}/{EPISODE}")

    def prepare(self, fields: Mapping[str, Any]) -> None:
        """Make the columns of fields that are new, or that do not fit into the column they have: whole numbers that become fractions."""
        for name, value in fields.items():
            if value is None:
                continue
            if name not in self._columns:
                with self.file.structure():
                    self._add(name, value)
            elif isinstance(value, (float, np.floating)) and self.file.dataset(self._columns[name]).dtype.kind in "iu":
                with self.file.structure():
                    self._widen(self._columns[name])  # the caller saw that no number changes by it

    def write(self, episode: int, fields: Mapping[str, Any]) -> None:
        """Write the row of one episode.

        Parameters
        ----------
        episode : int
            Its number; rows are written in order, and written again only with the same fields.
        fields : mapping
            ``start`` and ``length``, and what else is known: numbers, truth values, text. All were prepared.
        """
        self.prepare(fields)
        end = max(len(self), episode + 1)
        given = {name: value for name, value in fields.items() if value is not None}
        for path in (*self._columns.values(), *self._logged):
            dataset = self.file.dataset(path)
            if dataset.shape[0] < end:
                dataset.resize((end, *dataset.shape[1:]))
        for name, value in given.items():
            dataset = self.file.dataset(self._columns[name])
            if isinstance(value, str):
                write_text_rows(dataset, episode, [value])
            else:
                dataset[episode] = value
        for i, path in enumerate(self._logged):
            names = self._given[i * _BITS : (i + 1) * _BITS]
            disks = {self._columns[name].rsplit("/", 1)[-1] for name in given}
            self.file.dataset(path)[episode] = np.uint64(sum(1 << bit for bit, name in enumerate(names) if name in disks))
        dim = self._dim
        if dim.shape[0] < end:
            dim.resize((end,))
        dim[episode] = episode

    def entry(self, place: int) -> dict[str, Any]:
        """Return the fields that were given of an episode, beside where it lies."""
        out: dict[str, Any] = {}
        for i, path in enumerate(self._logged):
            bits = int(self.file.dataset(path)[place])
            disks = [disk for bit, disk in enumerate(self._given[i * _BITS : (i + 1) * _BITS]) if bits >> bit & 1]
            for name, column in self._columns.items():
                if column.rsplit("/", 1)[-1] in disks:
                    dataset = self.file.dataset(column)
                    if dataset.dtype.kind == "S":
                        out[name] = read_text_rows(dataset[place : place + 1])[0]
                    else:
                        out[name] = np.bool_(dataset[place]) if ATTR_BOOL in dataset.attrs else dataset[place]
        return out

    def _add(self, name: str, value: Any) -> None:
        disk = disk_name(name).replace(".", "_")
        attributes = {"long_name": disk.replace("_", " ")} | ({ATTR_ORIGINAL_NAME: name} if disk != name else {})
        if isinstance(value, str):
            create_text_column(self.file.group(self.group), disk, self._dim, **attributes)
        else:
            dtype = np.asarray(value).dtype
            if dtype == np.bool_:
                dtype, attributes[ATTR_BOOL] = np.dtype("int8"), "bool"
            else:
                attributes["units"] = "1"
            self._make(disk, dtype, attributes)
        if len(self._given) % _BITS == 0:
            field = f"{LOGGED}_{len(self._logged)}" if self._logged else LOGGED
            self._make(field, np.dtype("uint64"), {"long_name": "which fields were given"})
            self._logged.append(f"{self.group}/{field}")
        self._columns[name] = f"{self.group}/{disk}"
        self._given.append(disk)
        names = self._given[(len(self._logged) - 1) * _BITS :]
        logged = self.file.dataset(self._logged[-1])
        logged.attrs.create("flag_masks", np.array([1 << i for i in range(len(names))], np.uint64))
        write_attribute(logged, "flag_meanings", " ".join(names))

    def _widen(self, path: str) -> None:
        """Turn a column of whole numbers into one of fractions; the file keeps its order of columns but for this one."""
        old = self.file.dataset(path)
        field, bit = divmod(self._given.index(path.rsplit("/", 1)[-1]), _BITS)
        given = self.file.dataset(self._logged[field])[: old.shape[0]] & np.uint64(1 << bit) != 0
        values, attributes = (
            np.where(given, old[...], np.nan),
            {name: old.attrs[name] for name in ("long_name", ATTR_ORIGINAL_NAME) if name in old.attrs},
        )
        self.file.forget(path)
        name = path.rsplit("/", 1)[-1]
        del self.file.group(self.group)[name]
        texts = {k: v.decode() if isinstance(v, bytes) else str(v) for k, v in attributes.items()}
        self._make(name, np.dtype("float64"), texts | {"units": "1"})
        column = self.file.dataset(path)
        column.resize(values.shape)
        column[...] = values

    def _make(self, name: str, dtype: np.dtype[Any], attributes: dict[str, Any]) -> None:
        fill: dict[str, Any] = {}
        if dtype.kind == "f":
            fill["fillvalue"] = np.nan
            attributes = {**attributes, "_FillValue": np.array(np.nan, dtype)}
        create_variable(
            self.file.group(self.group), name, [self._dim], dtype, chunks=(_CHUNK,), attributes=attributes, compression="gzip", **fill
        )
