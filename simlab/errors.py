"""Every error simlab raises, in one tree.

::

    SimlabError
    ├── RunError                    something is wrong with a file or its path
    │   ├── RunNotFoundError        (FileNotFoundError)  no file, no folder, or no such simulation
    │   ├── RunExistsError          (FileExistsError)    would overwrite a file or a simulation
    │   ├── RunInUseError           (OSError)            another program has the file open
    │   ├── FormatError             (ValueError)         not a file simlab can read; the message says which kind it is
    │   └── StorageError            (OSError)            the disk or HDF5 refused a read or a write
    ├── InputError                  (ValueError)         what was passed does not fit
    │   ├── SchemaError             a declaration is wrong or contradicts another one
    │   ├── ValueMismatchError      a logged value does not fit its variable
    │   ├── TimestepError           a timestep runs backwards, falls between rows or is no step at all
    │   ├── AgentError              an agent id that cannot be used, or is not in the run
    │   └── MetadataError           config, metadata or an attachment cannot be stored
    ├── StateError                  (RuntimeError)       the call does not fit the state of the logger or the Dataset
    ├── NotInRunError               (KeyError)           a name that is not in the run
    └── MissingPackageError         (ImportError)        an optional package is needed; the message says how to add it

    DamageWarning                   (UserWarning)        a part of a file cannot be read, or not as it was meant; the rest was opened
    UnfinishedRunWarning         (UserWarning)        the writer of a run died; what it logged was opened

A message says what was given, where, what was expected and what to do.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class SimlabError(Exception):
    """The root of every error that simlab raises on purpose."""


class RunError(SimlabError):
    """Something is wrong with a file or its path."""


class RunNotFoundError(RunError, FileNotFoundError):
    """There is no such file, folder or simulation."""


class RunExistsError(RunError, FileExistsError):
    """The call would overwrite a file or a simulation."""


class RunInUseError(RunError, OSError):
    """Another program has the file open."""


class FormatError(RunError, ValueError):
    """The file is not one that simlab can read."""


class StorageError(RunError, OSError):
    """The disk or HDF5 refused a read or a write."""


class InputError(SimlabError, ValueError):
    """What was passed does not fit."""


class SchemaError(InputError):
    """A declaration is wrong or contradicts another one."""


class ValueMismatchError(InputError):
    """A logged value does not fit its variable."""


class TimestepError(InputError):
    """A timestep runs backwards, falls between rows or is no step at all."""


class AgentError(InputError):
    """An agent id cannot be used, or is not in the run."""


class MetadataError(InputError):
    """Configuration, metadata or an attachment cannot be stored."""


class StateError(SimlabError, RuntimeError):
    """The call does not fit the state of the logger or the Dataset."""


class NotInRunError(SimlabError, KeyError):
    """A name that is not in the run."""

    # KeyError shows the repr of its argument; a sentence should be shown as a sentence.
    __str__ = Exception.__str__


class DamageWarning(UserWarning):
    """A part of a run file cannot be read, or not as it was meant; what else there is was opened."""


class MissingPackageError(SimlabError, ImportError):
    """An optional package is needed.

    Parameters
    ----------
    package : str
        The name to import and, unless `conda` says otherwise, to install.
    purpose : str
        What it is needed for: "to read YAML".
    extra : str, optional
        The extra of simlab that brings it.
    conda : str, optional
        Its name on conda-forge, where that differs.
    """

    def __init__(self, package: str, purpose: str, *, extra: str | None = None, conda: str | None = None) -> None:
        pip = f'"simlab[{extra}]"' if extra else package
        super().__init__(
            f"{package} is needed {purpose} but is not installed. "
            f"Add it with: python -m pip install {pip}   or: conda install -c conda-forge {conda or package}"
        )


class UnfinishedRunWarning(UserWarning):
    """A run was opened whose writer died; what was logged is shown."""


def users_frame() -> int:
    """Return the ``stacklevel`` with which a warning points at the line of the caller of simlab, not at simlab's own or xarray's."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("simlab", "xarray"):
        frame, level = frame.f_back, level + 1
    return level


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or an empty string.

    Examples
    --------
    >>> did_you_mean("rewrads", ["rewards", "actions"])
    " Did you mean 'rewards'?"
    >>> did_you_mean("zzz", ["rewards"])
    ''
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
