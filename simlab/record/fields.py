"""Fields of episodes: what the caller says of them, checked before it is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from simlab.errors import MetadataError
from simlab.schema.names import disk_name

_RESERVED: Final = frozenset(
    {"episode", "start", "length", "seed", "complete", "group_count",
     "return_sum", "return_mean", "return_min", "return_max"}
)  # fmt: skip
_KEPT: Final = re.compile(r"logged(_\d+)?|.*_strlen")
"""What the table itself calls its columns."""
_KINDS: Final = {"b": "a truth value", "i": "a whole number", "f": "a number", "U": "text"}


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

    def checked(self, seed: object, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields as the file keeps them: int64, float64, bool or str; None is left out.

        Raises
        ------
        MetadataError
            If a field is none of these, or of another type than in the episodes before.
        """
        out: dict[str, Any] = {}
        kinds = dict(self._kinds)
        for name, value in ({"seed": seed} | dict(fields)).items():
            if name in fields and (name in _RESERVED or _KEPT.fullmatch(disk_name(name))):
                raise MetadataError(f"An episode's {name!r} is kept by the logger itself; call the field something else.")
            if value is None:
                continue
            kind, plain = _plain(name, value)
            known = kinds.setdefault(name, kind)
            if (known, kind) == ("f", "i"):
                plain = np.float64(plain)
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
        self._kinds = kinds
        return out


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
