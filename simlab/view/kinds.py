"""Which kind of panel suits which variable, and kinds that others add."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from simlab.conventions import ACTIONS, ATTR_MODALITY, REWARDS, STATES, TERMINATIONS
from simlab.errors import InputError, NotInRunError, did_you_mean
from simlab.view.choice import place_of
from simlab.view.frames import Episode
from simlab.view.paint import COLORMAPS

_ALONE: Final = ("map", "table")
"""Kinds that show several variables at once."""
_MOST_ROWS: Final = 12
_MOST_PICTURES: Final = 4
_MOST_STEPS: Final = 24
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "picture": ("channels", "colormap", "limits"), "lines": ("channels",), "steps": (), "map": ("x", "y"), "table": (),
}  # fmt: skip
_NEEDS: Final[Mapping[str, str]] = {
    "picture": "a variable of pictures", "lines": "numbers, alone or in one row", "steps": "one whole number or truth value at a time",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the viewer.

    Parameters
    ----------
    kind : str
        "picture", "lines", "steps", "map", "table", or a kind that was added.
    variable : str, optional
        What it shows.
    **options
        Of pictures: ``channels`` (names or numbers of those that are shown), ``colormap`` ("viridis", "cividis", "magma", "gray",
        "coolwarm"), ``limits`` ("episode", "step" or a pair of numbers). Of lines: ``channels``. Of a map: ``x`` and ``y``, the
        names or numbers of the channels of its variable.

    Examples
    --------
    >>> Panel("picture", "vision", channels=["food"], colormap="magma", limits="step").options["colormap"]
    'magma'
    """

    kind: str
    variable: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __init__(self, kind: str, variable: str | None = None, **options: Any) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "variable", variable)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True, slots=True)
class PanelKind:
    """A kind of panel.

    Attributes
    ----------
    name : str
        Its name.
    suits : callable
        Takes an `Episode` and the name of a variable, returns whether the kind suits it.
    script : str
        JavaScript of kinds that were added: a module whose default export is ``{render(api) { ... return {draw(row) {}} }}``; see
        `register_panel`.
    """

    name: str
    suits: Callable[[Episode, str], bool]
    script: str = ""


def _scalar(episode: Episode, name: str) -> bool:
    return episode.own_shape(name) in ((), (1,))


def _is_number(episode: Episode, name: str) -> bool:
    return episode.data[name].dtype.kind in "biuf" and len(episode.own_shape(name)) <= 1


def _suits_steps(episode: Episode, name: str) -> bool:
    data = episode.data[name]
    named = episode.categories(name)
    if not _scalar(episode, name) or data.dtype.kind not in "biu":
        return False
    return data.dtype.kind == "b" or (len(named) <= _MOST_STEPS if named else data.attrs.get(ATTR_MODALITY) == ACTIONS)


KINDS: Final[dict[str, PanelKind]] = {
    kind.name: kind
    for kind in (
        PanelKind("picture", lambda episode, name: episode.is_image(name)),
        PanelKind("steps", _suits_steps),
        PanelKind("lines", _is_number),
        PanelKind("map", lambda episode, name: place_of(episode, name) is not None),
        PanelKind("table", lambda _, __: True),
    )
}
"""The kinds, in the order in which they are asked whether they suit a variable."""


def register_panel(name: str, suits: Callable[[Episode, str], bool], script: str) -> None:
    """Add a kind of panel.

    Parameters
    ----------
    name : str
        Its name, for ``panels=[Panel(name, variable)]``.
    suits : callable
        Takes an `Episode` and the name of a variable; says whether the kind suits it. Kinds that were added are asked first.
    script : str
        An ES module. Its default export has ``render(api)``, which gets ``api.root`` (an element), ``api.panel``, ``api.value(agent)``
        (an array of the values at the cursor; null while they are on their way, undefined where nothing was logged) and returns an object
        with ``draw(row)`` and, where there is something to take away, ``destroy()``.

    Raises
    ------
    InputError
        If the name is that of a kind that simlab brings.

    Examples
    --------
    >>> register_panel("number", lambda episode, name: False, "export default { render(api) { return { draw(row) {} } } }")
    >>> KINDS.pop("number").name
    'number'
    """
    if name in ("picture", "steps", "lines", *_ALONE):
        raise InputError(f"There is a panel kind {name!r} already, and simlab needs it. Choose another name.")
    others = {key: kind for key, kind in KINDS.items() if key != name}
    KINDS.clear()
    KINDS.update({name: PanelKind(name, suits, script), **others})


