"""The command ``simlab``: each command is a short function over the library.

Exit codes: 0 done, 1 a problem (told on stderr), 2 wrong usage, 130 interrupted, 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

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

_EXPORT = """\
Write one episode for others. The suffix of OUT says as what: .html is one page with the viewer inside, without kernel and network;
.mp4 (needs ffmpeg), .gif and .webp are films; .png is a picture. A file that is there is replaced at the very end."""
_PLOT = "Draw one episode at a glance, what each of its agents got and did, or the returns of all episodes."
_VIEW = """\
Open the viewer in a browser: a small notebook, shown by Voilà where that is installed, else in JupyterLab (run its cell there).
The server listens on this machine alone and wants a token, which the browser is given. It ends with Ctrl-C."""


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
        with warnings.catch_warnings():
            warnings.showwarning = _show
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


def _show(message: Warning | str, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None) -> None:
    """Show a warning as the errors are shown: where in the code it comes from is of no use here."""
    print(f"simlab: {escape(str(message))}", file=sys.stderr)


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

    give = commands.add_parser("export", help="write an episode as a page, a film or a picture", description=_EXPORT, formatter_class=raw)
    give.add_argument("file", help="a run file")
    give.add_argument("out", help="what to write: .html, .mp4, .gif, .webp or .png")
    _add_choice(give)
    give.add_argument("--start", type=int, default=0, metavar="ROW", help="of a film: the first row of the episode (default: %(default)s)")
    give.add_argument("--stop", type=int, metavar="ROW", help="of a film: the row before which it ends (default: the end)")
    give.add_argument("--step", type=int, default=0, metavar="ROW", help="of a picture: which row; of a page: where it opens")
    give.add_argument("--every", type=int, default=1, metavar="N", help="of so many pictures, take one (default: %(default)s)")
    give.add_argument("--fps", type=float, default=30.0, help="frames, or steps, per second (default: %(default)s)")
    give.add_argument("--max-mb", type=float, default=50.0, help="refuse a page that would be larger (default: %(default)s)")

    plot = commands.add_parser("plot", help="draw an episode, its agents, or all returns", description=_PLOT, formatter_class=raw)
    plot.add_argument("file", help="a run file")
    plot.add_argument("what", nargs="?", choices=("episode", "agents", "returns"), default="episode", help="default: %(default)s")
    plot.add_argument("-o", "--output", default="episode.png", help="the file to write: .png, .pdf, .svg (default: %(default)s)")
    _add_choice(plot)
    plot.add_argument("--dpi", type=float, default=150.0, help="dots per inch (default: %(default)s)")

    look = commands.add_parser("view", help="open the viewer in a browser", description=_VIEW, formatter_class=raw)
    look.add_argument("file", help="a run file")
    _add_choice(look)
    look.add_argument("--with", dest="program", choices=("voila", "lab"), help="what shows it (default: voila where it is installed)")
    look.add_argument("--port", type=_whole, default=0, help="where the server listens (default: a free one)")
    look.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    return parser


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episode", type=int, default=0, metavar="K", help="which episode; -1 is the last one (default: %(default)s)")
    parser.add_argument("--agents", nargs="+", metavar="ID", help="which agents, or: all")
    parser.add_argument("--simulation", metavar="NAME", help="which simulation, where the file holds several")


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below zero")
    return value


_whole.__name__ = "whole number"  # argparse names it in its message
