// Kinds of panels that readers bring along: a module of theirs, and the little that it may ask of the viewer.

import { cut, make } from "./base.js";

export function customPanel(view, panel) {
  const root = make("section", { class: "sl-panel", "aria-label": panel.kind });
  const body = make("div", {});
  root.append(make("header", { class: "sl-panel-head" }, make("span", { class: "sl-title", text: panel.variable ?? panel.kind })), body);
  let made = null;
  let gone = false;
  let asked = new Set(); // whose values it wanted when it was drawn last
  const read = (label, list) => {
    const side = view.sides[0];
    const variable = side.variable(panel.variable);
    if (!variable || variable.picture) return undefined;
    const place = side.place(variable.dim, label);
    return place < 0 ? undefined : side.valuesAt(panel.variable, variable.dim === null ? [] : [place], 0, Math.min(view.row, side.n - 1), list);
  };
  const api = {
    root: body, panel, get row() { return view.row; }, get agents() { return [...view.agents]; },
    value(label = view.people(view.about.variables[panel.variable]?.dim)[0]?.label) {
      asked.add(label);
      return read(label, null);
    },
  };

  /** Do something of the panel's own; where it fails, the panel says so and the viewer goes on. */
  const guarded = (word, act) => {
    try {
      act();
    } catch (error) {
      made = null;
      console.error(error);
      body.replaceChildren(make("p", { class: "sl-none sl-broken", text: `The panel "${panel.kind}" failed in ${word}: ${cut(error?.message ?? error, 300)}` }));
    }
  };

  const shell = {
    root, panel,
    wants: (_row, _direction, wanted) => {
      for (const label of asked) read(label, wanted);
    },
    draw: (row) => {
      if (!made?.draw) return;
      const before = asked;
      asked = new Set();
      guarded("draw", () => made.draw(row));
      if ([...asked].some((label) => !before.has(label))) view.wantParts();
    },
    destroy: () => {
      gone = true;
      if (made?.destroy) guarded("destroy", () => made.destroy());
      made = null;
    },
  };
  const url = URL.createObjectURL(new Blob([view.about.scripts[panel.kind] ?? ""], { type: "text/javascript" }));
  import(/* webpackIgnore: true */ url).then((module) => {
    if (gone) return;
    guarded("render", () => {
      made = module.default.render(api) ?? {};
    });
    view.moved();
  }, (error) => guarded("its module", () => {
    throw error;
  })).finally(() => URL.revokeObjectURL(url));
  return shell;
}
