"""Fields of episodes: what the caller says of them, checked before it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from simlab.errors import MetadataError
from simlab.schema.names import disk_name

_RESERVED: Final = frozenset(
    {"episode", "start", "length", "seed", "complete", "group_count",
     "return_sum", "return_mean", "return_min", "return_max"}
)  # fmt: skip
_KEPT: Final = re.compile(r"logged(_\d+)?|.*_strlen")
"""What the table itself calls its columns."""
_EXACT: Final = 2**53
_KINDS: Final = {"b": "a truth value", "i": "a whole number", "f": "a number", "U": "text"}


class Checked(NamedTuple):
    """Fields that fit, and what is known of all fields with them."""

    values: dict[str, Any]
    kinds: dict[str, str]
    large: dict[str, int]


class EpisodeFields:
    """What episodes are described by.

    Attributes
    ----------
    attachments : set of str
        Names of attachments that are taken.
    """

    def __init__(self) -> None:
        self.attachments: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._large: dict[str, int] = {}
        """The first whole number of a field that a float may not hold."""

    def restore(self, kinds: Mapping[str, str], attachments: Iterable[str]) -> None:
        """Go on with the fields and attachments that a file has."""
        self._kinds = dict(kinds)
        self.attachments = set(attachments)

    def checked(self, seed: object, fields: Mapping[str, Any]) -> Checked:
        """Return fields as the file keeps them: int64, float64, bool or str; None is left out.

        A field of whole numbers becomes one of floats with the first that is none, as long as every number stays what it was.

        Raises
        ------
        MetadataError
            If a field is none of these, or of another type than in the episodes before.
        """
        out: dict[str, Any] = {}
        kinds, large = dict(self._kinds), dict(self._large)
        for name, value in ({"seed": seed} | dict(fields)).items():
            if name in fields and (name in _RESERVED or _KEPT.fullmatch(disk_name(name))):
                raise MetadataError(f"An episode's {name!r} is kept by the logger itself; call the field something else.")
            if value is None:
                continue
            kind, plain = _plain(name, value)
            known = kinds.setdefault(name, kind)
            if kind == "i" and abs(int(plain)) > _EXACT:
                large.setdefault(name, int(plain))
            if {known, kind} == {"f", "i"}:
                if name in large:
                    raise MetadataError(
                        f"The episode field {name!r} is {value!r}; it holds floats and {large[name]}, which a float may not hold exactly. "
                        "Give the large number as text, or the others as whole numbers."
                    )
                kinds[name], plain = "f", np.float64(plain)
            elif known != kind:
                raise MetadataError(
                    f"The episode field {name!r} is {value!r}, {_KINDS[kind]}; before, it was {_KINDS[known]}. Keep to one type."
                )
            out[name] = plain
        on_disk: dict[str, str] = {}
        for name in kinds:
            other = on_disk.setdefault(disk_name(name).replace(".", "_"), name)
            if other != name:
                raise MetadataError(f"The episode fields {other!r} and {name!r} would have the same name in the file. Rename one.")
        return Checked(out, kinds, large)

    def keep(self, checked: Checked) -> dict[str, Any]:
        """Remember the types of fields that are recorded now, and return the fields."""
        self._kinds, self._large = checked.kinds, checked.large
        return checked.values


def _plain(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if isinstance(value, (bool, np.bool_)):
        return "b", np.bool_(value)
    if isinstance(value, (int, np.integer)) and -(2**63) <= int(value) < 2**63:
        return "i", np.int64(value)
    if isinstance(value, (float, np.floating)):
        return "f", np.float64(value)
    if isinstance(value, str) and "\0" not in value and value.encode("utf-8", "replace").decode() == value:
        return "U", str(value)
    raise MetadataError(
        f"The episode field {name!r} is {value!r} ({type(value).__name__}); give a number, truth value or text. attach() takes more."
    )
