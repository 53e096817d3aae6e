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
from simlab.view.captions import FAINT, INK, KEY_HIGH, draw_key, fitted, font, has_key
from simlab.view.desk import Opened
from simlab.view.kinds import choose_panels
from simlab.view.paint import paint
from simlab.view.poster import enlarged, places
from simlab.view.strip import LINES, draw_strip

Rgb = NDArray[np.uint8]
MOST_FPS: Final = 50
"""Of animations: browsers show frames that are shorter than two hundredths of a second far too long."""
_WINDOW: Final = 32
_HEAD: Final = 28
_CAPTION: Final = 17
_NARROW: Final = 96
"""Pixels that a picture has for its name, however narrow it is."""
_EDGE: Final = 10
_GRAY: Final = 236
_MOST_PIXELS: Final = 1 << 16
"""From so many the colours of a GIF are found."""
_CURSOR: Final = (11, 102, 195)


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
    """

    def __init__(self, opened: Opened, agents: Sequence[Hashable], rows: Sequence[int]) -> None:
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
        self.keys = [
            (name, *opened.scale(name)) for name in dict.fromkeys(name for name, _ in self.cells) if has_key(opened.scale(name)[0])
        ]
        self.blank = [self._blank(cell) for cell in self.cells]
        self.places, (top, across) = places([(b.shape[0], max(b.shape[1], _NARROW)) for b in self.blank], head=_CAPTION)
        wide = max(across, 480) + 2 * _EDGE
        keys = _HEAD + top + 6
        self.strip, self.span = draw_strip(opened, self.agents, wide)
        self.size = (_even(keys + len(self.keys) * KEY_HIGH + _EDGE + self.strip.shape[0]), _even(wide))
        self.ground = self._ground(keys)

    def __len__(self) -> int:
        return len(self.rows)

    def _large(self, image: Rgb, agent: Hashable | None) -> Rgb:
        return enlarged(image, self.high[None if agent is None else "agent"])

    def _blank(self, cell: tuple[str, Hashable | None]) -> Rgb:
        """Return what stands where nothing was logged."""
        from PIL import Image, ImageDraw

        name, agent = cell
        image = Image.fromarray(self._large(np.full((*self.opened.episode.frame_shape(name), 3), _GRAY, np.uint8), agent))
        if image.width > font(12).getlength("absent") + 4 and image.height > 20:
            ImageDraw.Draw(image).text((image.width / 2, image.height / 2), "absent", fill=FAINT, font=font(12), anchor="mm")
        return np.asarray(image)

    def _ground(self, keys: int) -> Rgb:
        """Draw what is the same in every frame: names above the pictures, what their colours stand for, the series below."""
        from PIL import Image, ImageDraw

        out = np.full((*self.size, 3), 255, np.uint8)
        if self.strip.shape[0]:
            low = self.size[0] - self.strip.shape[0]
            out[low:, : self.strip.shape[1]] = self.strip
        image = Image.fromarray(out)
        draw = ImageDraw.Draw(image)
        several = len({name for name, agent in self.cells if agent is not None}) > 1
        for (name, agent), (top, left), blank in zip(self.cells, self.places, self.blank, strict=True):
            x, y = left + _EDGE, top + _HEAD - _CAPTION + 1
            if agent is not None:
                color = LINES[self.agents.index(agent) % len(LINES)]
                draw.ellipse((x, y + 3, x + 8, y + 11), fill=color)
            room = max(blank.shape[1], _NARROW) - (13 if agent is not None else 0)
            if agent is None or several:
                who = "" if agent is None else " · " + fitted(agent, 12, 0.55 * room)
                text = fitted(name, 12, room - font(12).getlength(who)) + who
            else:
                text = fitted(agent, 12, room)
            draw.text((x + (13 if agent is not None else 0), y), text, fill=FAINT, font=font(12))
        for i, (name, scale, sampled) in enumerate(self.keys):
            draw_key(draw, _EDGE, keys + i * KEY_HIGH, self.size[1] - 2 * _EDGE, name, scale, sampled)
        return np.asarray(image)

    def __iter__(self) -> Iterator[Rgb]:
        """Yield the frames: (height, width, 3) each."""
        yield from self.at(self.rows)

    def at(self, wanted: Sequence[int]) -> Iterator[Rgb]:
        """Yield the frames of some rows."""
        for start in range(0, len(wanted), _WINDOW):
            rows = wanted[start : start + _WINDOW]
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
        ImageDraw.Draw(image).text((_EDGE, 7), f"episode {self.opened.episode.k}   step {step}", fill=INK, font=font(13))
        return np.asarray(image)


def _presence_of(opened: Opened, presence: Presence, name: str, agent: Hashable | None, rows: NDArray[Any]) -> NDArray[np.bool_]:
    dim = opened.episode.agent_dim(name)
    place = None if dim is None or agent is None else np.array([opened.episode.position(dim, agent)])
    first, last = int(rows[0]), int(rows[-1]) + 1
    there: NDArray[np.bool_] = presence(name, place, first, last).reshape(-1)[rows - first]
    return there


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
        Frames per second, at most `MOST_FPS`.
    form : {"gif", "webp"}
        Which of the two.
    frames : iterator of ndarray
        The frames, perhaps counted on the way.
    """
    from PIL import Image, features

    if form == "webp" and not features.check("webp"):
        raise MissingPackageError("pillow", "with WebP to write .webp")
    per_second = 100 if form == "gif" else 1000  # a GIF counts in hundredths; frames differ in length, so that their mean is right
    ends = [round((i + 1) * per_second / fps) for i in range(len(film))]
    lasting = [(end - start) * 1000 // per_second for start, end in zip([0, *ends], ends, strict=False)]
    options: dict[str, Any] = {"save_all": True, "duration": lasting, "loop": 0, "format": form}
    if form == "webp":
        options |= {"quality": 82, "method": 2}
        images = (Image.fromarray(frame) for frame in frames)
    else:
        palette = _palette(film)
        images = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for frame in frames)
    next(images).save(path, append_images=images, **options)


