"""Windows as far as recording is concerned, on Linux.

No file that is mapped is renamed, replaced, removed or emptied, and the calls that only Unix has are not there.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


def _mapped_here() -> set[tuple[int, int]]:
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        _, _, _, device, inode, *_ = line.split(maxsplit=5)
        major, minor = (int(n, 16) for n in device.split(":"))
        found.add((os.makedev(major, minor), int(inode)))
    return found


def is_mapped(path: Any, dir_fd: int | None = None) -> bool:
    """Whether this process has a file mapped, or one in a folder."""
    try:
        place = os.stat(path, dir_fd=dir_fd)
        inside = [entry.stat() for entry in os.scandir(path)] if dir_fd is None and os.path.isdir(path) else []
    except OSError:
        return False
    mapped = _mapped_here()
    return any((found.st_dev, found.st_ino) in mapped for found in [place, *inside])


def _refusing(call: Callable[..., Any], *which: int) -> Callable[..., Any]:
    def guarded(*given: Any, **options: Any) -> Any:
        for i in which:
            if i < len(given) and is_mapped(given[i], options.get("dir_fd")):
                raise PermissionError(13, "mapped", str(given[i]))
        return call(*given, **options)

    return guarded


@contextmanager
def imitated() -> Iterator[None]:
    """Imitate it."""
    plain = builtins.open

    def opened(path: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
        if "w" in mode and is_mapped(path):
            raise OSError(22, "mapped", str(path))
        return plain(path, mode, *given, **options)

    with ExitStack() as stack:
        for flag in ("simlab.storage.journal.RENAMES_MAPPED", "simlab.storage.lock.RENAMES_MAPPED"):
            stack.enter_context(mock.patch(flag, False))
        for name, which in {"replace": (0, 1), "rename": (0, 1), "unlink": (0,), "remove": (0,)}.items():
            stack.enter_context(mock.patch(f"os.{name}", _refusing(getattr(os, name), *which)))
        stack.enter_context(mock.patch("builtins.open", opened))
        stack.callback(sys.modules.pop, "fcntl")
        sys.modules["fcntl"] = None  # type: ignore[assignment]
        for name in ("posix_fallocate", "pread"):
            stack.callback(setattr, os, name, getattr(os, name))
            delattr(os, name)
        yield
