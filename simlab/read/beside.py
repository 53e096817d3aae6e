"""What was stored beside the variables of a run: attachments, and the logger's report."""

from __future__ import annotations

from typing import Any

from simlab.conventions import GROUP_ATTACHMENTS, GROUP_REPORT
from simlab.errors import NotInRunError, did_you_mean
from simlab.read.gaps import tell
from simlab.read.origin import Origin
from simlab.storage.groups import attachment_names, read_attached, read_scalars


def attached_names(origin: Origin) -> dict[str, str]:
    """Return the names of what was attached, and for each the name under which it lies in the file."""
    gaps: list[str] = []
    names = attachment_names(origin.source, f"{origin.simulation}/{GROUP_ATTACHMENTS}", gaps)
    tell(origin.source.path, gaps)
    return names


def attached(origin: Origin, name: str) -> Any:
    """Return what was attached under a name; a warning tells what of it cannot be read.

    Raises
    ------
    NotInRunError
        If nothing was attached under it.
    """
    names = attached_names(origin)
    if name not in names:
        there = ", ".join(map(repr, names)) or "nothing"
        raise NotInRunError(f"Nothing was attached as {name!r}; there is {there}.{did_you_mean(str(name), names)}")
    gaps: list[str] = []
    value = read_attached(origin.source, f"{origin.simulation}/{GROUP_ATTACHMENTS}/{names[name]}", gaps)
    tell(origin.source.path, gaps)
    return value


def report_of(origin: Origin) -> dict[str, Any]:
    """Return what the logger counted."""
    gaps: list[str] = []
    numbers = read_scalars(origin.source, f"{origin.simulation}/{GROUP_REPORT}", gaps)
    tell(origin.source.path, gaps)
    return numbers
