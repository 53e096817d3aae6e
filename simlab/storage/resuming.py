"""A simulation that goes on: what a writer has to know of the rows that are there."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from simlab.conventions import (
    AGENT,
    ATTR_BOOL,
    ATTR_JSON_ATTRIBUTES,
    ATTR_RESUMED,
    COMMITTED,
    COMPLETE,
    EPISODE,
    GROUP_AGENTS,
    GROUP_ATTACHMENTS,
    GROUP_EPISODES,
    GROUP_REPORT,
    ID_SUFFIX,
    KEY_SUFFIX,
    STEP,
    TIME,
)
from simlab.errors import FormatError, InputError
from simlab.schema import Schema
from simlab.schema.keeping import schema_from_json
from simlab.storage.attributes import read_attributes, write_attribute
from simlab.storage.finishing import cut_simulation
from simlab.storage.netcdf import read_text_rows
from simlab.storage.simulation import SimulationStore

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class Left:
    """What a simulation was left with.

    Attributes
    ----------
    schema : Schema
        Its schema.
    rows, last_time : int
        Rows, and the run clock of the newest one (-1: there is none).
    episode : int
        The newest episode, or -1.
    steps : ndarray of int
        Steps of its rows.
    base : int
        The run clock of its step 0.
    is_open : bool
        Whether it has not ended.
    agents : dict of str to list of tuple
        Label and JSON key of each agent, by population.
    series : dict of str to tuple
        Rows and the newest run clock of each array of the environment, by name.
    kinds : dict of str to str
        Types of the fields of episodes: "b", "i", "f" or "U".
    attachments : list of str
        Names that are taken.
    report : dict of str to number
        Counters of the writers before.
    fields : dict
        Fields of the newest episode, where it had ended and is open again.
    """

    schema: Schema
    rows: int
    last_time: int
    episode: int
    steps: Array
    base: int
    is_open: bool
    agents: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    series: dict[str, tuple[int, int]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    attachments: list[str] = field(default_factory=list)
    report: dict[str, float] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)


def reopen(store: SimulationStore, step: int | None, told: dict[str, Any]) -> dict[str, Any]:
    """Make a simulation one that is not complete, with the seam recorded; return the fields of an episode that had ended and goes on.

    Parameters
    ----------
    store : SimulationStore
        The simulation.
    step : int or None
        The step of the newest episode to go on after; rows of later steps are cut off.
    told : dict
        What is recorded of the seam, beside the row.
    """
    fields: dict[str, Any] = {}
    with store.file.structure() as handle:
        group = handle[store.path]
        had = rows = int(group[COMMITTED][()])
        if step is not None and rows:
            newest, last = int(group[EPISODE][rows - 1]), int(group[STEP][rows - 1])
            if step > last:
                raise InputError(
                    f"resume={step} is a step that {store.path[1:]!r} never came to: its newest episode, {newest}, ends at step {last}. "
                    "resume=True goes on after it."
                )
            first = int(np.searchsorted(group[EPISODE][:rows], newest))
            rows = first + int(np.searchsorted(group[STEP][first:rows], step, side="right"))
            numbers = group[GROUP_EPISODES][EPISODE][...]
            place = int(np.searchsorted(numbers, newest))
            if place < len(numbers) and numbers[place] == newest:
                fields = {name: value for name, value in store.episodes.entry(place).items() if not _is_outcome(name)}
            cut_simulation(group, rows, episodes=place)
            group[COMMITTED][()] = rows
        group[COMPLETE][()] = 0
        attributes = read_attributes(group)
        seams = json.loads(attributes[ATTR_RESUMED]) if ATTR_RESUMED in attributes else []
        write_attribute(group, ATTR_RESUMED, json.dumps([*seams, {"row": rows, "cut_rows": had - rows, **told}]))
        names = json.loads(attributes.get(ATTR_JSON_ATTRIBUTES, "[]"))
        if ATTR_RESUMED not in names:
            write_attribute(group, ATTR_JSON_ATTRIBUTES, json.dumps([*names, ATTR_RESUMED]))
    store.forget()
    return fields


def _is_outcome(name: str) -> bool:
    """Whether a field says how an episode ended, which is not so any more if it goes on."""
    return name in ("terminated", "truncated", "return_sum", "return_mean", "return_min", "return_max")


def read_left(store: SimulationStore) -> Left:
    """Return what a simulation was left with.

    Raises
    ------
    FormatError
        If it keeps no schema: it was recorded by a version that wrote none.
    """
    group = store.file.group(store.path)
    text = SimulationStore.schema_text(group)
    if not text:
        raise FormatError(
            f"Simulation {store.path[1:]!r} keeps no schema, so nobody can go on with it. Add another simulation to the file."
        )
    schema, rows = schema_from_json(text), store.rows
    episode = int(group[EPISODE][rows - 1]) if rows else -1
    first = int(np.searchsorted(group[EPISODE][:rows], episode)) if rows else 0
    steps = np.asarray(group[STEP][first:rows])
    last_time = int(group[TIME][rows - 1]) if rows else -1
    ended = len(store.episodes)
    base = int(group[TIME][first]) - int(steps[0]) if steps.size else last_time + 1
    left = Left(schema, rows, last_time, max(episode, ended - 1), steps, base, episode >= ended)
    for population in schema.population_names:
        home = group if not population else group.get(f"{GROUP_AGENTS}/{population}", {})
        dim = population or AGENT
        if dim + ID_SUFFIX in home:
            labels = read_text_rows(home[dim + ID_SUFFIX])
            keys = read_text_rows(home[dim + KEY_SUFFIX]) if dim + KEY_SUFFIX in home else []
            left.agents[population] = list(zip(labels, [*keys, *[""] * (len(labels) - len(keys))], strict=True))
    for variable in schema.environment:
        if variable.is_series:
            clock = store.ensure_series_clock(variable)
            left.series[variable.name] = (int(clock.shape[0]), int(clock[-1]) if clock.shape[0] else -1)
    left.kinds = {name: _kind(store.file.dataset(path)) for name, path in store.episodes.fields().items()}
    if GROUP_ATTACHMENTS in group:
        left.attachments = [str(read_attributes(obj).get("original_name", name)) for name, obj in group[GROUP_ATTACHMENTS].items()]
    left.report = {name: value[()].item() for name, value in group[GROUP_REPORT].items() if value.shape == ()}
    return left


def _kind(dataset: h5py.Dataset) -> str:
    if ATTR_BOOL in dataset.attrs:
        return "b"
    return {"S": "U", "f": "f"}.get(dataset.dtype.kind, "i")
