// Pictures: what agents saw and what the world looked like, side by side, with the value under the pointer.

import { button, make, say, short } from "./base.js";
import { budget } from "./decode.js";
import { limitsOf, paint } from "./paint.js";

// How high a picture is, by how many there are: beside other panels, and alone.
const HIGH = [[1, 198, 240], [2, 132, 170], [4, 99, 150], [9, 84, 110], [Infinity, 84, 84]];

export class PicturePanel {
  constructor(view, panel) {
    this.view = view;
    this.panel = panel;
    this.name = panel.variable;
    this.options = { colormap: panel.options.colormap ?? null, limits: panel.options.limits ?? "episode", channels: panel.options.channels ?? null, size: "medium" };
    this.cells = [];
    this.title = make("span", { class: "sl-title", text: this.name, title: view.about.variables[this.name].about || null });
    this.facts = make("span", { class: "sl-facts" });
    this.under = make("span", { class: "sl-under" });
    this.legend = make("div", { class: "sl-legend" });
    this.grid = make("div", { class: "sl-pictures" });
    this.tuner = this.makeTuner();
    const tune = button("tune", `Colours of ${this.name}`, () => this.openTuner(this.tuner.hidden), { "aria-expanded": "false" });
    tune.classList.add("sl-quiet", "sl-tune");
    this.tune = tune;
    this.root = make("section", { class: "sl-panel sl-picture-panel", "aria-label": `Pictures: ${this.name}` },
      make("header", { class: "sl-panel-head" }, this.title, this.facts, tune), this.tuner, this.grid, make("footer", { class: "sl-foot" }, this.legend, this.under));
    this.build();
  }

  get channels() {
    return this.options.channels;
  }

  // -- one cell for each agent and side

  build() {
    const { view, name } = this;
    const variable = view.about.variables[name];
    const people = variable.dim === null ? [null] : view.people(variable.dim);
    this.sides = view.sides.filter((side) => side.has(name, variable));
    const groups = people.map((person) => this.sides.map((side) => this.makeCell(side, person)));
    this.cells = groups.flat();
    const both = this.sides.length > 1;
    // What belongs together stays together, wherever the line breaks.
    this.grid.replaceChildren(...(both ? groups.map((cells) => make("div", { class: "sl-pair" }, ...cells.map((cell) => cell.root))) : this.cells.map((cell) => cell.root)));
    if (!this.cells.length) this.grid.append(make("p", { class: "sl-none", text: people.length ? "not in this run" : "no agent is chosen" }));
    this.grid.classList.toggle("sl-pairs", both);
    this.fit();
  }

  /** Give every picture its size: whole pixels where that is possible. */
  fit() {
    const count = this.cells.length;
    const [, beside, alone] = HIGH.find(([most]) => count <= most);
    const [h, w] = this.view.about.variables[this.name].image;
    const target = { small: 0.7, medium: 1, large: 2 }[this.options.size] * (this.view.topPanels > 1 ? beside : alone);
    const whole = Math.max(1, Math.round(target / h));
    const high = h * whole <= 1.5 * target ? h * whole : target;
    const pairs = this.sides.length > 1 ? 2 : 1;
    const groups = count / pairs;
    const columns = pairs > 1 ? (groups <= 2 ? 1 : groups <= 6 ? 2 : Math.ceil(groups / 3)) : count <= 2 ? count : count <= 4 ? 2 : count <= 9 ? 3 : Math.ceil(count / 2);
    this.grid.style.setProperty("--sl-cell", `${Math.round(Math.min(high * (w / h), 3 * target))}px`);
    this.grid.style.setProperty("--sl-columns", String(columns));
    this.grid.classList.toggle("sl-row", this.view.topPanels <= 1);
  }

