"""The table of episodes: one row for each episode that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import ATTR_BOOL, ATTR_ORIGINAL_NAME, EPISODE, LOGGED, STRLEN_SUFFIX
from simlab.schema.names import disk_name
from simlab.storage.attributes import write_attribute
from simlab.storage.netcdf import create_coordinate, create_text_column, create_variable, write_text_rows

_CHUNK: Final = 256
_BITS: Final = 64


class EpisodeTable:
    """The writer's side of the table of episodes.

    Parameters
    ----------
    group : h5py.Group
        A new, empty group.
    """

    def __init__(self, group: h5py.Group) -> None:
        self.group = group
        self.dim = create_coordinate(group, EPISODE, "int32", long_name="episode", units="1")
        self._columns: dict[str, h5py.Dataset] = {}
        self._logged: list[h5py.Dataset] = []
        self._given: list[str] = []
        for name, text in (("start", "first row of the episode"), ("length", "rows of the episode")):
            self._columns[name] = self._make(name, np.dtype("int64"), {"long_name": text, "units": "1"})

    def __len__(self) -> int:
        return int(self.dim.shape[0])

    def write(self, episode: int, fields: Mapping[str, Any]) -> None:
        """Write the row of one episode.

        Parameters
        ----------
        episode : int
            Its number; rows are written in order, and written again only with the same fields.
        fields : mapping
            ``start`` and ``length``, and what else is known: numbers, truth values, text. A float in a column of whole numbers
            makes it one of floats.
        """
        end = max(len(self), episode + 1)
        given = {name: value for name, value in fields.items() if value is not None}
        for name, value in given.items():
            if name not in self._columns:
                self._add(name, value)
            elif isinstance(value, np.floating) and self._columns[name].dtype.kind == "i":
                self._columns[name] = self._as_float(self._columns[name], disk_name(name).replace(".", "_"))
        self.dim.resize((end,))
        self.dim[episode] = episode
        for dataset in (*self._columns.values(), *self._logged):
            if dataset.shape[0] < end:
                dataset.resize((end, *dataset.shape[1:]))
        for name, value in given.items():
            dataset = self._columns[name]
            if isinstance(value, str):
                write_text_rows(dataset, episode, [value])
            else:
                dataset[episode] = value
        for i, logged in enumerate(self._logged):
            names = self._given[i * _BITS : (i + 1) * _BITS]
            logged[episode] = np.uint64(sum(1 << bit for bit, name in enumerate(names) if name in given))

    def _add(self, name: str, value: Any) -> None:
        disk = disk_name(name).replace(".", "_")
        attributes = {"long_name": disk.replace("_", " ")} | ({ATTR_ORIGINAL_NAME: name} if disk != name else {})
        if isinstance(value, str):
            dataset = create_text_column(self.group, disk, self.dim, **attributes)
        else:
            dtype = np.asarray(value).dtype
            if dtype == np.bool_:
                dtype, attributes[ATTR_BOOL] = np.dtype("int8"), "bool"
            else:
                attributes["units"] = "1"
            dataset = self._make(disk, dtype, attributes)
        self._columns[name] = dataset
        if len(self._given) % _BITS == 0:
            field = f"{LOGGED}_{len(self._logged)}" if self._logged else LOGGED
            self._logged.append(self._make(field, np.dtype("uint64"), {"long_name": "which fields were given"}))
        self._given.append(disk)
        names = self._given[(len(self._logged) - 1) * _BITS :]
        logged = self._logged[-1]
        logged.attrs.create("flag_masks", np.array([1 << i for i in range(len(names))], np.uint64))
        write_attribute(logged, "flag_meanings", " ".join(names))

    def _as_float(self, whole: h5py.Dataset, disk: str) -> h5py.Dataset:
        """Make a column of whole numbers, each of which a float holds, one of floats; the type of a dataset cannot change.

        The new one is whole before the old one goes: if the disk refuses it, nothing has changed.
        """
        field, bit = divmod(self._given.index(disk), _BITS)
        was_given = self._logged[field][: whole.shape[0]] & np.uint64(1 << bit) != 0
        attributes = {n: whole.attrs[n] for n in ("long_name", ATTR_ORIGINAL_NAME, "units") if n in whole.attrs}
        beside = disk + STRLEN_SUFFIX  # no field of numbers has a column of that name
        if beside in self.group:
            del self.group[beside]
        column = self._make(beside, np.dtype("float64"), attributes)
        column[: whole.shape[0]] = np.where(was_given, whole[...], np.nan)
        del self.group[disk]
        self.group.move(beside, disk)
        return column

    def _make(self, name: str, dtype: np.dtype[Any], attributes: dict[str, Any]) -> h5py.Dataset:
        fill: dict[str, Any] = {}
        if dtype.kind == "f":
            fill["fillvalue"] = np.nan
            attributes = {**attributes, "_FillValue": np.array(np.nan, dtype)}
        return create_variable(
            self.group, name, [self.dim], dtype, chunks=(_CHUNK,), attributes=attributes, compression="gzip", **fill
        )  # fmt: skip
