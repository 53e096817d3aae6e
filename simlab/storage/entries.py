"""What lies in a group: each object opened once, whatever its name is, and whatever else is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field

import h5py

from simlab.storage.damage import ODD, reason


@dataclass(slots=True)
class Entries:
    """What lies in a group, each object opened once.

    Attributes
    ----------
    groups : dict of str to h5py.Group
        Groups, by name.
    datasets : dict of str to h5py.Dataset
        Datasets, by name.
    gaps : list of str
        What cannot be opened, and why.
    """

    groups: dict[str, h5py.Group] = field(default_factory=dict)
    datasets: dict[str, h5py.Dataset] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)


def entries(group: h5py.Group) -> Entries:
    """Return what lies in a group, in its order.

    A link may lead out of the file, nowhere, or in a circle: only what lies here counts.
    """
    out = Entries()
    try:
        names = [name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape") for name in group]
    except ODD as error:
        out.gaps.append(f"what lies in {_path(group)!r} cannot be listed: {reason(error)}")
        return out
    for name in names:
        try:
            text = name.decode()
        except UnicodeDecodeError:
            out.gaps.append(f"{_path(group)!r} holds something whose name is no UTF-8: {name!r}")
            continue
        try:
            if group.id.links.get_info(name).type != h5py.h5l.TYPE_HARD:
                continue
            found = h5py.h5o.open(group.id, name)
            if isinstance(found, h5py.h5g.GroupID):
                out.groups[text] = h5py.Group(found)
            elif isinstance(found, h5py.h5d.DatasetID):
                out.datasets[text] = h5py.Dataset(found)
        except ODD as error:
            out.gaps.append(f"{_path(group).rstrip('/')}/{text} cannot be opened: {reason(error)}")
    return out


def _path(obj: h5py.HLObject) -> str:
    name = obj.name
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name or "/")


def address(obj: h5py.HLObject) -> int:
    """Return where an object lies; two names of one object share it."""
    return address_of(obj.id)


def address_of(number: h5py.h5i.ObjectID) -> int:
    """Return where an object lies.

    ``h5o.get_info`` would read the index of a dataset's chunks too, and crashes where that is damaged.
    """
    low, high = h5py.h5g.get_objinfo(number, b".").objno
    return int(low) + (int(high) << 32)
