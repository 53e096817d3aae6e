"""What of an episode is worth a place in one figure; everything that is left out is told."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simlab.conventions import ACTIONS, AGENT, ATTR_MODALITY, REWARDS, STATES
from simlab.view.frames import Episode
from simlab.view.people import as_labels

MOST_LIFELINES: Final = 30
MOST_LINES: Final = 40
MOST_CHANNELS: Final = 12
MOST_STRIPS: Final = 4
MOST_VALUES: Final = 50_000_000
"""Beyond so many numbers of one variable, only those of the agents that are drawn are read."""


@dataclass(slots=True)
class Choice:
    """What is drawn.

    Attributes
    ----------
    dim : str or None
        The population whose agents are drawn.
    life : ndarray of bool, shape (agents, time)
        When each of its agents lived.
    drawn : list of int
        Places of the agents with a lifeline and a line of their own, in order of birth.
    focal : int or None
        The agent whose pictures, actions and channels are shown.
    strips : list of str
        Image variables for film strips, the environment's first.
    series : list of (str, int or None)
        Channels for lines: variable and place on its last axis.
    notes : list of str
        What is not drawn, and why.
    """

    dim: str | None
    labels: list[Hashable]
    life: NDArray[np.bool_]
    drawn: list[int]
    focal: int | None
    strips: list[str] = field(default_factory=list)
    rewards: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    series: list[tuple[str, int | None]] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    place: tuple[str, int, int] | None = None
    notes: list[str] = field(default_factory=list)
    asked: bool = False
    """Whether the agents were named by the caller."""


def choose(episode: Episode, agents: Sequence[Hashable] | Hashable | None = None, variables: Sequence[str] | str | None = None) -> Choice:
    """Choose what to draw of an episode.

    Parameters
    ----------
    episode : Episode
        The episode.
    agents : hashable or sequence of hashable, optional
        The agents to draw; the first is the one whose pictures are shown. Left out: those that lived first, and of
        them the one that lived longest.
    variables : str or sequence of str, optional
        The variables to draw. Left out: what fits.

    Raises
    ------
    AgentError, NotInRunError
        If one of them is not in the run.
    """
    names = [variables] if isinstance(variables, str) else list(variables) if variables is not None else episode.variables
    for name in names:
        episode.check(name)
    dim, wanted = _population(episode, agents, names)
    life = episode.life(dim) if dim else np.zeros((0, len(episode.time)), bool)
    choice = Choice(dim, episode.agents(dim) if dim else [], life, [], None)
    choice.asked = wanted is not None
    _choose_agents(choice, wanted)
    if dim and len(episode.populations) > 1:
        choice.notes.append(f"of the populations {', '.join(episode.populations)} only {dim}")
    _choose_variables(episode, choice, [name for name in names if episode.agent_dim(name) in (dim, None)], variables is not None)
    return choice


def _population(
    episode: Episode, agents: Sequence[Hashable] | Hashable | None, names: list[str]
) -> tuple[str | None, list[Hashable] | None]:
    """Return the population to draw, the one that holds the given agents, and these agents as a list."""
    populations = episode.populations
    dims = [dim for dim in populations if any(episode.agent_dim(name) == dim for name in names)] or populations
    dim = AGENT if AGENT in dims else dims[0] if dims else None
    if agents is None:
        return dim, None
    known = {label for each in populations for label in episode.agents(each)}
    wanted = as_labels(agents, known)
    for each in populations:
        if wanted and wanted[0] in episode.agents(each):
            dim = each
    if dim is not None:
        for agent in wanted:
            episode.position(dim, agent)
    return dim, wanted


def _choose_agents(choice: Choice, wanted: list[Hashable] | None) -> None:
    lived = np.asarray(choice.life.any(axis=1))
    if wanted is not None:
        choice.drawn = [choice.labels.index(agent) for agent in wanted][:MOST_LIFELINES]
        choice.focal = choice.drawn[0] if choice.drawn else None
        count = len(wanted)
    else:
        born = np.where(lived, choice.life.argmax(axis=1) if choice.life.shape[1] else 0, choice.life.shape[1])
        order = [int(i) for i in np.argsort(born, kind="stable") if lived[i]]
        choice.drawn, count = order[:MOST_LIFELINES], len(order)
        if choice.drawn:
            choice.focal = choice.drawn[int(np.argmax(choice.life[choice.drawn].sum(axis=1)))]
    if count > len(choice.drawn):
        choice.notes.append(f"{len(choice.drawn)} of {count:,} agents have lines of their own")


def _choose_variables(episode: Episode, choice: Choice, names: list[str], asked: bool) -> None:
    other: list[str] = []
    for name in names:
        ours, modality = episode.agent_dim(name) is not None, episode.data[name].attrs.get(ATTR_MODALITY)
        shape = episode.own_shape(name)
        if episode.data[name].dtype.kind not in "biuf":
            other.append(name)
        elif episode.is_image(name):
            choice.strips.append(name)
        elif ours and modality == REWARDS and not shape:
            choice.rewards.append(name)
        elif ours and modality == ACTIONS and not shape and episode.data[name].dtype.kind in "biu":
            choice.actions.append(name)
        elif not ours and not shape:
            choice.environment.append(name)
        elif len(shape) <= 1 and ours:
            choice.place = choice.place or place_of(episode, name)
            choice.series += [(name, None)] if not shape else [(name, i) for i in range(shape[0])]
        else:
            other.append(name)
    choice.strips.sort(key=lambda name: episode.agent_dim(name) is not None)
    _limit(choice, episode, asked)
    if other and asked:
        choice.notes.append(f"not drawn, being neither numbers over time nor pictures: {', '.join(other)}")
    elif texts := sum(episode.data[name].dtype.kind in "OSTU" for name in other):
        choice.notes.append(f"{texts} variable{'' if texts == 1 else 's'} of text")


def _limit(choice: Choice, episode: Episode, asked: bool) -> None:
    """Keep the figure to one page; the internal states come first, then what repeats the map or says little last."""
    if not asked:
        place = {(choice.place[0], i) for i in choice.place[1:]} if choice.place else set()
        choice.series = [entry for entry in choice.series if entry not in place and episode.data[entry[0]].dtype.kind != "b"]
        rank = {STATES: 0}
        choice.series.sort(key=lambda entry: rank.get(str(episode.data[entry[0]].attrs.get(ATTR_MODALITY)), 1))
    for name, most, what in (("strips", MOST_STRIPS, "pictures"), ("series", MOST_CHANNELS, "channels"), ("environment", 4, "variables")):
        given = getattr(choice, name)
        if len(given) > most:
            choice.notes.append(f"{most} of {len(given)} {what} drawn")
            setattr(choice, name, given[:most])


def place_of(episode: Episode, name: str) -> tuple[str, int, int] | None:
    """Return where x and y lie among a variable's channels, if they do."""
    labels = [label.lower() for label in episode.labels(name) or []]
    for x, y in (("x", "y"), ("pos_x", "pos_y"), ("x_pos", "y_pos"), ("position_x", "position_y"), ("col", "row")):
        if x in labels and y in labels:
            return name, labels.index(x), labels.index(y)
    return None
