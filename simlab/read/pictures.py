"""The part of ``ds.sim`` that draws. It opens the door to the floor above, inside its methods, when they are called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import xarray as xr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simlab.view.viewer import EpisodeViewer


class Pictures:
    """Figures, the viewer, and what is made of an episode for others."""

    _ds: xr.Dataset

    def plot_episode(self, number: int = 0, **options: Any) -> Figure:
        """Draw one episode at a glance.

        Parameters
        ----------
        number : int, optional
            Its number; -1 is the last one.
        **options
            As for `simlab.view.figures.plot_episode`.

        Returns
        -------
        matplotlib.figure.Figure
            Not shown yet; a notebook shows it by itself.
        """
        from simlab.view.figures import plot_episode

        return plot_episode(self._ds, number, **options)

    def plot_agents(self, number: int = 0, **options: Any) -> Figure:
        """Draw what every agent of an episode got and did.

        Parameters
        ----------
        number : int, optional
            The episode; -1 is the last one.
        **options
            As for `simlab.view.overview.plot_agents`.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it by itself.
        """
        from simlab.view.overview import plot_agents

        return plot_agents(self._ds, number, **options)

    def plot_returns(self, **options: Any) -> Figure:
        """Draw what the agents got in each episode, and how long the episodes were.

        Parameters
        ----------
        **options
            As for `simlab.view.overview.plot_returns`.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it by itself.
        """
        from simlab.view.overview import plot_returns

        return plot_returns(self._ds, **options)

    def export(self, path: str | os.PathLike[str], **options: Any) -> str:
        """Write an episode for others: a page without kernel and network (.html), a film (.mp4, .gif, .webp), a picture (.png).

        Parameters
        ----------
        path : str or path-like
            Where to; its suffix says what.
        **options
            As for `simlab.view.export.export`: ``episode``, ``agents``, ``every``, ``fps``, ``max_mb`` and others.

        Returns
        -------
        str
            The path.
        """
        from simlab.view.export import export

        return export(self._ds, path, **options)

    def view(self, episode: int = 0, **options: Any) -> EpisodeViewer:
        """Look at an episode and move through it, in a notebook.

        Parameters
        ----------
        episode : int, optional
            Its number; -1 is the last one.
        **options
            As for `simlab.view.viewer.EpisodeViewer`: ``agents``, ``panels``, ``events``, ``other``, ``live``, ``step``, ``speed``.

        Returns
        -------
        EpisodeViewer
            An ipywidgets widget; a notebook shows it by itself.
        """
        from simlab.view.viewer import EpisodeViewer

        return EpisodeViewer(self._ds, episode, **options)
