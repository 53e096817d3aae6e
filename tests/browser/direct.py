"""A viewer on a page without Jupyter: what it asks goes straight to Python, so that a test can let answers fail."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simlab.view.script import module, style
from simlab.view.viewer import EpisodeViewer
from tests.browser.pages import Viewer

_TRAITS = (
    "episode", "step", "agents", "playing", "speed", "loop", "bookmarks", "live", "_title", "_sides", "_other_episode", "_bookmarks_note",
    "_poster", "_changed",
)  # fmt: skip
_PAGE = """<!doctype html><meta charset="utf-8"><style>{style}</style><body class="sl-page"><script type="module">
{module}
class DirectModel extends PageModel {{
  constructor(place, traits) {{
    super(traits);
    this.place = place;
  }}
  set(name, value) {{
    if (JSON.stringify(this.traits[name]) !== JSON.stringify(value)) super.set(name, value);
  }}
  save_changes() {{}}
  async send(question) {{
    window.asked.push(question);
    const told = await window.simlabAsk(this.place, JSON.stringify(question));
    if (!told) return;
    const [answer, buffers] = JSON.parse(told);
    const octets = buffers.map((text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
    for (const ear of [...(this.ears.get("msg:custom") ?? [])]) ear(answer, octets);
  }}
}}
window.asked = [];
window.advance = advance;
window.views = {traits}.map((traits, place) => {{
  const model = new DirectModel(place, traits);
  const root = document.createElement("div");
  document.body.append(root);
  const view = new EpisodeView(model, root, new KernelLink(model));
  view.start();
  return view;
}});
</script></body>"""

Fault = Callable[[dict[str, Any]], str | None]


def show(page: Any, folder: Path, *viewers: EpisodeViewer, fault: Fault | None = None, wait: bool = True) -> list[Viewer]:
    """Show viewers on a page.

    Parameters
    ----------
    page : playwright Page
        The page.
    folder : Path
        Where the page is written to.
    *viewers : EpisodeViewer
        What answers. Traits are those of now; the page does not tell them back.
    fault : callable, optional
        Takes a question; what it returns goes to the page as an error, instead of an answer.
    wait : bool, optional
        Whether to wait until every viewer has drawn something.
    """

    def ask(place: int, text: str) -> str | None:
        question = json.loads(text)
        wrong = fault(question) if fault is not None else None
        if wrong is not None:
            return json.dumps([{"id": question["id"], "error": wrong}, []])
        sent: list[tuple[Any, Any]] = []
        viewers[place].send = lambda content, buffers=None: sent.append((content, buffers))  # type: ignore[method-assign]
        viewers[place]._handle_custom_msg(question, [])
        if not sent:
            return None
        return json.dumps([sent[0][0], [base64.b64encode(b).decode() for b in sent[0][1] or []]], allow_nan=False)

    page.expose_function("simlabAsk", ask)
    traits = json.dumps([{name: getattr(viewer, name) for name in _TRAITS} for viewer in viewers]).replace("<", "\\u003c")
    path = folder / "direct.html"
    path.write_text(_PAGE.format(style=style(), module=module("page"), traits=traits), encoding="utf-8")
    page.goto(path.as_uri())
    return [Viewer(page, place) for place in range(len(viewers))] if wait else []
