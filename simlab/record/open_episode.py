"""What is known of the open episode, and of those that ended and are not in the file yet."""

from __future__ import annotations

from typing import Any, Final

from simlab.metadata import to_json
from simlab.storage.journal import Journal

MOST_ENDED: Final = 256


class OpenEpisode:
    """The fields of episodes on their way to the file; the journal knows them too.

    Parameters
    ----------
    journal : Journal
        The journal.

    Attributes
    ----------
    ended : list of tuple
        Episodes that ended and were not handed over: number and fields.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._fields: dict[str, Any] = {}
        self.ended: list[tuple[int, dict[str, Any]]] = []

    def begun(self, episode: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Take the fields of an episode that begins, and return what the journal is told."""
        self._fields = fields
        return {"begin": episode, "fields": to_json(fields, "the episode")}

    def end(self, episode: int, start: int, length: int, fields: dict[str, Any]) -> None:
        """Note that the episode ended.

        Raises
        ------
        StorageError
            If the journal cannot keep it; the episode is still open then.
        """
        told = {"start": start, "length": length} | self._fields | fields
        self._tell_end(episode, told)
        self._fields = {}
        self.ended.append((episode, told))

    def _tell_end(self, episode: int, told: dict[str, Any]) -> None:
        self._journal.append({"end": episode, "fields": to_json(told, "the episode")})

    @property
    def are_many(self) -> bool:
        """Whether so many ended that they should be written: of length 0, or nearly, they fill no window."""
        return len(self.ended) >= MOST_ENDED

    def take(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the episodes that ended; they are handed over."""
        ended, self.ended = self.ended, []
        return ended

    def tell_again(self, open_number: int | None, ended_too: bool) -> None:
        """Tell the journal what is not handed over: a new segment of its log has begun.

        Parameters
        ----------
        open_number : int or None
            The open episode.
        ended_too : bool
            Whether the episodes that ended stay here.
        """
        for episode, told in self.ended if ended_too else ():
            self._tell_end(episode, told)
        if open_number is not None:
            self._journal.append(self.begun(open_number, self._fields))
