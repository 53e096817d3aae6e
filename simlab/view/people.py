"""Who is shown: agents as readers name them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any

import numpy as np

from simlab.errors import AgentError, did_you_mean
from simlab.view.frames import Episode


def everybody(episode: Episode) -> list[Hashable]:
    """Return the labels of all agents of all populations."""
    return [label for dim in episode.populations for label in episode.agents(dim)]


def as_labels(agents: Any, known: Collection[Hashable]) -> list[Hashable]:
    """Return agents as a list of labels.

    Parameters
    ----------
    agents : hashable, sequence, array or DataArray
        One label or several.
    known : collection of hashable
        The labels that there are: a tuple may be one of them.

    Examples
    --------
    >>> import numpy as np
    >>> as_labels("ada", []), as_labels(np.array([3, 4]), []), as_labels(("a", 1), [("a", 1)])
    (['ada'], [3, 4], [('a', 1)])
    """
    if isinstance(agents, (list, tuple)) and any(tuple(agents) == label for label in known):
        return [tuple(agents)]
    if hasattr(agents, "dims") or isinstance(agents, (np.ndarray, np.generic)):
        agents = np.asarray(agents).tolist()
    several = isinstance(agents, Iterable) and not isinstance(agents, (str, bytes))
    return [_plain(label) for label in agents] if several else [_plain(agents)]


def _plain(label: Any) -> Any:
    return np.asarray(label).item() if hasattr(label, "dims") or isinstance(label, (np.ndarray, np.generic)) else label


def checked_labels(agents: Any, known: Collection[Hashable]) -> list[Hashable]:
    """Return agents as a list of labels that there are.

    Raises
    ------
    AgentError
        If one of them is not in the run.
    """
    labels = as_labels(agents, known)
    for label in labels:
        if not any(label == there for there in known):
            raise AgentError(f"The run has no agent {label!r}.{did_you_mean(str(label), map(str, known))}")
    return labels
