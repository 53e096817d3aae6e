"""The one rule for names, and what happens to a name that breaks it.

A name is made of letters, digits, ``_``, ``-`` and ``+``, of any script, and starts with a letter or ``_``. Dots separate
nested names: ``camera.rgb`` is the same variable as ``{"camera": {"rgb": ...}}``. Everything else ("a/b", "trail ", ".") is
stored under an escaped name in which the other characters became ``_``; the given name is kept beside it and is the one that
readers see. An empty name is an error.
"""

from __future__ import annotations

import re
import unicodedata

from simlab.errors import SchemaError

_PART = re.compile(r"[^\W\d][\w+\-]*")
_OTHER = re.compile(r"[^\w+\-]")
_MAX_BYTES = 200
"""netCDF allows 256 bytes for a name; the rest is left for suffixes such as ``_channel_strlen``."""


def is_plain(name: str) -> bool:
    """Say whether a name can be stored as it is, its dots separating nested names.

    Examples
    --------
    >>> is_plain("camera.rgb"), is_plain("a/b"), is_plain("größe")
    (True, False, True)
    """
    return (
        len(name.encode(errors="replace")) <= _MAX_BYTES
        and unicodedata.is_normalized("NFC", name)
        and all(_PART.fullmatch(part) for part in name.split("."))
    )


def disk_name(name: str) -> str:
    """Return the name under which a variable is stored: itself where it is plain, an escaped one otherwise.

    Parameters
    ----------
    name : str
        The name as it was given; nested names joined by dots.

    Raises
    ------
    SchemaError
        If the name is not text or is empty.

    Examples
    --------
    >>> disk_name("a/b"), disk_name("trail "), disk_name("."), disk_name("camera.rgb"), disk_name("2nd")
    ('a_b', 'trail_', '_', 'camera.rgb', '_2nd')
    """
    if not isinstance(name, str):
        raise SchemaError(f"A variable's name must be text, not {name!r} ({type(name).__name__}).")
    if not name:
        raise SchemaError("A variable's name is empty. Give it a name of at least one letter.")
    if is_plain(name):
        return name
    escaped = _OTHER.sub("_", unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode()))
    if escaped[0].isdigit() or not _PART.match(escaped):
        escaped = "_" + escaped.lstrip("+-")
    while len(escaped.encode()) > _MAX_BYTES:
        escaped = escaped[:-1]
    return escaped