  makeCell(side, person) {
    const variable = side.variable(this.name); // pictures of the other side may have another size
    const [height, width] = variable.image;
    const label = person ? person.name : this.name;
    const canvas = make("canvas", { width, height, role: "img", "aria-label": `${this.name} of ${label}` });
    canvas.style.aspectRatio = `${width} / ${height}`;
    const state = make("span", { class: "sl-state" });
    const words = this.view.sides.length > 1 ? `${side.letter} · ${label}` : label;
    const named = person || this.view.sides.length > 1;
    const caption = named ? make("figcaption", {}, person ? make("i", { class: "sl-dot", style: `--sl-dot: ${person.color}` }) : null,
      make("span", { class: "sl-name", text: words, title: person?.label ?? words }), state) : null;
    if (!named) this.legend.before(state);
    const screen = make("div", { class: "sl-screen" }, canvas, make("span", { class: "sl-veil" }));
    const cell = {
      side, person, canvas, state, screen, root: make("figure", { class: "sl-cell sl-blank" }, screen, caption), shown: "",
      context: canvas.getContext("2d", { alpha: false, willReadFrequently: false }), image: null, pointer: null, passed: [],
      place: side.place(variable.dim, person?.label ?? null),
    };
    cell.image = cell.context.createImageData(width, height);
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      cell.pointer = [Math.floor(((event.clientX - box.left) / box.width) * width), Math.floor(((event.clientY - box.top) / box.height) * height)];
      this.tellPixel(cell);
    });
    canvas.addEventListener("pointerleave", () => {
      cell.pointer = null;
      say(this.under, "");
    });
    return cell;
  }

  // -- fetching

  wants(row, direction, list) {
    const bytes = this.cells.reduce((sum, cell) => sum + cell.side.blockBytes(this.name), 0);
    const room = 4 * bytes * Math.max(1, this.view.topPanels) < budget.limit;
    for (const cell of this.cells) list.push(...cell.side.wantAround(this.name, cell.place, Math.min(row, cell.side.n - 1), direction, room));
  }

  /** Limits of the episode, those of both sides together, so that a colour says the same on both; null while they are on their way. */
  baseScale(side) {
    const own = side.scale(this.name, this.channels);
    for (const other of this.sides) {
      if (other === side || !own) continue;
      const more = other.scale(this.name, this.channels);
      if (!more && !other.isScaleSettled(this.name, this.channels)) return null;
      if (more && isAlike(own, more) && this.isSameKind()) {
        const [low, high] = [together(Math.min, own.low, more.low), together(Math.max, own.high, more.high)];
        return { ...own, low, high, note: own.note.replace(/values \S+ … \S+/, `values ${short(low[0], 3)} … ${short(high[0], 3)}`) };
      }
    }
    return own;
  }

  /** Whether the numbers of all sides mean the same: 0 to 255 and 0 to 1 do not. */
  isSameKind() {
    return new Set(this.sides.map((side) => side.variable(this.name).dtype.replace(/\d+/, ""))).size === 1;
  }

  /** The scale that is in force for a picture: of the episode, fixed, or of this picture alone. */
  scaleFor(side, found) {
    const base = this.baseScale(side);
    if (!base) return null;
    const variable = side.variable(this.name);
    const chosen = this.channels ?? [...Array(variable.image[2]).keys()];
    const scale = { ...base, chosen, table: this.options.colormap };
    if (this.channels?.length === 1) scale.only = this.channels[0];
    let limits = this.options.limits;
    if (limits === "step") {
      const counted = scale.style === "rgb" ? [0, 1, 2] : scale.only !== undefined ? [scale.only] : scale.style === "channels" || scale.mean ? chosen : [0];
      limits = limitsOf(found.picture, counted, scale.mean);
    }
    if (Array.isArray(limits) && scale.style !== "categories") {
      scale.low = scale.low.map(() => limits[0]);
      scale.high = scale.high.map(() => limits[1]);
      if (scale.style === "gray") scale.style = "scale";
      if (scale.style === "scale" && !scale.table) scale.table = base.style === "gray" ? "gray" : "viridis";
    } else if (scale.style === "gray" && scale.table) scale.style = "scale";
    return scale;
  }

  // -- drawing

  draw(row) {
    for (const cell of this.cells) this.drawCell(cell, row);
    this.drawLegend();
  }

  drawCell(cell, row) {
    const { side } = cell;
    if (row >= side.n) return this.veil(cell, "ended", "");
    const found = side.picture(this.name, cell.place, row);
    if (found === undefined) return this.veil(cell, "absent", cell.place < 0 ? "not in this run" : "nothing yet");
    const scale = found && this.scaleFor(side, found);
    if (!found || !scale) {
      cell.root.classList.add("sl-waiting");
      cell.screen.setAttribute("data-row", "waiting");
      return this.drawNewest(cell, row);
    }
    cell.passed.length = 0;
    cell.root.classList.remove("sl-waiting");
    if (!found.there) return this.veil(cell, "absent", "absent");
    this.veil(cell, "", "");
    const told = paint(found.picture, scale, this.view.tables, this.view.palette, cell.image.data);
    this.put(cell);
    cell.screen.setAttribute("data-row", String(found.row));
    this.tellState(cell, found, scale, told);
    cell.found = found;
    if (cell.pointer) this.tellPixel(cell);
    return undefined;
  }

  /** While the picture at the cursor is on its way, show the newest that the cursor passed: a drag over what is far away moves too. */
  drawNewest(cell, row) {
    const { side, passed } = cell;
    if (passed.at(-1) !== row) passed.push(row);
    if (passed.length > 24) passed.shift();
    for (let i = passed.length - 2; i >= 0; i--) {
      const found = side.picture(this.name, cell.place, passed[i]);
      const scale = found?.there && this.scaleFor(side, found);
      if (!scale) continue;
      passed.splice(0, i + 1);
      this.veil(cell, "", "");
      cell.root.classList.add("sl-waiting");
      paint(found.picture, scale, this.view.tables, this.view.palette, cell.image.data);
      this.put(cell);
      return;
    }
  }

  /** Show what was painted; before, a cell is blank: black might be a picture. */
  put(cell) {
    cell.context.putImageData(cell.image, 0, 0);
    cell.root.classList.remove("sl-blank");
  }

  veil(cell, kind, text) {
    if (cell.shown === kind + text) return;
    cell.shown = kind + text;
    cell.root.classList.remove("sl-waiting");
    cell.root.classList.toggle("sl-absent", kind !== "");
    say(cell.screen.lastChild, kind ? text || kind : "");
    if (kind) {
      say(cell.state, "");
      cell.found = null;
      cell.screen.setAttribute("data-row", kind);
    }
  }

  tellState(cell, found, scale, told) {
    const { picture } = found;
    const some = (count, what) => (count === picture.pixels ? `all ${what}` : count ? `${count} ${what}` : "");
    const beyond = told.beyond && scale.style !== "categories" ? `${told.beyond} px beyond limits` : "";
    let text = [some(told.lost, "NaN"), some(told.infinite, "infinite"), beyond].filter(Boolean).join(", ");
    if (!text && scale.style === "scale" && isConstant(picture)) text = `all ${short(picture.at(0, 0))}`;
    say(cell.state, text);
    cell.state.title = text;
  }

  tellPixel(cell) {
    if (!cell.found || !cell.pointer) return;
    const { picture } = cell.found;
    const [x, y] = cell.pointer;
    if (x < 0 || y < 0 || x >= picture.width || y >= picture.height) return;
    const variable = cell.side.variable(this.name);
    const values = [];
    for (let c = 0; c < Math.min(picture.channels, 6); c++) {
      const value = picture.raw(y * picture.width + x, c);
      const named = variable.categories?.[Number(value)];
      values.push((variable.labels ? `${variable.labels[c]} ` : "") + (named ?? short(value, 6)));
    }
    if (picture.channels > 6) values.push("…");
    say(this.under, `y ${y}, x ${x}: ${values.join(", ")}`);
  }

  drawLegend() {
    const scales = this.sides.map((side) => this.baseScale(side));
    const scale = scales[0];
    if (!scale || !this.cells.length) return;
    const key = JSON.stringify([scales, this.options]);
    if (key === this.legendKey) return;
    this.legendKey = key;
    const apart = scales[1] && !(isAlike(scales[0], scales[1]) && this.isSameKind());
    const parts = apart
      ? scales.flatMap((each, i) => [make("span", { text: `${this.sides[i].letter}:` }), ...this.legendOf(each)])
      : this.legendOf(scale);
    this.legend.replaceChildren(...parts);
    const variable = this.view.about.variables[this.name];
    const every = variable.rows ? "the latest logged" : "";
    const sizes = [...new Set(this.sides.map((side) => side.variable(this.name).image.slice(0, 2).join(" × ")))];
    say(this.facts, [sizes.join(" and "), scale.note, scale.sampled > 1 ? `limits from 1 of ${scale.sampled} pictures` : "", every].filter(Boolean).join(" · "));
  }

  legendOf(scale) {
    const parts = [];
    const fixed = Array.isArray(this.options.limits) ? this.options.limits : null;
    if (scale.style === "channels" || scale.style === "categories") {
      const chosen = this.channels ?? scale.labels.map((_, i) => i);
      scale.labels.forEach((label, i) => {
        const color = this.view.palette[(scale.style === "channels" ? chosen[i] : i) % this.view.palette.length];
        const [low, high] = fixed ?? [scale.low[i], scale.high[i]];
        const span = scale.style === "categories" ? null : this.options.limits === "step" ? "limits of each picture" : `${short(low)} … ${short(high)}`;
        const below = span && low < 0 && this.options.limits !== "step" ? `${label} (${span}, dark below 0)` : label;
        parts.push(make("span", { class: "sl-key", title: span && `${label}: ${span}; 0 stays blank, less than 0 is a dark shade` }, make("i", { style: `background: rgb(${color})` }), make("span", { text: below })));
      });
    } else if (scale.style === "scale" || this.options.colormap || this.options.limits !== "episode") {
      const colors = this.view.tables[this.options.colormap ?? (scale.style === "gray" ? "gray" : "viridis")];
      const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255].map((i) => `rgb(${colors[i]})`).join(",");
      const limits = fixed ?? [scale.low[0], scale.high[0]];
      const told = this.options.limits === "step" ? ["least", "greatest"] : limits.map((v) => short(v));
      if (scale.style !== "rgb") parts.push(make("span", { class: "sl-bar-low", text: told[0] }), make("i", { class: "sl-bar", style: `background: linear-gradient(to right, ${stops})` }), make("span", { text: told[1] }));
      if (this.options.limits === "step") parts.push(make("span", { text: "of each picture" }));
    }
    return parts;
  }

  // -- choosing colours

  /** Open or close what chooses colours. Returns whether it was open. */
  openTuner(open) {
    const before = !this.tuner.hidden;
    if (open === before) return before;
    if (open) this.view.closeMenus();
    else if (this.tuner.contains(document.activeElement)) this.tune.focus({ preventScroll: true });
    this.tuner.hidden = !open;
    this.tune.setAttribute("aria-expanded", String(open));
    return before;
  }

  makeTuner() {
    const variable = this.view.about.variables[this.name];
    const options = this.options;
    const redraw = () => {
      this.legendKey = "";
      this.view.invalidate();
    };
    const maps = make("select", { "aria-label": `Colour map of ${this.name}`, on: { change: (e) => { options.colormap = e.target.value || null; redraw(); } } },
      make("option", { value: "", text: "as it is" }), ...Object.keys(this.view.tables).map((map) => make("option", { value: map, text: map })));
    maps.value = options.colormap ?? "";
    const low = make("input", { type: "number", step: "any", "aria-label": "lowest value", size: 6 });
    const high = make("input", { type: "number", step: "any", "aria-label": "highest value", size: 6 });
    const fixed = make("span", { class: "sl-fixed", hidden: !Array.isArray(options.limits) }, low, "–", high);
    if (Array.isArray(options.limits)) [low.value, high.value] = options.limits;
    const take = () => {
      if (low.value !== "" && high.value !== "" && Number(low.value) < Number(high.value)) {
        options.limits = [Number(low.value), Number(high.value)];
        redraw();
      }
    };
    low.addEventListener("change", take);
    high.addEventListener("change", take);
    const limits = make("select", { "aria-label": `Colour limits of ${this.name}`, on: { change: (e) => {
      fixed.hidden = e.target.value !== "fixed";
      const scale = this.cells.length ? this.baseScale(this.sides[0]) : null;
      if (e.target.value === "fixed" && scale) [low.value, high.value] = [scale.low[0], scale.high[0]];
      options.limits = e.target.value === "fixed" ? [Number(low.value), Number(high.value)] : e.target.value;
      redraw();
    } } }, make("option", { value: "episode", text: "of the episode" }), make("option", { value: "step", text: "of each step" }), make("option", { value: "fixed", text: "fixed" }));
    limits.value = Array.isArray(options.limits) ? "fixed" : options.limits;
    const size = make("select", { "aria-label": `Size of ${this.name}`, on: { change: (e) => {
      options.size = e.target.value;
      this.fit();
    } } }, ...["small", "medium", "large"].map((name) => make("option", { value: name, text: name })));
    size.value = options.size;
    const parts = [make("label", {}, "size ", size), make("label", {}, "colours ", maps), make("label", {}, "limits ", limits), fixed];
    const count = variable.image[2];
    if (count > 1 && count <= 64) {
      const boxes = [...Array(count).keys()].map((c) => make("label", { class: "sl-check" }, make("input", {
        type: "checkbox", value: String(c), checked: !options.channels || options.channels.includes(c),
        on: { change: () => {
          const on = [...this.tuner.querySelectorAll("input[type=checkbox]")].filter((box) => box.checked).map((box) => Number(box.value));
          options.channels = on.length === 0 || on.length === count ? null : on;
          redraw();
        } },
      }), variable.labels?.[c] ?? `channel ${c}`));
      parts.push(make("fieldset", {}, make("legend", { text: "channels" }), ...boxes));
    }
    return make("div", { class: "sl-tuner", hidden: true }, ...parts);
  }
}

/** Whether two sides can have one scale: the same style, and the same channels or names. */
function isAlike(one, other) {
  return one.style === other.style && one.low.length === other.low.length && String(one.labels) === String(other.labels);
}

/** Limits of two sides; null is no limit yet. */
function together(pick, one, other) {
  return one.map((limit, i) => (limit === null ? other[i] : other[i] === null ? limit : pick(limit, other[i])));
}

function isConstant(picture) {
  const first = picture.at(0, 0);
  for (let i = 0; i < picture.pixels; i++) for (let c = 0; c < picture.channels; c++) if (picture.at(i, c) !== first) return false;
  return true;
}
