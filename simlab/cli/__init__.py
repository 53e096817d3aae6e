"""The command ``simlab``: each command is a short function over the library.

Exit codes: 0 done, 1 a problem (told on stderr), 2 wrong usage, 130 interrupted, 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from simlab import __version__
from simlab.cli.terminal import escape
from simlab.errors import SimlabError

_DESCRIPTION = "Record multi-agent simulations to one HDF5 file, and look inside such files."
_DEMO = """\
Record a small grid world (foragers look for food, are born, starve), open the run and draw one of its episodes.
Beside the run lie the figure and a notebook to go on with. The same seed gives the same run."""
_INFO = """\
Tell what is in a run file: simulations, agents, episodes, variables with their types, chunks and compression, metadata.
Of any other HDF5 or netCDF-4 file, show groups, arrays and their sizes. Nothing is written, no array is read."""

_REPAIR = """\
Make a run whose writer died (killed, out of memory, power) a finished file that every program opens. Every row that was logged is
kept, those of its journal too. It is done in one step at the very end; a file that needs nothing is left alone."""
_SNAPSHOT = """\
Copy a run, also one that is being recorded, to a finished file that ncdump, R, Octave and MATLAB open. It holds every row that had
been logged when the copy was begun; the run and its writer are not disturbed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows ``simlab``; left out, the arguments of the process.

    Examples
    --------
    >>> main(["info", "missing.h5"])
    1
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character gets its number
    try:
        given = _parser().parse_args(arguments)
    except SystemExit as leaving:  # argparse leaves by itself: 0 after --help, 2 after wrong usage
        return leaving.code if isinstance(leaving.code, int) else 2
    try:
        code: int = importlib.import_module(f"simlab.cli.{given.command}").run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more on its way out; it must not fail there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("simlab: interrupted", file=sys.stderr)
        return 130
    except (SimlabError, OSError) as error:
        print(f"simlab: {escape(str(error))}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("simlab", description=_DESCRIPTION, epilog="Help on a command: simlab COMMAND --help")
    parser.add_argument("--version", action="version", version=f"simlab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    raw = argparse.RawDescriptionHelpFormatter
    demo = commands.add_parser("demo", help="record, open and draw a small run", description=_DEMO, formatter_class=raw)
    demo.add_argument("path", nargs="?", default="simlab_demo", help="folder to put it in (default: %(default)s)")
    demo.add_argument("--seed", type=_whole, default=7, help="where everything random comes from (default: %(default)s)")
    demo.add_argument("--episodes", type=_whole, default=6, help="how many to record (default: %(default)s)")
    demo.add_argument("--force", action="store_true", help="record again over a run that is there")

    info = commands.add_parser("info", help="tell what is in a file", description=_INFO, formatter_class=raw)
    info.add_argument("file", help="a run file, or any HDF5 or netCDF-4 file")
    info.add_argument("--simulation", metavar="NAME", help="tell about this simulation only, where the file holds several")
    info.add_argument("--json", action="store_true", help="as JSON, for programs")

    mend = commands.add_parser("repair", help="make a run whose writer died a finished file", description=_REPAIR, formatter_class=raw)
    mend.add_argument("file", help="a run file")
    mend.add_argument("-o", "--output", metavar="COPY", help="leave the file as it is, and put the repaired one here")

    copy = commands.add_parser("snapshot", help="copy a run that is being recorded", description=_SNAPSHOT, formatter_class=raw)
    copy.add_argument("file", help="a run file")
    copy.add_argument("output", help="where the copy goes, such as so_far.nc")
    return parser


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below zero")
    return value


_whole.__name__ = "whole number"  # argparse names it in its message
