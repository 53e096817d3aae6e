"""Episodes: the table of them, and the rows of one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import xarray as xr

from simlab.conventions import COMPLETE, EPISODE, TIME, TIME_SUFFIX
from simlab.errors import FormatError, InputError, NotInRunError, StateError, StorageError
from simlab.read.flatten import clean_attributes
from simlab.read.returns import staged_returns
from simlab.staging.returns import RETURN_FIELDS
from simlab.storage.dtypes import Array
from simlab.storage.grids import Member, RunContents
from simlab.storage.reading import StoredVariable

START: Final = "start"
LENGTH: Final = "length"


def episode_table(contents: RunContents, gaps: list[str] | None = None) -> xr.Dataset:
    """Return one entry for each episode, with all that was recorded about it.

    An episode that was not ended (the run is being recorded, or its program died) is the last one; ``complete`` is False
    for it, what was told at its begin is there, and what is only known at the end is NaN, 0 or empty.

    Parameters
    ----------
    contents : RunContents
        What the simulation holds.
    gaps : list of str, optional
        Takes one sentence for each column that cannot be read, and is left out.
    """
    gaps = [] if gaps is None else gaps
    numbers, whole, open_numbers, open_start, open_length = _ended_and_open(contents, gaps)
    members, columns = {}, {}
    for member in contents.episodes.members:
        stored, values = _column(member, whole.size, gaps)
        counts = member.name not in (START, LENGTH) or (values is not None and values.dtype.kind in "iu")
        if stored is not None and values is not None and counts:
            members[member.name], columns[member.name] = stored, values[whole]
    for name, values in _staged_returns(contents, whole, gaps).items():
        if name in columns:
            columns[name] = np.concatenate([columns[name][: numbers.size - values.size], values])
    derived = {START: open_start, LENGTH: open_length}
    begun = [contents.begun.get(number, {}) for number in open_numbers.tolist()]
    data: dict[str, Any] = {}
    for name in dict.fromkeys((START, LENGTH, *columns, *(n for fields in begun for n, v in fields.items() if v is not None))):
        if name == EPISODE:
            continue
        known = columns.get(name, np.zeros(0, np.int64))
        if name not in columns and name not in derived:  # no episode that ended has it
            known = _unknown(np.asarray(next(v for fields in begun if (v := fields.get(name)) is not None)).dtype, numbers.size)
        later = derived[name].astype(known.dtype) if name in derived else _told(known.dtype, name, begun)
        data[name] = ((EPISODE,), np.concatenate([known, later]), clean_attributes(members[name]) if name in members else {})
    done = np.concatenate([np.ones(numbers.size, bool), np.zeros(len(begun), bool)])
    data[COMPLETE] = ((EPISODE,), done, {"long_name": "whether the episode was ended"})
    return xr.Dataset(data, {EPISODE: np.concatenate([numbers, open_numbers.astype(numbers.dtype)])})


def as_in_table(present: xr.DataArray, name: str, contents: RunContents) -> xr.DataArray:
    """Return where a field is there for the episodes of `episode_table`; `present` is that for each entry on disk.

    Of an episode that was not ended, no more is there than its start, its length so far and what was told at its begin.
    """
    numbers, whole, open_numbers, *_ = _ended_and_open(contents, [])
    told = [contents.begun.get(number, {}).get(name) is not None for number in open_numbers.tolist()]
    later = np.array(told, bool) | (name in (START, LENGTH))
    ended = present.values[: whole.size][whole]
    if name in RETURN_FIELDS and contents.staged_episodes:
        summed = _staged_returns(contents, whole, []).get(name, np.zeros(0))
        ended = np.concatenate([ended[: ended.size - summed.size], ~np.isnan(summed)])
    values = np.concatenate([ended, later])
    return xr.DataArray(values, {EPISODE: np.concatenate([numbers, open_numbers.astype(numbers.dtype)])}, (EPISODE,))


def _staged_returns(contents: RunContents, whole: Array, gaps: list[str]) -> dict[str, Array]:
    """Return, by field, the returns of the episodes that ended in staged rows: the last ones of the table."""
    n = int(whole[whole.size - contents.staged_episodes :].sum())
    if not n or not contents.rewards:
        return {}
    _, starts, lengths = _recorded(contents, [])
    try:
        return staged_returns(contents, starts[whole][-n:], lengths[whole][-n:])
    except StorageError as error:
        gaps.append(f"{error} The returns of the newest episodes are not known yet")
        return {}


def count_episodes(contents: RunContents, gaps: list[str] | None = None) -> int:
    """Return how many episodes there are, one that was not ended included."""
    numbers, _, open_numbers, *_ = _ended_and_open(contents, [] if gaps is None else gaps)
    return int(numbers.size + open_numbers.size)


def _column(member: Member, size: int, gaps: list[str]) -> tuple[StoredVariable | None, Array | None]:
    """Return a column of the table, as long as the table is."""
    try:
        stored = member.stored
        gaps += stored.gaps
        if stored.dims == (EPISODE,):
            values = stored.read()
            if values.size >= size:
                return stored, values[:size]
        gaps.append(f"{stored.path!r} has the axes {stored.dims} of lengths {stored.shape}, not one entry for each episode: it is left out")
    except (FormatError, StorageError) as error:
        gaps.append(f"{error} It is left out")
    return None, None


def _ended_and_open(contents: RunContents, gaps: list[str]) -> tuple[Array, Array, Array, Array, Array]:
    """Return the numbers of the ended episodes, which entries of the table they are, and number, start, length of the others."""
    numbers, starts, lengths = _recorded(contents, gaps)
    ends = starts + lengths
    whole = ends <= contents.rows
    numbers, end = numbers[whole], int(ends[whole].max()) if whole.any() else 0
    try:
        clock = contents.clocks[EPISODE].read(slice(end, None)) if EPISODE in contents.clocks else np.zeros(0, np.int32)
    except StorageError as error:
        gaps.append(f"{error} Episodes that were not ended are not known")
        clock = np.zeros(0, np.int32)
    open_numbers, start, length = _runs_of(clock, end)
    fresh = ~np.isin(open_numbers, numbers)
    return numbers, whole, open_numbers[fresh], start[fresh], length[fresh]


def _recorded(contents: RunContents, gaps: list[str]) -> tuple[Array, Array, Array]:
    """Return number, first row and length of the episodes in the table; none where the table does not tell."""
    members = {m.name: m for m in contents.episodes.members}
    none = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)
    recorded = contents.coordinates.get(EPISODE)
    if recorded is None or START not in members or LENGTH not in members:
        if members:
            gaps.append("the table of episodes has lost its numbers, starts or lengths: the rows tell of its episodes")
        return none
    try:
        numbers = recorded.read()
    except StorageError as error:
        gaps.append(f"{error} The rows tell of the episodes")
        return none
    ignored: list[str] = []  # each column is told of by `episode_table`
    (first, starts), (second, lengths) = (_column(members[name], numbers.size, ignored) for name in (START, LENGTH))
    if (
        first is None
        or second is None
        or starts is None
        or lengths is None
        or {starts.dtype.kind, lengths.dtype.kind, numbers.dtype.kind} - {"i", "u"}
    ):
        gaps.append("the starts or lengths in the table of episodes are damaged: the rows tell of its episodes")
        return none
    if numbers.size and (starts.min() < 0 or lengths.min() < 0 or int(starts.max()) + int(lengths.max()) >= 2**63):
        gaps.append("the starts or lengths in the table of episodes are no rows of the run: the rows tell of its episodes")
        return none
    there = min(numbers.size, first.extent[0], second.extent[0])
    return numbers[:there], starts[:there].astype(np.int64), lengths[:there].astype(np.int64)


def table_from_rows(ds: xr.Dataset) -> xr.Dataset:
    """Return what the rows of a Dataset tell of its episodes: numbers, first rows and lengths."""
    numbers, start, length = _runs_of(episode_of_rows(ds), 0)
    return xr.Dataset({START: ((EPISODE,), start), LENGTH: ((EPISODE,), length)}, {EPISODE: numbers})


def _runs_of(episodes: Array, offset: int) -> tuple[Array, Array, Array]:
    """Return number, first row and length of each run of equal episode numbers."""
    if not episodes.size:
        return np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = np.flatnonzero(np.diff(episodes, prepend=episodes[0] - 1))
    return episodes[first], first + offset, np.diff(first, append=episodes.size)


def _told(dtype: np.dtype[Any], name: str, begun: list[dict[str, Any]]) -> Array:
    """Return a field of episodes that were not ended, as it was told at their begin."""
    later = _unknown(dtype, len(begun))
    for i, fields in enumerate(begun):
        if fields.get(name) is not None:
            value = np.asarray(fields[name])
            later = later.astype(np.result_type(later, value))
            later[i] = value
    return later


def _unknown(dtype: np.dtype[Any], n: int) -> Array:
    return np.full(n, np.nan, dtype) if dtype.kind == "f" else np.zeros(n, dtype)


def episode_of_rows(ds: xr.Dataset) -> Array:
    """Return the episode of every row of a Dataset.

    Raises
    ------
    StateError
        If the Dataset has no rows, or has lost their episodes.
    """
    if EPISODE not in ds.coords or ds[EPISODE].dims != (TIME,):
        raise StateError("The Dataset has no `time` axis with an `episode` coordinate any more. Call this before selecting or averaging.")
    return np.asarray(ds[EPISODE].values)


def select_episode(ds: xr.Dataset, number: int, table: xr.Dataset) -> xr.Dataset:
    """Return the rows of one episode.

    Parameters
    ----------
    ds : Dataset
        A run, or a part of it.
    number : int
        Number of the episode; negative ones count from the last.
    table : Dataset
        The episodes that there are.

    Raises
    ------
    NotInRunError
        If there is no such episode.
    """
    if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
        raise InputError(f"episode({number!r}): give the number of an episode, a whole number.")
    known = table[EPISODE].values
    wanted = int(known[number]) if -known.size <= number < 0 else int(number)
    rows = np.flatnonzero(episode_of_rows(ds) == wanted)
    if wanted not in known:
        there = f"episodes {known.min()} to {known.max()}" if known.size else "no episodes"
        raise NotInRunError(f"There is no episode {number}; the run has {there}. ds.sim.episodes lists them.")
    if not rows.size:
        length = int(table[LENGTH].sel({EPISODE: wanted}))
        if length:
            raise NotInRunError(f"This part of the run holds no rows of episode {wanted}. Open the run for the whole of it.")
        return select_rows(ds, slice(0, 0))
    return select_rows(ds, slice(int(rows[0]), int(rows[-1]) + 1) if rows[-1] - rows[0] + 1 == rows.size else rows)


def select_rows(ds: xr.Dataset, rows: slice | Array) -> xr.Dataset:
    """Return some rows, and of what has a clock of its own what was logged in the same span of time."""
    times = ds[TIME].values[rows]
    wanted: dict[str, slice | Array] = {TIME: rows}
    for dim in own_clocks(ds):
        clock = ds[dim].values
        first, last = (np.searchsorted(clock, times[0]), np.searchsorted(clock, times[-1], side="right")) if times.size else (0, 0)
        wanted[dim] = slice(int(first), int(last))
    return ds.isel(wanted)


def own_clocks(ds: xr.Dataset) -> list[str]:
    """Return the dimensions that carry the run clock of a variable that was logged now and then."""
    return [str(d) for d in ds.dims if str(d).endswith(TIME_SUFFIX) and d in ds.indexes and ds[d].dtype.kind in "iu"]


def rows_until(ds: xr.Dataset, clock: str, time: Any) -> int:
    """Return how many entries of a clock are at or before a time; None is the end of it."""
    if time is None:
        return int(ds.sizes[clock])
    _check_time("time", time)
    return int(np.searchsorted(ds[clock].values, time, side="right"))


def _check_time(word: str, value: Any) -> None:
    if value is not None and (isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number))):
        raise InputError(f"{word}={value!r} is no time; give a number on the run clock, as in ds.time.")


def select_times(ds: xr.Dataset, start: Any, end: Any) -> xr.Dataset:
    """Return what was logged at run-clock times from `start` up to, but not including, `end`."""
    _check_time("start", start)
    _check_time("end", end)
    wanted: dict[str, slice] = {}
    for dim in (TIME, *own_clocks(ds)):
        if dim in ds.dims and dim in ds.indexes and not (start is None and end is None):
            clock = ds[dim].values
            first = 0 if start is None else int(np.searchsorted(clock, start))
            wanted[dim] = slice(first, clock.size if end is None else max(first, int(np.searchsorted(clock, end))))
    return ds.isel(wanted)