def kind_of(episode: Episode, name: str) -> str | None:
    """Return the kind of panel that suits a variable best; None for what only the table shows."""
    return next((kind.name for kind in KINDS.values() if kind.name not in _ALONE and kind.suits(episode, name)), None)


def choose_panels(episode: Episode, wanted: Sequence[str | Panel] | None = None) -> list[tuple[Panel, bool]]:
    """Return every panel that there can be, and whether it is shown at first.

    Parameters
    ----------
    episode : Episode
        The episode.
    wanted : sequence of str or Panel, optional
        Names of variables or kinds, or panels: these are shown, in this order. Left out: what fits on a page.

    Raises
    ------
    NotInRunError, InputError
        If there is no such variable or kind.
    """
    chosen = [panel for entry in wanted for panel in _panels(episode, entry)] if wanted is not None else []
    have = {(panel.kind, panel.variable) for panel in chosen}
    rest = [p for name in episode.variables if (kind := kind_of(episode, name)) is not None for p in [Panel(kind, name)]]
    rest += [Panel("map")] if any(place_of(episode, name) for name in episode.variables) else []
    rest = [panel for panel in [*rest, Panel("table")] if (panel.kind, panel.variable) not in have]
    if wanted is not None:
        return [(panel, True) for panel in chosen] + [(panel, False) for panel in rest]
    return _what_fits(episode, rest)


def _panels(episode: Episode, entry: str | Panel) -> list[Panel]:
    panel = entry if isinstance(entry, Panel) else Panel(entry) if entry in KINDS and entry not in episode.variables else None
    if panel is None:
        name = episode.check(str(entry))
        kind = kind_of(episode, name)
        if kind is None:
            raise InputError(f"No kind of panel suits {name!r}; the table shows its values: panels=[..., 'table'].")
        return [Panel(kind, name)]
    if panel.kind not in KINDS:
        raise InputError(f"There is no panel kind {panel.kind!r}; there are {', '.join(KINDS)}.{did_you_mean(panel.kind, KINDS)}")
    if panel.variable is not None:
        episode.check(panel.variable)
        _check_suits(episode, panel.kind, panel.variable)
    elif panel.kind not in _ALONE:
        found = [Panel(panel.kind, name, **panel.options) for name in episode.variables if kind_of(episode, name) == panel.kind]
        for one in found:
            _check_options(episode, one)
        return found
    _check_options(episode, panel)
    return [panel]


def _check_suits(episode: Episode, kind: str, name: str) -> None:
    """Refuse what the browser could not draw; readers' own kinds may show what they like."""
    data = episode.data[name]
    suits = {
        "picture": episode.is_image(name),
        "lines": _is_number(episode, name) and not episode.is_image(name),
        "steps": _scalar(episode, name) and data.dtype.kind in "biu",
    }.get(kind, True)
    if not suits:
        what = f"{data.dtype.name if data.dtype.kind in 'biuf' else 'text'}, one value of shape {episode.own_shape(name)}"
        best = kind_of(episode, name) or "table"
        instead = f"Panel({best!r}, {name!r})" if best != "table" else "'table'"
        raise InputError(f"A panel of kind {kind!r} needs {_NEEDS[kind]}; {name!r} is {what}. Give {instead}.")


def what_there_is(episode: Episode, wanted: Sequence[str | Panel] | None) -> list[str | Panel] | None:
    """Return those of the panels that an episode of another run can have; the viewer says what it does not have."""
    if wanted is None:
        return None
    kept: list[str | Panel] = []
    for entry in wanted:
        try:
            _panels(episode, entry)
        except (InputError, NotInRunError):
            continue
        kept.append(entry)
    return kept


def _check_options(episode: Episode, panel: Panel) -> None:
    known = _OPTIONS.get(panel.kind)
    unknown = [option for option in panel.options if known is not None and option not in known]
    if unknown and known is not None:
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise InputError(f"A panel of kind {panel.kind!r} has no option {unknown[0]!r}; {there}.{did_you_mean(unknown[0], known)}")
    colormap, limits = panel.options.get("colormap", "viridis"), panel.options.get("limits", "episode")
    if colormap not in COLORMAPS:
        raise InputError(f"There is no colormap {colormap!r}; there are {', '.join(COLORMAPS)}.{did_you_mean(str(colormap), COLORMAPS)}")
    pair = isinstance(limits, (tuple, list)) and len(limits) == 2 and all(isinstance(x, (int, float, np.number)) for x in limits)
    pair = pair and bool(np.isfinite(limits).all())
    if limits not in ("episode", "step") and not (pair and limits[0] < limits[1]):
        raise InputError(f"limits={limits!r}: give 'episode', 'step', or the lowest and the highest value.")
    if panel.kind == "map":
        map_places(episode, panel)
    elif panel.variable is not None:
        channel_numbers(episode, panel.variable, panel.options.get("channels"))


