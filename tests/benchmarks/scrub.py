"""How fast the viewer is in JupyterLab, beside the usual ways, in one session.

    python -m tests.benchmarks.scrub

Each way shows 1,000 steps of 84 × 84 × 3 pictures and six series. A bar code in the pictures tells which step is painted; a probe in
the page reads it at every animation frame. Key to pixel is the time from the key event to the first frame that shows the step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import simlab
from tests.browser.conftest import ARGUMENTS
from tests.browser.pages import new_page, open_notebook, run_code
from tests.browser.servers import Server, start

STEPS = 1000
SIDE = 84
BITS = 20
PROBE = """
window.probe = (find, bits) => {
  const log = [];
  window.shown = log;
  window.keys = [];
  document.addEventListener('keydown', (event) => window.keys.push([event.timeStamp, event.key]), true);
  document.addEventListener('pointermove', (event) => window.keys.push([event.timeStamp, 'move']), true);
  const paper = document.createElement('canvas');
  const ink = paper.getContext('2d', { willReadFrequently: true });
  const look = () => {
    const [element, x, y, width] = find() ?? [];
    if (element && (element.width || element.naturalWidth)) {
      paper.width = bits; paper.height = 1;
      ink.imageSmoothingEnabled = false;
      for (let bit = 0; bit < bits; bit++) ink.drawImage(element, x + (bit + 0.5) * width / bits, y, 1, 1, bit, 0, 1, 1);
      const data = ink.getImageData(0, 0, bits, 1).data;
      let step = 0;
      for (let bit = 0; bit < bits; bit++) if (data[4 * bit] > 127) step += 2 ** bit;
      const now = performance.now();
      if (!log.length || log.at(-1)[1] !== step) log.push([now, step]);
      window.latest = step;
    }
    requestAnimationFrame(look);
  };
  look();
};
"""


def picture(step: int, agent: int = 0) -> np.ndarray[Any, Any]:
    """Return a textured picture with a bar code of 20 bits, 4 pixels each, along the upper edge."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    out = np.stack([(x * 2 + step) % 256, (y * 2 + 31 * agent) % 256, ((x // 8 + y // 8 + step // 10) % 2) * 120], axis=-1).astype(np.uint8)
    out[:8] = 0
    out[:8, : 4 * BITS] = np.repeat([(step >> bit & 1) * 255 for bit in range(BITS)], 4)[None, :, None]
    return out


