"""Bookmarks: moments with a note, kept in a small JSON file beside the run."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any, Final

from simlab.errors import InputError, StorageError
from simlab.view.whole import written_whole

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
        self._known: list[dict[str, Any]] = []  # what the file held when it was last read or written

    def read(self) -> tuple[list[dict[str, Any]], str]:
        """Return the bookmarks, and a note on what is wrong with their file."""
        found = self._all()
        marks = found if isinstance(found, str) else self._ours(found)
        if isinstance(marks, str):
            return [], marks
        self._known = marks
        return marks, ""

    def _ours(self, found: dict[str, Any]) -> list[dict[str, Any]] | str:
        try:
            return checked_bookmarks(found.get(self.simulation, []))
        except (InputError, TypeError):
            return f"{self._name} does not hold bookmarks; it is left as it is"

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

    def write(self, marks: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
        """Keep what was added and removed since the last time, beside what other viewers keep in the same file.

        Parameters
        ----------
        marks : list of dict
            The bookmarks of this viewer.

        Returns
        -------
        list of dict
            All bookmarks, those of other viewers too.
        str
            A note on what went wrong: the viewer shows it, and keeps its bookmarks itself.
        """
        if self.path is None:
            return marks, "The run file is not known, so bookmarks are not kept"
        found = self._all()
        others = found if isinstance(found, str) else self._ours(found)
        if isinstance(found, str) or isinstance(others, str):
            return marks, str(others)
        merged = [*_without(others, _without(self._known, marks)), *_without(marks, self._known)]
        if merged != others:
            try:
                with written_whole(self.path) as temporary, open(temporary, "w", encoding="utf-8") as file:
                    json.dump({**found, self.simulation: merged}, file, indent=1, ensure_ascii=False)
                    file.write("\n")
            except (OSError, ValueError, StorageError) as error:
                reason = getattr(error.__cause__ or error, "strerror", None)
                return marks, f"Bookmarks cannot be kept beside the run ({reason or error})"
        self._known = merged
        return merged, ""


def _without(marks: list[dict[str, Any]], gone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return bookmarks without some others; of equal ones, as many go as are named."""
    left, rest = Counter(tuple(mark.values()) for mark in gone), []
    for mark in marks:
        if left[tuple(mark.values())] > 0:
            left[tuple(mark.values())] -= 1
        else:
            rest.append(mark)
    return rest
