"""The one rule for names, and what happens to a name that breaks it.

A name is made of letters, digits, ``_``, ``-`` and ``+``, of any script, and starts with a letter or ``_``. Dots separate
nested names: ``camera.rgb`` is the same variable as ``{"camera": {"rgb": ...}}``. Everything else ("a/b", "trail ", ".") is
stored under an escaped name in which the other characters became ``_``; the given name is kept beside it and is the one that
readers see. An empty name is an error.

The run keeps a few names for itself ("time", "episode", "agent", ...). As a part of a dotted name they are stored with ``_`` behind
them: ``episode.r`` lies in the file as ``episode_.r``.
"""

from __future__ import annotations

import re
import unicodedata

from simlab.conventions import ENVIRONMENT, LOGGED, RESERVED_NAMES
from simlab.errors import SchemaError

_LOGGED_BITS = re.compile(LOGGED + r"(_[0-9]+)?")
_PART = re.compile(r"[^\W\d][\w+\-]*")
_OTHER = re.compile(r"[^\w+\-]")
_MAX_BYTES = 200
"""netCDF allows 256 bytes for a name; the rest is left for suffixes such as ``_channel_strlen``."""


def is_kept(name: str) -> bool:
    """Say whether a single name, without dots, is one that the run keeps for itself.

    Examples
    --------
    >>> is_kept("agent"), is_kept("logged_1"), is_kept("agents")
    (True, True, False)
    """
    return name in RESERVED_NAMES or _LOGGED_BITS.fullmatch(name) is not None


def free_name(name: str, modality: str) -> str:
    """Return the name under which a value is logged: its own, or one with its modality in front where the run keeps its own.

    Examples
    --------
    >>> free_name("target", "observations"), free_name("agent", "observations"), free_name("time", "environment")
    ('target', 'observation.agent', 'environment.time')
    """
    if not is_kept(name):
        return name
    return f"{modality if modality == ENVIRONMENT else modality.removesuffix('s')}.{name}"


def is_plain(name: str) -> bool:
    """Say whether a name can be stored as it is, its dots separating nested names.

    Examples
    --------
    >>> is_plain("camera.rgb"), is_plain("a/b"), is_plain("größe"), is_plain("episode.r")
    (True, False, True, False)
    """
    return _fits(name) and ("." not in name or not any(map(is_kept, name.split("."))))


def _fits(name: str) -> bool:
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
        If the name is not text, is empty, or holds half of a surrogate pair, which no file can hold.

    Examples
    --------
    >>> disk_name("a/b"), disk_name("trail "), disk_name("."), disk_name("camera.rgb"), disk_name("2nd")
    ('a_b', 'trail_', '_', 'camera.rgb', '_2nd')
    >>> disk_name("episode.r"), disk_name("camera.time")
    ('episode_.r', 'camera.time_')
    """
    if not isinstance(name, str):
        raise SchemaError(f"A variable's name must be text, not {name!r} ({type(name).__name__}).")
    if not name:
        raise SchemaError("A variable's name is empty. Give it a name of at least one letter.")
    if is_plain(name):
        return name
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SchemaError(
            f"A variable cannot be called {name!r}: {name[error.start]!r} is half of a surrogate pair, which no file can hold. "
            "It often comes of decoding with errors='surrogateescape'; give the name as whole characters."
        ) from None
    if _fits(name):
        apart = ".".join(part + "_" if is_kept(part) else part for part in name.split("."))
        if _fits(apart):
            return apart
    escaped = _OTHER.sub("_", unicodedata.normalize("NFC", name))
    if escaped[0].isdigit() or not _PART.match(escaped):
        escaped = "_" + escaped.lstrip("+-")
    while len(escaped.encode()) > _MAX_BYTES:
        escaped = escaped[:-1]
    return escaped[: _MAX_BYTES - 1] + "_" if is_kept(escaped) else escaped
