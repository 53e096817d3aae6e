// Kinds of panels that readers bring along: a module of theirs, and the little that it may ask of the viewer.

import { make } from "./base.js";

export function customPanel(view, panel) {
  const root = make("section", { class: "sl-panel", "aria-label": panel.kind });
  const body = make("div", {});
  root.append(make("header", { class: "sl-panel-head" }, make("span", { class: "sl-title", text: panel.variable ?? panel.kind })), body);
  const shell = { root, panel, wants: () => {}, draw: () => {}, build: () => {} };
  const list = [];
  const api = {
    root: body, panel, get row() { return view.row; }, get agents() { return view.agents; },
    value(label = view.agents[0]) {
      const side = view.sides[0];
      const variable = side.variable(panel.variable);
      const places = variable.dim === null ? [] : [side.place(variable.dim, label)];
      const found = side.valuesAt(panel.variable, places, 0, Math.min(view.row, side.n - 1), list);
      return found;
    },
  };
  const url = URL.createObjectURL(new Blob([view.about.scripts[panel.kind] ?? ""], { type: "text/javascript" }));
  import(/* webpackIgnore: true */ url).then((module) => {
    const made = module.default.render(api) ?? {};
    shell.draw = (row) => made.draw?.(row);
    shell.wants = (row, direction, wanted) => {
      list.length = 0;
      api.value();
      wanted.push(...list);
    };
    view.moved();
  }).catch((error) => view.fail(error)).finally(() => URL.revokeObjectURL(url));
  return shell;
}