def record(path: Path, steps: int = STEPS, agents: int = 1) -> Path:
    """Record pictures and six series."""
    names = [f"agent_{i}" for i in range(agents)]
    t = np.arange(steps)
    with simlab.HDF5Logger(path, mode="w") as log:
        for step in range(steps):
            for i, name in enumerate(names):
                body = np.sin(t[step] / np.array([7, 19, 53, 97])).astype(np.float32)
                log.log_agent_step(
                    name,
                    step,
                    {
                        "camera": picture(step, i),
                        "actions": np.int8(step // 5 % 4),
                        "rewards": np.float32(np.cos(step / 11)),
                        "proprioception": body,
                    },
                )
    return path


def record_long(path: Path, steps: int = 1_000_000) -> Path:
    """Record an episode of a million steps: small pictures with a bar code, and six series."""
    t = np.arange(steps)
    with simlab.HDF5Logger(path, mode="w") as log:
        for start in range(0, steps, 50_000):
            part = t[start : start + 50_000]
            bits = ((part[:, None] >> np.arange(BITS)) & 1).astype(np.uint8) * 255
            frames = np.repeat(np.repeat(bits[:, None, :], 8, axis=1), 4, axis=2)
            body = np.sin(part[:, None] / np.array([7, 19, 53, 97])).astype(np.float32)
            data = {
                "camera": frames,
                "rewards": np.cos(part / 1100).astype(np.float32),
                "actions": (part // 5 % 4).astype(np.int8),
                "proprioception": body,
            }
            for i in range(len(part)):
                log.log_agent_step("agent_0", int(part[i]), {name: values[i] for name, values in data.items()})
    return path


MATPLOTLIB = """
%config InlineBackend.print_figure_kwargs = {'bbox_inches': None}
import matplotlib.pyplot as plt, numpy as np, ipywidgets, simlab, io
ds = simlab.open_run({path!r}).isel(agent=0).load()
frames, t = ds.camera.values, np.arange(ds.sizes['time'])
series = [ds.rewards.values, ds.actions.values, *ds.proprioception.values.T]
def figure():
    fig, axes = plt.subplots(1, 2, figsize=(9, 4.5), dpi=100)
    picture = axes[0].imshow(frames[0], interpolation='nearest'); axes[0].set_axis_off()
    for values in series: axes[1].plot(t, values, lw=.8)
    return fig, picture, axes[1].axvline(0)
slider = ipywidgets.IntSlider(max=len(t) - 1, layout=ipywidgets.Layout(width='900px'))
"""
NAIVE = """
out = ipywidgets.Output()
def show(change):
    fig, picture, line = figure()
    picture.set_data(frames[slider.value]); line.set_xdata([slider.value] * 2)
    with out:
        out.clear_output(wait=True); display(fig)
    plt.close(fig)
show(None); slider.observe(show, 'value')
ipywidgets.VBox([slider, out])
"""
IPYMPL = """
%matplotlib widget
fig, picture, line = figure()
def show(change):
    picture.set_data(frames[slider.value]); line.set_xdata([slider.value] * 2); fig.canvas.draw_idle()
slider.observe(show, 'value')
ipywidgets.VBox([slider, fig.canvas])
"""
FIND = {
    "viewer": "() => { const c = document.querySelector('.sl-cell canvas'); return c && [c, 0, 3, 80]; }",
    "naive": """() => { const i = document.querySelector('.jp-OutputArea img'); if (!i || !i.complete) return null;
        const s = i.naturalWidth / 900, b = window.frameBox; return b && [i, b[0] * s, b[1] * s, b[2] * s]; }""",
    "ipympl": """() => { const i = document.querySelector('.jupyter-matplotlib-canvas-div canvas'); if (!i || !i.width) return null;
        const s = i.width / 900, b = window.frameBox; return b && [i, b[0] * s, b[1] * s, b[2] * s]; }""",
}


@contextmanager
def session() -> Iterator[tuple[Any, Server]]:
    """Start a browser and a JupyterLab."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        for name in ("nb", "home"):
            (Path(folder) / name).mkdir()
        server = start("lab", Path(folder) / "nb", Path(folder) / "home")
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=[*ARGUMENTS, "--enable-precise-memory-info"])
                yield browser, server
                browser.close()
        finally:
            server.stop()


def latencies(page: Any, focus: Callable[[], None], presses: int, pause: float = 0.12) -> list[float]:
    """Press the right arrow key some times; return the milliseconds until each new step is painted."""
    focus()
    page.wait_for_timeout(500)
    page.evaluate("() => { window.shown.length = 0; window.keys.length = 0; window.shown.push([performance.now(), window.latest]) }")
    first = page.evaluate("() => window.latest")
    for _ in range(presses):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(pause * 1000)
    page.wait_for_timeout(800)
    shown, keys = page.evaluate("() => [window.shown, window.keys.filter((k) => k[1] === 'ArrowRight')]")
    out = []
    for i, (pressed, _) in enumerate(keys):
        painted = next((now for now, step in shown if step >= first + i + 1), None)
        if painted is not None:
            out.append(painted - pressed)
    return out


def painted_per_second(page: Any, toggle: Callable[[], None], seconds: float = 4.0) -> float:
    """Play for some seconds and return the distinct pictures painted per second."""
    toggle()
    page.wait_for_timeout(700)
    page.evaluate("() => { window.shown.length = 0 }")
    began = page.evaluate("() => performance.now()")
    page.wait_for_timeout(seconds * 1000)
    shown, now = page.evaluate("() => [window.shown, performance.now()]")
    toggle()
    return len({step for _, step in shown}) / ((now - began) / 1000)


def drag(page: Any, box: dict[str, float], moves: int = 60) -> int:
    """Drag in some moves, one per animation frame at most, and return how many of them were painted."""
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, y)
    page.mouse.down()
    page.wait_for_timeout(200)
    page.evaluate("() => { window.shown.length = 0 }")
    for i in range(moves):
        page.mouse.move(box["x"] + 8 + (i + 1) * (box["width"] - 30) / moves, y)
        page.wait_for_timeout(12)
    page.wait_for_timeout(500)
    page.mouse.up()
    return int(page.evaluate("() => new Set(window.shown.map((s) => s[1])).size"))


def row(name: str, values: list[float], fps30: float | None, fps60: float | None, dragged: int | None, more: str = "") -> str:
    """Return one line of the table."""
    p95 = float(np.percentile(values, 95)) if values else float("nan")
    middle = statistics.median(values) if values else float("nan")
    cells = [
        f"{middle:.0f} / {p95:.0f}",
        *(f"{v:.1f}" if v is not None else "-" for v in (fps30, fps60)),
        str(dragged if dragged is not None else "-"),
        more,
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def viewer(browser: Any, server: Server, path: Path, name: str, options: str = "", far: bool = False, presses: int = 60) -> str:
    """Measure the viewer on one run."""
    with new_page(browser, 1200, 1000) as (page, _):
        open_notebook(page, server, "import simlab, simlab.view.viewer, matplotlib", f"path = {str(path)!r}")
        page.evaluate(f"() => {{ {PROBE} }}")
        page.evaluate(f"() => window.probe({FIND['viewer']}, {BITS})")
        code = f"ds = simlab.open_run(path); v = ds.sim.view({options}); v"
        began = page.evaluate(
            """(code) => {
              const notebook = window.jupyterapp.shell.currentWidget.content;
              notebook.model.sharedModel.addCell({cell_type: 'code', source: code});
              notebook.activeCellIndex = notebook.widgets.length - 1;
              const now = performance.now();
              window.jupyterapp.commands.execute('notebook:run-cell');
              return now;
            }""",
            code,
        )
        page.wait_for_function("() => window.shown.length > 0 && !document.querySelector('.sl-waiting')", timeout=60_000)
        first = page.evaluate("() => window.shown[0][0]") - began
        root = page.locator(".sl-viewer")
        page.wait_for_timeout(1500)
        if far:
            run_code(page, "v.step = 700_000")
            page.wait_for_timeout(1000)
        run_code(page, TIMER)
        values = latencies(page, root.focus, presses)
        fps30 = painted_per_second(page, lambda: (root.focus(), page.keyboard.press("Space")))
        run_code(page, "v.speed = 60")
        page.wait_for_timeout(300)
        fps60 = painted_per_second(page, lambda: (root.focus(), page.keyboard.press("Space")))
        root.focus()
        page.keyboard.press("Home")
        page.wait_for_timeout(500)
        dragged = drag(page, page.locator(".sl-timeline").bounding_box())
        spent, sent = json.loads(run_code(page, "import json; print(json.dumps([spent, sent]))"))
        heap = page.evaluate("() => performance.memory.usedJSHeapSize / 1e6")
        per, on = (f"{statistics.median(times):.2f} / {np.percentile(times, 95):.2f}" if times else "-" for times in (spent, sent))
        more = f"first {first:.0f} ms, kernel per chunk {per} ms and {on} ms in Jupyter's sending ({len(spent)}), heap {heap:.0f} MB"
        return row(name, values, fps30, fps60, dragged, more)


TIMER = """
import time
from simlab.view.desk import Desk
spent, sent = [], []
def timed(call, into, is_block):
    def wrapper(*given):
        began = time.perf_counter(); out = call(*given)
        if is_block(given): into.append((time.perf_counter() - began) * 1e3)
        return out
    return wrapper
Desk.answer = timed(Desk.answer, spent, lambda given: given[1].get('ask') == 'block')
v.send = timed(v.send, sent, lambda given: len(given[1]) == 1 and 'rows' in given[0])
"""


def matplotlib_way(browser: Any, server: Server, path: Path, name: str, code: str, find: str) -> str:
    """Measure one of the usual ways."""
    with new_page(browser, 1200, 1000) as (page, _):
        open_notebook(page, server, MATPLOTLIB.replace("{path!r}", repr(str(path))), *code.strip().split("\n\n"))
        page.wait_for_timeout(2500)
        box = run_code(
            page,
            "f, p, l = figure(); f.canvas.draw(); b = p.get_window_extent(); plt.close(f); "
            "print([float(x) for x in (b.x0, 450 - b.y1, b.width)])",
        )
        left, top, width = json.loads(box.splitlines()[-1])
        page.evaluate(f"() => {{ window.frameBox = [{left}, {top + width * 3 / SIDE}, {width * 80 / SIDE}] }}")
        page.evaluate(f"() => {{ {PROBE} }}")
        page.evaluate(f"() => window.probe({FIND[find]}, {BITS})")
        page.wait_for_timeout(500)
        handle = page.locator(".widget-slider .noUi-handle")
        values = latencies(page, handle.focus, 20, 0.6)
        return row(name, values, None, None, drag(page, page.locator(".widget-slider .noUi-base").bounding_box()))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the million steps and the usual ways")
    given = parser.parse_args()
    print("| way | key → pixel, median / p95 ms | painted of 30/s | of 60/s | of 60 drag moves | more |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, session() as (browser, server):
        one = record(Path(folder) / "one.h5")
        many = record(Path(folder) / "many.h5", agents=16)
        print(viewer(browser, server, one, "viewer, 1 agent"), flush=True)
        print(viewer(browser, server, many, "viewer, 16 agents", "agents=ds.sim.agents"), flush=True)
        if not given.quick:
            began = time.perf_counter()
            long = record_long(Path(folder) / "long.h5")
            print(f"recorded a million steps in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            print(viewer(browser, server, long, "viewer, 1,000,000 steps", far=True), flush=True)
            print(matplotlib_way(browser, server, one, "matplotlib in an Output", NAIVE, "naive"), flush=True)
            print(matplotlib_way(browser, server, one, "ipympl, draw_idle", IPYMPL, "ipympl"), flush=True)


if __name__ == "__main__":
    main()
