// The widget: what anywidget calls for every place where a viewer is shown.

import { make } from "./base.js";
import { KernelLink } from "./link.js";
import { EpisodeView } from "./viewer.js";

const SHOWN = (globalThis[Symbol.for("simlab.viewer.shown")] ??= new Map());

/** The picture that stands for the viewer is shown while no view of it is. */
function standIn(model, more) {
  const name = model.get("_poster");
  if (!name) return;
  const views = (SHOWN.get(name) ?? 0) + more;
  SHOWN.set(name, views);
  for (const poster of document.querySelectorAll(`.${CSS.escape(name)}`)) poster.style.display = views > 0 ? "none" : "";
}

export function render({ model, el }) {
  const root = make("div");
  el.append(root);
  const view = new EpisodeView(model, root, new KernelLink(model));
  view.news.on("ready", () => standIn(model, 1));
  view.start();
  return () => {
    view.close();
    if (view.ready) standIn(model, -1);
  };
}