def channel_numbers(episode: Episode, name: str, channels: Any) -> list[int] | None:
    """Return the places of channels that are given by name or number.

    Raises
    ------
    NotInRunError
        If there is no such channel.
    """
    if channels is None:
        return None
    shape, labels = episode.own_shape(name), episode.labels(name) or []
    count = shape[-1] if shape else 1
    out = []
    for channel in [channels] if isinstance(channels, (str, int, np.integer)) else channels:
        if isinstance(channel, (int, np.integer)) and -count <= channel < count:
            out.append(int(channel) % count)
        elif str(channel) in labels:
            out.append(labels.index(str(channel)))
        else:
            there = ", ".join(labels[:20]) or f"0 to {count - 1}"
            raise NotInRunError(f"{name!r} has no channel {channel!r}; it has {there}.{did_you_mean(str(channel), labels)}")
    return out


def _is_position(episode: Episode, name: str) -> bool:
    return episode.agent_dim(name) is not None and len(episode.own_shape(name)) == 1 and episode.data[name].dtype.kind in "biuf"


def map_places(episode: Episode, panel: Panel) -> list[list[Any]]:
    """Return what a map shows: variables, and where x and y lie among the channels of each.

    Raises
    ------
    NotInRunError, InputError
        If what the panel names is not there, or is no position.
    """
    name, x, y = panel.variable, panel.options.get("x"), panel.options.get("y")
    if (x is None) != (y is None):
        raise InputError(f"A map got x={x!r} and y={y!r}; give both, or neither: channels called 'x' and 'y' are found.")
    there = [each for each in episode.variables if _is_position(episode, each)]
    told = "; ".join(f"{each!r} has {', '.join(_channels(episode, each))}" for each in there[:8]) or "no variable of agents has channels"
    if name is not None and name not in there:
        raise InputError(f"{episode.check(name)!r} cannot be the positions on a map: these are a variable of agents with channels. {told}.")
    if x is not None:
        fits = [name] if name is not None else [each for each in there if {str(x), str(y)} <= set(episode.labels(each) or ())]
        if not fits:
            raise NotInRunError(f"No variable of agents has the channels x={x!r} and y={y!r}: {told}.")
        return [[fits[0], *(channel_numbers(episode, fits[0], [x, y]) or ())]]
    found = [place for each in ([name] if name is not None else there) if (place := place_of(episode, each)) is not None]
    if name is not None and not found:
        raise NotInRunError(f"{name!r} has no channels 'x' and 'y' for a map. Name two: Panel('map', {name!r}, x=..., y=...). {told}.")
    first = {episode.agent_dim(place[0]): list(place) for place in reversed(found)}  # the first of each population
    return [first[dim] for dim in episode.populations if dim in first]


def _channels(episode: Episode, name: str) -> list[str]:
    labels = episode.labels(name)
    return labels[:12] if labels else [f"0 to {episode.own_shape(name)[0] - 1}"]


def _what_fits(episode: Episode, panels: list[Panel]) -> list[tuple[Panel, bool]]:
    """Order panels as people read them, and show as many as fit on a page."""

    def rank(panel: Panel) -> tuple[int, int]:
        if panel.variable is None:
            return (1 if panel.kind == "map" else 9), 0
        modality = episode.data[panel.variable].attrs.get(ATTR_MODALITY)
        ours = episode.agent_dim(panel.variable) is not None
        if panel.kind == "picture":
            return 0, int(ours)
        order = {REWARDS: 3, ACTIONS: 4, STATES: 5, TERMINATIONS: 8}
        return (order.get(str(modality), 6) if ours else 7), 0

    panels = sorted(panels, key=rank)
    position = next((name for name in episode.variables if place_of(episode, name)), None)
    rows = pictures = 0
    out = []
    for panel in panels:
        shown = panel.kind not in ("table",)
        if panel.kind == "picture":
            pictures += 1
            shown = pictures <= _MOST_PICTURES
        elif panel.kind in ("lines", "steps") and panel.variable is not None:
            dull = panel.variable == position or episode.data[panel.variable].attrs.get(ATTR_MODALITY) == TERMINATIONS
            count = int(np.prod(episode.own_shape(panel.variable)))
            shown = not dull and rows + count <= _MOST_ROWS
            rows += count if shown else 0
        out.append((panel, shown))
    return out
