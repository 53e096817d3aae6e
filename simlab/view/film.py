"""Episodes as films: pictures of a moment above the series with a cursor, frame by frame, without matplotlib in the loop."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simlab.errors import InputError, MissingPackageError, StorageError
from simlab.view.blocks import Presence
from simlab.view.desk import Opened
from simlab.view.kinds import choose_panels
from simlab.view.paint import paint
from simlab.view.poster import enlarged, places

Rgb = NDArray[np.uint8]
_WINDOW: Final = 32
_HEAD: Final = 28
_CAPTION: Final = 17
_EDGE: Final = 10
_GRAY: Final = 236
_CURSOR: Final = (11, 102, 195)
_MOST_LINES: Final = 6
_LINES: Final = ("#d55e00", "#0072b2", "#009e73", "#b45c93", "#b87d00", "#3d9bd1", "#6b4e9b", "#8c5614")


class Film:
    """The frames of an episode.

    Parameters
    ----------
    opened : Opened
        The episode.
    agents : sequence of hashable
        Whose pictures are shown.
    rows : sequence of int
        Which rows, in order.
    series : bool
        Whether there are series with a cursor below the pictures.
    """

    def __init__(self, opened: Opened, agents: Sequence[Hashable], rows: Sequence[int], series: bool = True) -> None:
        self.opened, self.agents, self.rows = opened, list(agents), list(rows)
        episode = opened.episode
        if not self.rows:
            raise InputError(f"Episode {episode.k} has {len(episode.time)} steps; there are none between start and stop.")
        names = [p.variable for p, shown in choose_panels(episode) if shown and p.kind == "picture" and p.variable]
        self.cells: list[tuple[str, Hashable | None]] = []
        for name in names:
            dim = episode.agent_dim(name)
            known = episode.agents(dim) if dim is not None else []
            self.cells += [(name, agent) for agent in self.agents if agent in known] if dim is not None else [(name, None)]
        people = len({agent for _, agent in self.cells if agent is not None})
        self.high = {None: 232, "agent": 232 if people == 1 else 170 if people <= 2 else 121}
        self.blank = [self._large(np.full((*episode.frame_shape(name), 3), _GRAY, np.uint8), agent) for name, agent in self.cells]
        self.places, (top, across) = places([image.shape[:2] for image in self.blank], head=_CAPTION)
        wide = max(across, 480) + 2 * _EDGE
        self.strip, self.span = self._strip(wide) if series else (np.full((0, wide, 3), 255, np.uint8), (0, 1))
        self.size = (_even(_HEAD + top + _EDGE + self.strip.shape[0]), _even(wide))
        self.ground = self._ground()

    def __len__(self) -> int:
        return len(self.rows)

    def _large(self, image: Rgb, agent: Hashable | None) -> Rgb:
        return enlarged(image, self.high[None if agent is None else "agent"])

    def _ground(self) -> Rgb:
        """Draw what is the same in every frame: the names above the pictures, the series below them."""
        from PIL import Image, ImageDraw

        out = np.full((*self.size, 3), 255, np.uint8)
        if self.strip.shape[0]:
            low = self.size[0] - self.strip.shape[0]
            out[low:, : self.strip.shape[1]] = self.strip
        image = Image.fromarray(out)
        draw = ImageDraw.Draw(image)
        for (name, agent), (top, left) in zip(self.cells, self.places, strict=True):
            x, y = left + _EDGE, top + _HEAD - _CAPTION + 1
            if agent is not None:
                draw.ellipse((x, y + 3, x + 8, y + 11), fill=_LINES[self.agents.index(agent) % len(_LINES)])
            draw.text(
                (x + (13 if agent is not None else 0), y), str(name if agent is None else agent)[:40], fill=(91, 98, 107), font=_font(12)
            )
        return np.asarray(image)

    def _strip(self, wide: int) -> tuple[Rgb, tuple[int, int]]:
        """Draw the series once. Returns them with the first and last pixel of their time axis."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        episode = self.opened.episode
        picked = [p.variable for p, shown in choose_panels(episode) if shown and p.kind in ("lines", "steps") and p.variable][:_MOST_LINES]
        if not picked:
            return np.full((0, wide, 3), 255, np.uint8), (0, 1)
        high = 46 * len(picked) + 30
        figure = Figure(figsize=(wide / 100, high / 100), dpi=100, facecolor="white")
        left, right = 136 / wide, 1 - 16 / wide
        for i, name in enumerate(picked):
            ax = figure.add_axes((left, 1 - (46 * (i + 1)) / high, right - left, 38 / high))
            self._lines(ax, name)
            ax.set_xlim(0, max(1, len(episode.time) - 1))
            names = episode.categories(name)
            if names and len(names) <= 6:
                ax.set_yticks(range(len(names)), [n.replace("$", r"\$")[:9] for n in names], fontsize=5)
            ax.tick_params(axis="x", labelsize=6.5, length=2, colors="#757c86", labelbottom=i == len(picked) - 1)
            ax.tick_params(axis="y", labelsize=5 if names else 6.5, length=2, colors="#757c86")
            for side in ("top", "right"):
                ax.spines[side].set_visible(False)
            for side in ("left", "bottom"):
                ax.spines[side].set_color("#d9dce0")
            labels = episode.labels(name) if episode.own_shape(name) else None
            more = f"{name[:12]}: {labels[0][:9]}" if labels else name[:16]
            figure.text(8 / wide, 1 - (46 * i + 27) / high, more.replace("$", r"\$"), fontsize=7, color="#22262b", va="center")
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        picture = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        return picture, (round(left * wide), round(right * wide) - 1)

    def _lines(self, ax: Any, name: str) -> None:
        episode, presence = self.opened.episode, self.opened.presence
        dim = episode.agent_dim(name)
        known = episode.agents(dim) if dim is not None else []
        at = np.searchsorted(episode.time, episode.rows(name))
        every = max(1, len(at) // 4000)
        for i, agent in enumerate([a for a in self.agents if a in known] if dim is not None else [None]):
            rows = np.arange(0, len(at), every)
            values = episode.values(name, agent, rows.tolist()).astype(np.float64).reshape(len(rows), -1)
            place = None if dim is None or agent is None else np.array([episode.position(dim, agent)])
            there = presence(name, place, 0, len(at)).reshape(-1, len(at))[0, rows]
            shown = np.where(there[:, None] & np.isfinite(values), values, np.nan)
            ax.plot(at[rows], shown[:, 0], color=_LINES[i % len(_LINES)] if dim is not None else "#22262b", lw=0.9)

    def __iter__(self) -> Iterator[Rgb]:
        """Yield the frames: (height, width, 3) each."""
        for start in range(0, len(self.rows), _WINDOW):
            rows = self.rows[start : start + _WINDOW]
            pictures = [self._pictures(name, agent, rows) for name, agent in self.cells]
            for i, row in enumerate(rows):
                yield self._compose(row, [p[i] if p[i] is not None else b for p, b in zip(pictures, self.blank, strict=True)])

    def _pictures(self, name: str, agent: Hashable | None, rows: Sequence[int]) -> list[Rgb | None]:
        """Return the painted pictures of some rows; None where nothing was logged."""
        episode, presence = self.opened.episode, self.opened.presence
        at = np.searchsorted(episode.rows(name), episode.time[list(rows)], "right") - 1
        wanted = np.unique(at[at >= 0])
        if not wanted.size:
            return [None] * len(rows)
        there = _presence_of(self.opened, presence, name, agent, wanted)
        values = episode.values(name, agent, wanted.tolist())
        scale, _ = self.opened.scale(name)
        painted = {int(w): self._large(paint(v, scale), agent) if ok else None for w, v, ok in zip(wanted, values, there, strict=True)}
        return [painted.get(int(a)) for a in at]

    def _compose(self, row: int, pictures: Sequence[Any]) -> Rgb:
        from PIL import Image, ImageDraw

        out = self.ground.copy()
        for (top, left), picture in zip(self.places, pictures, strict=True):
            out[_HEAD + top : _HEAD + top + picture.shape[0], _EDGE + left : _EDGE + left + picture.shape[1]] = picture
        if self.strip.shape[0]:
            low = self.size[0] - self.strip.shape[0]
            first, last = self.span
            x = first + round(row / max(1, len(self.opened.episode.time) - 1) * (last - first))
            out[low : self.size[0] - 20, x : x + 2] = _CURSOR
        image = Image.fromarray(out)
        step = int(self.opened.episode.steps[row])
        ImageDraw.Draw(image).text((_EDGE, 7), f"episode {self.opened.episode.k}   step {step}", fill=(34, 38, 43), font=_font(13))
        return np.asarray(image)


def _presence_of(opened: Opened, presence: Presence, name: str, agent: Hashable | None, rows: NDArray[Any]) -> NDArray[np.bool_]:
    dim = opened.episode.agent_dim(name)
    place = None if dim is None or agent is None else np.array([opened.episode.position(dim, agent)])
    first, last = int(rows[0]), int(rows[-1]) + 1
    there: NDArray[np.bool_] = presence(name, place, first, last).reshape(-1)[rows - first]
    return there


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _even(n: int) -> int:
    """Round up to what video codecs take."""
    return n + n % 2


def still(opened: Opened, agents: Sequence[Hashable], row: int) -> bytes:
    """Return one frame as PNG."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(next(iter(Film(opened, agents, [row])))).save(out, "png")
    return out.getvalue()


def write_animation(path: str, film: Film, fps: float, form: str, frames: Iterator[Rgb]) -> None:
    """Write a GIF or an animated WebP.

    Parameters
    ----------
    path : str
        Where to.
    film : Film
        Whose frames they are.
    fps : float
        Frames per second; a GIF knows hundredths of a second.
    form : {"gif", "webp"}
        Which of the two.
    frames : iterator of ndarray
        The frames, perhaps counted on the way.
    """
    from PIL import Image, features

    if form == "webp" and not features.check("webp"):
        raise MissingPackageError("pillow", "with WebP to write .webp")
    first = Image.fromarray(next(frames))
    rest = (Image.fromarray(frame) for frame in frames)
    options: dict[str, Any] = {"save_all": True, "append_images": rest, "duration": max(20, round(1000 / fps)), "loop": 0, "format": form}
    if form == "webp":
        options |= {"quality": 82, "method": 2}
    first.save(path, **options)


def ffmpeg() -> str:
    """Return a program that writes films.

    Raises
    ------
    MissingPackageError
        If there is none.
    """
    found = shutil.which("ffmpeg")
    if found:
        return found
    try:
        import imageio_ffmpeg
    except ImportError:
        raise MissingPackageError("imageio-ffmpeg", "to write .mp4 (or the program ffmpeg)", extra="video") from None
    return str(imageio_ffmpeg.get_ffmpeg_exe())


def write_film(path: str, film: Film, fps: float, frames: Iterator[Rgb]) -> None:
    """Write an MP4 film that every browser plays.

    Raises
    ------
    MissingPackageError
        If there is no ffmpeg.
    StorageError
        If ffmpeg refuses.
    """
    program = ffmpeg()
    encoders = subprocess.run([program, "-hide_banner", "-encoders"], capture_output=True, text=True, check=False).stdout
    codec = next((name for name in ("libx264", "libopenh264", "mpeg4") if f" {name} " in encoders), "mpeg4")
    high, wide = film.size
    command = [
        program, "-hide_banner", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{wide}x{high}",
        "-r", f"{fps:g}",
        "-i", "-", "-an", "-c:v", codec, "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", path,
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            for frame in frames:
                process.stdin.write(np.ascontiguousarray(frame).tobytes())
            process.stdin.close()
            told = process.stderr.read().decode("utf-8", "replace").strip()
        except BrokenPipeError:
            told = process.stderr.read().decode("utf-8", "replace").strip() or "it ended early"
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise StorageError(f"ffmpeg could not write the film: {told[-300:]}")
