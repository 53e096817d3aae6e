"""Pages, films, pictures and figures of episodes: whole or not at all."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import simlab
from simlab.errors import AgentError, InputError, MissingPackageError, NotInRunError, StorageError
from simlab.view import export as exporting
from simlab.view import film as filming
from simlab.view import strip
from simlab.view.poster import moment


@pytest.fixture
def with_an_empty_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run whose first episode has no steps."""
    path = tmp_path_factory.mktemp("empty") / "run.h5"
    with simlab.HDF5Logger(path) as log:
        for steps in (0, 5):
            log.begin_episode()
            for step in range(steps):
                log.log_agent_step("a", step, {"vision": np.zeros((4, 4, 3), np.uint8), "rewards": 1.0, "label": "x"})
            log.end_episode()
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run.h5"
    with simlab.HDF5Logger(path, seed=1) as log:
        for _episode in range(2):
            log.begin_episode()
            for step in range(40):
                for i, agent in enumerate(("a", "b")):
                    if agent == "b" and step > 20:
                        continue
                    log.log_agent_step(agent, step, {"vision": np.full((16, 16, 3), 6 * step + i, np.uint8), "rewards": step + 0.5})
                log.log_env_step(step, {"food": step})
            log.end_episode()
    return path


def data_of(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="simlab-data">(.*?)</script>', text, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_a_page_holds_its_episode(run: Path, tmp_path: Path) -> None:
    with simlab.open_run(run) as ds:
        page = Path(ds.sim.export(tmp_path / "ep1.html", episode=1, step=7))
        data = data_of(page)
        assert data["traits"]["episode"] == 1
        assert data["traits"]["step"] == 7
        held = data["held"]["1"]
        layout = held["about"]["variables"]["vision"]["layout"]
        header, text = held["blocks"]["vision"][f"0/{layout['offset'] // layout['length']}"]
        values = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(layout["agents"], layout["length"], 16, 16, 3)
        assert values[0, 0 - header["first"], 0, 0, 0] == 0
        assert values[0, 5 - header["first"], 0, 0, 0] == 30
        series = held["series"]["rewards"]
        numbers = np.frombuffer(zlib.decompress(base64.b64decode(series["data"])), series["dtype"]).reshape(series["shape"])
        assert numbers[0, :, 0].tolist() == [step + 0.5 for step in range(40)]


def test_a_page_asks_for_nothing(run: Path, tmp_path: Path) -> None:
    with simlab.open_run(run) as ds:
        text = Path(ds.sim.export(tmp_path / "ep.html")).read_text()
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses


def test_a_page_of_some_agents_and_thinned(run: Path, tmp_path: Path) -> None:
    with simlab.open_run(run) as ds:
        whole = Path(ds.sim.export(tmp_path / "all.html", agents="all"))
        small = Path(ds.sim.export(tmp_path / "small.html", agents="b", every=10))
        about = data_of(small)["held"]["0"]["about"]
        assert about["populations"] == [{"dim": "agent", "agents": ["b"]}]
        assert about["variables"]["vision"]["rows"] == {"start": 0, "stride": 10, "count": 4}
        assert data_of(whole)["traits"]["agents"] == ["a", "b"]


@pytest.mark.parametrize("suffix", ["html", "gif", "png"])
def test_an_episode_without_steps_is_refused(with_an_empty_one: Path, tmp_path: Path, suffix: str) -> None:
    with simlab.open_run(with_an_empty_one) as ds:
        with pytest.raises(InputError, match="Episode 0 has no steps"):
            ds.sim.export(tmp_path / f"ep.{suffix}")
        assert not list(tmp_path.iterdir())
        viewer = ds.sim.view()
        assert viewer.events == []
        with pytest.raises(NotInRunError, match="Episode 0 has no steps"):
            _ = viewer.at


def test_a_page_may_hold_an_episode_without_steps(with_an_empty_one: Path, tmp_path: Path) -> None:
    with simlab.open_run(with_an_empty_one) as ds:
        data = data_of(Path(ds.sim.export(tmp_path / "both.html", episode=[0, 1])))
    assert data["held"]["0"]["series"]["rewards"]["shape"] == [1, 0, 1]
    assert data["traits"]["agents"] == ["a"]


def test_agents_as_arrays(run: Path, tmp_path: Path) -> None:
    with simlab.open_run(run) as ds:
        for given in (ds.agent.values[:1], ds.agent[:1], ds.agent[0]):
            assert data_of(Path(ds.sim.export(tmp_path / "few.html", agents=given)))["traits"]["agents"] == ["a"]
            assert ds.sim.plot_episode(0, agents=given).axes


def test_a_page_of_several_episodes(run: Path, tmp_path: Path) -> None:
    with simlab.open_run(run) as ds:
        data = data_of(Path(ds.sim.export(tmp_path / "two.html", episode=[0, 1])))
    assert list(data["held"]) == ["0", "1"]
    assert data["episodes"]["count"] == 2


def test_a_page_of_an_episode_without_steps(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.begin_episode()
        log.log_agent_step("a", 0, {"vision": np.zeros((4, 4, 3), np.uint8), "rewards": 1.0})
        log.end_episode()
        log.begin_episode()
        log.end_episode()
    with simlab.open_run(tmp_path / "run.h5") as ds:
        ds.sim.export(tmp_path / "page.html", episode=[0, 1])
    assert data_of(tmp_path / "page.html")["held"]["1"]["series"]["rewards"]["shape"] == [1, 0, 1]


def test_a_large_page_is_refused_and_leaves_nothing(run: Path, tmp_path: Path) -> None:
    with simlab.open_run(run) as ds:
        for limit in (0.01, 0.35):
            with pytest.raises(InputError, match="max_mb"):
                ds.sim.export(tmp_path / "big.html", max_mb=limit if limit < 0.3 else 0.0001)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_animations(run: Path, tmp_path: Path, suffix: str) -> None:
    with simlab.open_run(run) as ds:
        path = ds.sim.export(tmp_path / f"ep.{suffix}", start=5, stop=25, every=2, fps=20)
    with Image.open(path) as image:
        assert image.n_frames == 10  # type: ignore[attr-defined]
        assert image.info.get("duration", 50) == 50


def test_a_film(run: Path, tmp_path: Path) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    with simlab.open_run(run) as ds:
        path = ds.sim.export(tmp_path / "ep.mp4", fps=20)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(path)
    assert frames == 40
    assert abs(seconds - 2) < 0.11
    reader = imageio_ffmpeg.read_frames(path)
    size = next(reader)["size"]
    picture = np.frombuffer(next(reader), np.uint8).reshape(size[1], size[0], 3)
    reader.close()
    assert picture[60, 30].max() < 12, "the first picture of agent a is black"


def test_frames_show_the_pictures(run: Path) -> None:
    with simlab.open_run(run) as ds:
        opened = exporting.Desk(ds).opened(0)
        film = filming.Film(opened, ["a", "b"], [0, 10, 30])
        (top, left), (top_b, left_b) = film.places
        frames = list(film)
        for frame, row in zip(frames, (0, 10, 30), strict=True):
            assert (frame[top + filming._HEAD + 3, left + filming._EDGE + 3] == 6 * row).all()
            wanted = 6 * row + 1 if row <= 20 else filming._GRAY  # b is gone
            assert (frame[top_b + filming._HEAD + 3, left_b + filming._EDGE + 3] == wanted).all()
        assert frames[0].shape[0] % 2 == frames[0].shape[1] % 2 == 0


@pytest.mark.parametrize("suffix", ["gif", "webp"])
@pytest.mark.parametrize("fps", [30, 12.5, 50])
def test_frames_last_as_long_as_they_should(run: Path, tmp_path: Path, suffix: str, fps: float) -> None:
    with simlab.open_run(run) as ds, Image.open(ds.sim.export(tmp_path / f"ep.{suffix}", fps=fps)) as image:
        lasting = []
        for i in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(i)
            image.load()
            lasting.append(image.info["duration"])
    assert len(lasting) == 40
    assert abs(sum(lasting) - 40_000 / fps) <= 10


@pytest.fixture(scope="module")
def colourful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with pictures of several kinds, of two agents, one of which is soon gone."""
    path = tmp_path_factory.mktemp("colourful") / "run.h5"
    y, x = np.mgrid[:60, :60]
    schema = simlab.Schema(
        observations=[
            simlab.Variable("vision", (60, 60, 3), "uint8", kind="image"),
            simlab.Variable("heat", (6, 6), "float32", kind="image"),
            simlab.Variable("a_picture_with_quite_a_long_name", (6, 6, 2), "uint8", kind="image", channels=("food", "walls")),
        ],
        actions=simlab.Variable("actions", dtype="int8", categories=("stay", "go", "eat")),
    )
    with simlab.HDF5Logger(path, schema) as log:
        for step in range(6):
            for agent in ("ada", "one_with_quite_a_long_name")[: 2 if step < 4 else 1]:
                vision = np.stack([4 * x + step, 4 * y, 255 - 2 * (x + y)], -1).astype(np.uint8)
                heat = np.full((6, 6), step - 2, np.float32)
                other = np.full((6, 6, 2), step, np.uint8)
                data = {"vision": vision, "heat": heat, "a_picture_with_quite_a_long_name": other, "actions": np.int8(step // 2)}
                log.log_agent_step(agent, step, data)
    return path


def test_a_gif_keeps_its_colours(colourful: Path, tmp_path: Path) -> None:
    with simlab.open_run(colourful) as ds:
        film = filming.Film(exporting.Desk(ds).opened(0), ["ada"], range(6))
        frames = [frame.astype(float) for frame in film]
        with Image.open(ds.sim.export(tmp_path / "ep.gif", agents="ada", fps=10)) as image:
            for i in (0, 3):
                image.seek(i)
                shown = np.asarray(image.convert("RGB"), float)
                assert (shown[:20, -20:] == 255).all(), "what is white stays white"
                (top, left), (high, wide) = film.places[0], (n // 8 * 8 for n in film.blank[0].shape[:2])
                part = (slice(filming._HEAD + top, filming._HEAD + top + high), slice(filming._EDGE + left, filming._EDGE + left + wide))
                means = [picture[part].reshape(high // 8, 8, wide // 8, 8, 3).mean(axis=(1, 3)) for picture in (frames[i], shown)]
                assert np.abs(means[0] - means[1]).max() < 12, "dithered, areas keep their colour"


def test_a_film_says_what_is_what(colourful: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import ImageDraw

    written: list[tuple[str, float, float]] = []
    draw = ImageDraw.ImageDraw.text

    def note(self: Any, where: tuple[float, float], text: str, *args: Any, **options: Any) -> None:
        written.append((text, where[0], where[0] + options["font"].getlength(text)))
        draw(self, where, text, *args, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", note)
    with simlab.open_run(colourful) as ds:
        agents = ["ada", "one_with_quite_a_long_name"]
        film = filming.Film(exporting.Desk(ds).opened(0), agents, [5])
        texts = [text for text, _, _ in written]
        assert {"vision · ada", "heat · ada", "absent"} <= set(texts)
        assert {"-2", "3", "food", "walls"} <= set(texts), "what colours stand for"
        captions = [(start, end) for text, start, end in written if " · " in text]
        assert len(captions) == len(film.cells) == 6
        for (start, end), (_, left), blank in zip(captions, film.places, film.blank, strict=True):
            assert left < start - filming._EDGE
            assert end <= left + filming._EDGE + max(blank.shape[1], filming._NARROW), "no name runs into the next one"


def test_actions_are_steps_with_names(colourful: Path) -> None:
    from matplotlib.figure import Figure

    with simlab.open_run(colourful) as ds:
        opened = exporting.Desk(ds).opened(0)
        axes = Figure().subplots()
        strip._lines(axes, opened, ["ada"], "actions", True)
        assert axes.lines[0].get_drawstyle() == "steps-post"
        picture, (first, last) = strip.draw_strip(opened, ["ada"], 600)
        assert picture.shape[1] == 600
        assert 100 < first < last < 600


def test_no_line_of_a_large_picture_is_lost(tmp_path: Path) -> None:
    canvas = np.zeros((250, 250, 3), np.uint8)
    canvas[101], canvas[:, 53] = 255, 255
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for agent in "abcd":
            log.log_agent_step(agent, 0, {"vision": canvas})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        opened = exporting.Desk(ds).opened(0)
        film = filming.Film(opened, list("abcd"), [0])
        top, left = film.places[0]
        high, wide = film.blank[0].shape[:2]
        shown = next(iter(film))[filming._HEAD + top :, filming._EDGE + left :][:high, :wide]
        assert (shown.max(axis=1) > 60).all()
        assert (shown.max(axis=0) > 60).all()
        picture = moment(opened, 0, ["a"])[0]
        assert picture.shape[0] < 250
        assert (picture.max(axis=(0, 2)) > 60).all()


def test_a_picture(run: Path, tmp_path: Path) -> None:
    with simlab.open_run(run) as ds, Image.open(ds.sim.export(tmp_path / "moment.png", step=12, agents="a")) as image:
        assert image.size[0] > 400


def test_interrupted_it_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "ep.gif"
    target.write_bytes(b"before")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(filming.Film, "_compose", interrupt)
    with simlab.open_run(run) as ds, pytest.raises(KeyboardInterrupt):
        ds.sim.export(target)
    assert [p.name for p in tmp_path.iterdir()] == ["ep.gif"]
    assert target.read_bytes() == b"before"


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("ep.mov", {}, InputError, ".mp4"),
        ("ep", {}, InputError, "nothing"),
        ("ep.html", {"episode": 9}, NotInRunError, "no episode 9"),
        ("ep.html", {"agents": "zoe"}, AgentError, "zoe"),
        ("ep.html", {"every": 0}, InputError, "every=0"),
        ("ep.gif", {"every": 0}, InputError, "every=0"),
        ("ep.gif", {"start": 90}, InputError, "40 rows"),
        ("ep.gif", {"episode": [0, 1]}, InputError, "one episode"),
        ("ep.gif", {"fps": 0}, InputError, "fps"),
        ("ep.gif", {"fps": 51}, InputError, "at most 50 frames a second"),
        ("no/such/folder/ep.html", {}, StorageError, "cannot be written"),
    ],
)
def test_what_is_refused(run: Path, tmp_path: Path, name: str, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with simlab.open_run(run) as ds, pytest.raises(error, match=words):
        ds.sim.export(tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_it_says_how_to_get_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with simlab.open_run(run) as ds, pytest.raises(MissingPackageError, match=r"simlab\[video\].*conda install"):
        ds.sim.export(tmp_path / "ep.mp4")
    assert not list(tmp_path.iterdir())


# -- figures over agents and episodes


def test_plot_agents(run: Path, demo_run: Path) -> None:
    with simlab.open_run(run) as ds, simlab.open_run(demo_run) as demo:
        assert len(ds.sim.plot_agents(1).axes) >= 2
        figure = demo.sim.plot_agents(0)
        labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        lived = demo.sim.episode(0).rewards.sum("time").to_series().sort_values(ascending=False)
        assert labels[0] == lived.index[0]
        with pytest.raises(NotInRunError):
            demo.sim.plot_agents(0, variable="nothing")
        with pytest.raises(InputError, match="one number"):
            demo.sim.plot_agents(0, variable="vision")


def test_plot_returns(run: Path, demo_run: Path, tmp_path: Path) -> None:
    with simlab.open_run(demo_run) as demo:
        figure = demo.sim.plot_returns(window=2)
        line = figure.axes[0].lines[0]
        assert np.allclose(line.get_ydata(), demo.sim.episodes.return_mean.values)
        with pytest.raises(InputError, match="window"):
            demo.sim.plot_returns(window=0)
    with simlab.HDF5Logger(tmp_path / "bare.h5") as log:
        log.log_env_step(0, {"food": 1})
    with simlab.open_run(tmp_path / "bare.h5") as ds, pytest.raises(NotInRunError, match="no rewards"):
        ds.sim.plot_returns()
