"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from simlab.errors import StorageError


@contextmanager
def written_whole(path: str) -> Iterator[str]:
    """Write beside the target, and put it in its place at the very end; whatever happens before leaves nothing.

    Parameters
    ----------
    path : str
        The target; one that is there is replaced.

    Yields
    ------
    str
        The file to write to.

    Raises
    ------
    StorageError
        If it cannot be written.
    """
    folder = os.path.dirname(path)
    try:
        handle, temporary = tempfile.mkstemp(suffix=os.path.splitext(path)[1], prefix=".simlab-", dir=folder)
    except OSError as error:
        raise StorageError(f"{path!r} cannot be written: {error.strerror or error}.") from error
    os.close(handle)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # what mkstemp made only its owner may read
        os.replace(temporary, path)
    except OSError as error:
        if error.filename in (temporary, path):
            raise StorageError(f"{path!r} cannot be written: {error.strerror or error}.") from error
        raise
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
