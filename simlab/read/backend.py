"""The xarray engine "simlab": ``xarray.open_dataset("run.h5", engine="simlab")``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import xarray as xr
from xarray.backends import BackendEntrypoint

from simlab.errors import SimlabError
from simlab.read.flatten import flatten
from simlab.read.gaps import tell
from simlab.storage.finding import select_simulation
from simlab.storage.joining import read_contents
from simlab.storage.opening import RunSource


class SimlabBackendEntrypoint(BackendEntrypoint):
    """Opens run files; xarray finds it by the entry point of the package.

    Examples
    --------
    >>> import xarray as xr
    >>> import os.path, tempfile
    >>> from simlab.demo import record_demo
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> report = record_demo(path, episodes=2, steps=30)
    >>> with xr.open_dataset(path, engine=SimlabBackendEntrypoint) as ds:  # or, where simlab is installed, engine="simlab"
    ...     print(ds.sizes["agent"] >= 8)
    True
    """

    description = "Open runs recorded by simlab"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "simulation", "population")
    supports_groups = False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        simulation: str | None = None,
        population: str | None = None,
    ) -> xr.Dataset:
        """Open one simulation of a run file as a lazy Dataset.

        Parameters
        ----------
        filename_or_obj : str or path-like
            The file.
        drop_variables : str or iterable of str, optional
            Variables to leave out.
        simulation : str, optional
            Which simulation; not needed where the file holds one.
        population : str, optional
            Show the agents of one population only, under plain names.
        """
        source = RunSource(filename_or_obj)
        try:
            contents = read_contents(source, select_simulation(source, simulation))
            ds = flatten(contents, population)
        except BaseException:
            source.close()
            raise
        if drop_variables is not None:
            names = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables)
            ds = ds.drop_vars(names, errors="ignore")
        ds.set_close(source.close)
        tell(source.path, contents.gaps)
        return ds

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Say whether a file is a run of simlab: only files that carry its format version are taken."""
        if not isinstance(filename_or_obj, (str, os.PathLike)) or not os.path.isfile(os.path.expanduser(filename_or_obj)):
            return False
        try:
            source = RunSource(filename_or_obj)
            try:
                source.file()
            finally:
                source.close()
        except SimlabError:
            return False
        return True
