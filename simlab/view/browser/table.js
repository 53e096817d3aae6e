// All values at the cursor, in words.

import { cut, make, say, short } from "./base.js";

const MOST_NUMBERS = 12;
const MOST_LETTERS = 400;

export class TablePanel {
  constructor(view) {
    this.view = view;
    this.body = make("div", { class: "sl-table", tabindex: "0", role: "region", "aria-label": "Values at the cursor", "data-lm-suppress-shortcuts": "true" });
    this.root = make("section", { class: "sl-panel sl-wide", "aria-label": "Table" },
      make("header", { class: "sl-panel-head" }, make("span", { class: "sl-title", text: "values at the cursor" })), this.body);
    this.build();
  }

  build() {
    const { view } = this;
    this.cells = [];
    const columns = view.agents.length ? view.agents : [];
    const head = make("tr", {}, make("th", { text: "" }));
    for (const side of view.sides) {
      for (const label of columns) head.append(make("th", { text: view.sides.length > 1 ? `${side.letter} · ${cut(label)}` : cut(label), title: label, scope: "col" }));
      if (!columns.length) head.append(make("th", { text: side.letter }));
    }
    const rows = [];
    for (const [name, variable] of Object.entries(view.about.variables)) {
      const row = make("tr", {}, make("th", { text: cut(name, 60), title: variable.about || name, scope: "row" }));
      for (const side of view.sides) {
        const wide = variable.dim === null ? [null] : columns;
        wide.forEach((label) => {
          const cell = make("td", { class: "sl-value" });
          if (variable.dim === null && columns.length > 1) cell.colSpan = columns.length;
          this.cells.push({ cell, side, name, label });
          row.append(cell);
        });
      }
      rows.push(row);
    }
    this.body.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  wants(row, _direction, list) {
    for (const side of this.view.sides) {
      for (const name of Object.keys(side.about?.variables ?? {})) this.read(side, name, null, row, list);
    }
  }

  read(side, name, label, row, list) {
    const variable = side.variable(name);
    if (!variable || variable.picture || row >= side.n) return undefined;
    const people = variable.dim === null ? [] : this.view.people(variable.dim).map((p) => [side.place(variable.dim, p.label), p.label]).filter(([place]) => place >= 0);
    if (variable.dim !== null && !people.length) return undefined;
    const index = variable.dim === null ? 0 : label === null ? 0 : people.findIndex((p) => p[1] === label);
    return side.valuesAt(name, people.map((p) => p[0]), index, row, list);
  }

  draw(row) {
    for (const { cell, side, name, label } of this.cells) {
      const variable = side.variable(name);
      let text = "–";
      if (variable?.picture) text = `${variable.shape.join(" × ")} ${variable.dtype}`;
      else if (variable) {
        const values = this.read(side, name, label, row, null);
        if (values === null) text = "…";
        else if (values) {
          const named = values.map((v) => variable.categories?.[Number(v)] ?? (variable.dtype === "bool" ? (v ? "true" : "false") : cut(short(v, 6), MOST_LETTERS)));
          const labelled = variable.labels && variable.shape.length ? named.map((v, i) => `${variable.labels[variable.channels?.[i] ?? i]} ${v}`) : named;
          text = labelled.slice(0, MOST_NUMBERS).join(", ") + (labelled.length > MOST_NUMBERS ? " …" : "");
        }
      }
      say(cell, text);
    }
  }
}