def _palette(film: Film) -> Any:
    """Return 256 colours for all frames of a film: its own where they are few, else those that stand for what its pictures show."""
    from PIL import Image

    frames = list(film.at([film.rows[i] for i in np.unique(np.linspace(0, len(film) - 1, 8).astype(int))]))
    colors, _ = _colors(np.concatenate([frame.reshape(-1, 3) for frame in frames]))
    if len(colors) > 256:
        # Around the pictures: white, the grays of text, the colours of lines. Flat areas must keep theirs, or they would be speckled.
        around, counts = _colors(film.ground)
        fixed = np.concatenate([[_CURSOR, (_GRAY,) * 3], around[np.argsort(-counts)]])
        _, first = np.unique(fixed >> 4, axis=0, return_index=True)  # Pillow takes one of those that are near each other for the others
        fixed = fixed[np.sort(first)[:48]]
        shown = [
            frame[_HEAD + top :, _EDGE + left :][: blank.shape[0], : blank.shape[1]].reshape(-1, 3)
            for frame in frames for (top, left), blank in zip(film.places, film.blank, strict=True)
        ] or [film.ground.reshape(-1, 3)]  # fmt: skip
        pixels = np.concatenate(shown)
        pixels = pixels[:: max(1, len(pixels) // _MOST_PIXELS)]
        few = Image.fromarray(pixels[np.newaxis]).quantize(256 - len(fixed), kmeans=1).getpalette() or []
        colors = np.concatenate([fixed, np.array(few, int).reshape(-1, 3)])[:256]
    out = Image.new("P", (1, 1))
    out.putpalette(colors.astype(np.uint8).tobytes())
    return out


def _colors(pixels: Rgb) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the different colours among pixels, and how often each is there."""
    red, green, blue = pixels.reshape(-1, 3).astype(np.uint32).T
    packed, counts = np.unique(red << 16 | green << 8 | blue, return_counts=True)
    return np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1), counts


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
