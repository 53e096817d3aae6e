"""Bookmarks: moments with a note, kept in a small JSON file beside the run."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Final

from simlab.errors import InputError

SUFFIX: Final = ".bookmarks.json"
MOST_BOOKMARKS: Final = 10_000
_MOST_NOTE: Final = 2_000
_MOST_BYTES: Final = 16 << 20


def checked_bookmarks(given: Any) -> list[dict[str, Any]]:
    """Return bookmarks in their plain form.

    Parameters
    ----------
    given : sequence of mapping
        Each with ``episode``, ``step`` and, if there is one, ``note``.

    Raises
    ------
    InputError
        If one of them is no bookmark.

    Examples
    --------
    >>> checked_bookmarks([{"episode": 0, "step": 3}])
    [{'episode': 0, 'step': 3, 'note': ''}]
    """
    out = []
    for mark in list(given)[:MOST_BOOKMARKS]:
        whole = isinstance(mark, dict) and all(type(mark.get(word)) is int for word in ("episode", "step"))
        if not whole or mark["step"] < 0 or not isinstance(mark.get("note", ""), str):
            raise InputError(f'{mark!r} is no bookmark; give {{"episode": 3, "step": 117, "note": "..."}}.')
        out.append({"episode": mark["episode"], "step": mark["step"], "note": mark.get("note", "")[:_MOST_NOTE]})
    return out


class Bookmarks:
    """The bookmarks of one simulation in one file.

    Parameters
    ----------
    run : str or None
        The run file; None where it is not known, then they live as long as the viewer.
    simulation : str
        Its name in the file.
    """

    def __init__(self, run: str | None, simulation: str) -> None:
        self.path = None if run is None else run + SUFFIX
        self.simulation = simulation

    def read(self) -> tuple[list[dict[str, Any]], str]:
        """Return the bookmarks, and a note on what is wrong with their file."""
        found = self._all()
        if isinstance(found, str):
            return [], found
        try:
            return checked_bookmarks(found.get(self.simulation, [])), ""
        except (InputError, TypeError):
            return [], f"{self._name} does not hold bookmarks; it is left as it is"

    @property
    def _name(self) -> str:
        return os.path.basename(self.path or "")

    def _all(self) -> dict[str, Any] | str:
        if self.path is None or not os.path.exists(self.path):
            return {}
        try:
            if os.path.getsize(self.path) > _MOST_BYTES:
                return f"{self._name} is too large for bookmarks; it is left as it is"
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError, RecursionError) as error:
            return f"{self._name} cannot be read ({type(error).__name__}); it is left as it is"
        return found if isinstance(found, dict) else f"{self._name} does not hold bookmarks; it is left as it is"

    def write(self, marks: list[dict[str, Any]]) -> str:
        """Keep bookmarks. Returns a note on what went wrong: the viewer shows it, and keeps them itself."""
        if self.path is None:
            return "The run file is not known, so bookmarks are not kept"
        found = self._all()
        if isinstance(found, str):
            return found
        found[self.simulation] = marks
        folder = os.path.dirname(self.path)
        try:
            handle, temporary = tempfile.mkstemp(prefix=".bookmarks-", dir=folder)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(found, file, indent=1, ensure_ascii=False)
                    file.write("\n")
                os.replace(temporary, self.path)
            except BaseException:
                os.unlink(temporary)
                raise
        except (OSError, ValueError) as error:
            return f"Bookmarks cannot be kept beside the run ({getattr(error, 'strerror', None) or error})"
        return ""
