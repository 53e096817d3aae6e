// A map: where the agents are, where they came from, over the latest picture of the world where the two fit.

import { make, say, short } from "./base.js";
import { paint } from "./paint.js";

const TRAIL = 60;
const MOST_TRAILS = 64;
const MOST_PEOPLE = 512;
const LEFT = 40; // what the numbers beside the map need
const RULER = 30;

export class MapPanel {
  constructor(view, panel) {
    this.view = view;
    this.places = panel.options.places ?? [];
    this.canvas = make("canvas", { role: "img", "aria-label": "Map of the agents" });
    this.facts = make("span", { class: "sl-facts" });
    this.screen = make("div", { class: "sl-map" }, this.canvas);
    this.root = make("section", { class: "sl-panel", "aria-label": "Map" },
      make("header", { class: "sl-panel-head" }, make("span", { class: "sl-title", text: "map" }), this.facts), this.screen);
    this.background = this.findBackground();
    this.bounds = null;
    this.met = null;
    this.paper = document.createElement("canvas");
    this.axes = this.nameAxes();
  }

  findBackground() {
    const found = Object.entries(this.view.about.variables).find(([, v]) => v.dim === null && v.layout);
    return found ? found[0] : null;
  }

  /** What the axes are called: the channels of the first variable, and its unit. */
  nameAxes() {
    const [name, ...numbers] = this.places[0] ?? [];
    const variable = this.view.about.variables[name];
    if (!variable) return [];
    return numbers.map((number) => [variable.labels?.[number] ?? `${name} [${number}]`, variable.unit ? `(${variable.unit})` : ""].join(" ").trim());
  }

  /** Everybody of a population has a place on the map, chosen or not; of very many the chosen ones and the first. */
  everybody(side, name) {
    const variable = side.variable(name);
    if (!variable || variable.dim === null) return [];
    const count = side.about.populations.find((p) => p.dim === variable.dim).agents.length;
    const shown = new Set(Array.from({ length: Math.min(count, MOST_PEOPLE) }, (_, i) => i));
    const chosen = new Set(this.view.people(variable.dim).map((p) => side.place(variable.dim, p.label)).filter((i) => i >= 0));
    for (const place of chosen) shown.add(place);
    for (let last = MOST_PEOPLE - 1; shown.size > MOST_PEOPLE && last >= 0; last--) if (!chosen.has(last)) shown.delete(last);
    return [...shown].sort((a, b) => a - b);
  }

  wants(row, direction, list) {
    for (const side of this.view.sides) {
      const at = Math.min(row, side.n - 1);
      for (const [name] of this.places) {
        if (side.variable(name)) side.tilesBetween(name, this.everybody(side, name), 0, Math.max(0, at - TRAIL), at, list, 4);
      }
      if (this.places.length && this.background && side.variable(this.background)) list.push(...side.wantAround(this.background, 0, at, direction));
    }
  }

  draw(row) {
    if (!this.places.length) {
      say(this.facts, "no positions in this run");
      return;
    }
    const side = this.view.sides[0];
    const at = Math.min(row, side.n - 1);
    const crowds = this.places.filter(([name]) => side.variable(name)).map((place) => this.crowd(side, place, at));
    if (!crowds.some((crowd) => crowd.tiles.length)) return;
    const found = this.background ? side.picture(this.background, 0, at) : null;
    const world = found?.there ? found.picture : null;
    const known = this.grow(crowds, world);
    const wide = this.screen.clientWidth || 240;
    const [x0, y0, x1, y1] = this.bounds;
    const inner = wide - LEFT - 8;
    const plain = Math.max(60, Math.min(260, Math.round((inner * (y1 - y0)) / (x1 - x0))));
    const high = plain + RULER + 6;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(wide * ratio) || this.canvas.height !== Math.round(high * ratio)) {
      this.canvas.width = Math.round(wide * ratio);
      this.canvas.height = Math.round(high * ratio);
      this.canvas.style.height = `${high}px`;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.view.back;
    context.fillRect(0, 0, wide, high);
    const scale = Math.min(inner / (x1 - x0), plain / (y1 - y0));
    const [across, up] = [scale * (x1 - x0), scale * (y1 - y0)];
    const left = LEFT + (inner - across) / 2;
    const top = 6 + (plain - up) / 2;
    const px = (x) => left + (x - x0) * scale;
    const py = (y) => (known ? top + (y - y0) * scale : top + up - (y - y0) * scale);
    this.drawAxes(context, [left, top, across, up], px, py);
    if (known) this.drawWorld(context, world, side, px, py);
    const told = crowds.map((crowd) => this.drawPeople(context, side, crowd, at, px, py, known ? world : null));
    this.drawOthers(context, row, px, py);
    say(this.facts, told.join(" · "));
    if (this.facts.title !== this.facts.textContent) this.facts.title = this.facts.textContent;
    this.canvas.setAttribute("data-row", String(at));
  }

  /** The agents of one population: who is drawn, what is here of them, and where x and y lie in it. */
  crowd(side, [name, x, y], at) {
    const variable = side.variable(name);
    const channels = variable.channels ?? [];
    const everybody = this.everybody(side, name);
    const tiles = side.tilesBetween(name, everybody, 0, Math.max(0, at - TRAIL), at, null, 0);
    return { variable, everybody, tiles, ix: channels.indexOf(x), iy: channels.indexOf(y) };
  }

  /** Let the bounds hold everything that was met. Returns whether the world's picture is the ground. */
  grow(crowds, world) {
    let [x0, y0, x1, y1] = this.met ?? [Infinity, Infinity, -Infinity, -Infinity];
    for (const { tiles, ix, iy } of crowds) for (const tile of tiles) {
      const [agents, points, channels] = tile.shape;
      for (let i = 0; i < agents * points; i++) {
        if (!tile.there[i]) continue;
        const x = Number(tile.data[i * channels + ix]);
        const y = Number(tile.data[i * channels + iy]);
        if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
        x0 = Math.min(x0, x);
        x1 = Math.max(x1, x);
        y0 = Math.min(y0, y);
        y1 = Math.max(y1, y);
      }
    }
    this.met = [x0, y0, x1, y1];
    if (world && x0 >= -0.5 && y0 >= -0.5 && x1 <= world.width - 0.5 && y1 <= world.height - 0.5) {
      this.bounds = [-0.5, -0.5, world.width - 0.5, world.height - 0.5];
      return true;
    }
    if (!(x0 <= x1)) [x0, y0, x1, y1] = [0, 0, 1, 1];
    const pad = 0.04 * Math.max(x1 - x0, y1 - y0, 1e-9) || 1;
    this.bounds = [x0 - pad, y0 - pad, x1 + pad, y1 + pad];
    return false;
  }

  /** A frame, a few round numbers along two of its sides, and what they count. */
  drawAxes(context, [left, top, across, up], px, py) {
    const { view } = this;
    const [x0, y0, x1, y1] = this.bounds;
    context.strokeStyle = view.rule;
    context.lineWidth = 1;
    context.strokeRect(Math.round(left) + 0.5, Math.round(top) + 0.5, Math.round(across), Math.round(up));
    context.fillStyle = view.faint;
    context.font = `11px ${view.font}`;
    context.beginPath();
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const x of ticks(x0, x1, Math.max(2, across / 70))) {
      context.moveTo(Math.round(px(x)) + 0.5, top + up);
      context.lineTo(Math.round(px(x)) + 0.5, top + up + 4);
      context.fillText(short(x), px(x), top + up + 5);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const y of ticks(y0, y1, Math.max(2, up / 50))) {
      context.moveTo(left - 4, Math.round(py(y)) + 0.5);
      context.lineTo(left, Math.round(py(y)) + 0.5);
      context.fillText(short(y), left - 6, py(y), LEFT - 8);
    }
    context.stroke();
    const [x, y] = this.axes;
    context.textBaseline = "top";
    context.fillText(`→ ${x}   ${py(1) > py(0) ? "↓" : "↑"} ${y}`, left + across, top + up + 18, across);
  }

  drawWorld(context, world, side, px, py) {
    const scale = side.scale(this.background, null);
    if (!scale) return;
    this.paper.width = world.width;
    this.paper.height = world.height;
    const ink = this.paper.getContext("2d");
    const image = ink.createImageData(world.width, world.height);
    paint(world, { ...scale, chosen: [...Array(world.channels).keys()], table: null }, this.view.tables, this.view.palette, image.data);
    ink.putImageData(image, 0, 0);
    context.globalAlpha = this.view.theme === "dark" ? 0.35 : 0.45;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.paper, px(-0.5), py(-0.5), px(world.width - 0.5) - px(-0.5), py(world.height - 0.5) - py(-0.5));
    context.globalAlpha = 1;
  }

  /** Where the chosen agents of the other side are: rings instead of dots. */
  drawOthers(context, row, px, py) {
    for (const side of this.view.sides.slice(1)) for (const [name, x, y] of this.places) {
      const variable = side.variable(name);
      if (!variable || row >= side.n) continue;
      const channels = variable.channels ?? [];
      const everybody = this.everybody(side, name);
      for (const person of this.view.people(variable.dim)) {
        const values = side.valuesAt(name, everybody, everybody.indexOf(side.place(variable.dim, person.label)), row, null);
        if (!values) continue;
        context.strokeStyle = person.color;
        context.lineWidth = 2;
        context.beginPath();
        context.arc(px(Number(values[channels.indexOf(x)])), py(Number(values[channels.indexOf(y)])), 6.5, 0, 2 * Math.PI);
        context.stroke();
      }
    }
  }

  /** Draw one population. Returns how many of it are here, in words. */
  drawPeople(context, side, { variable, everybody, tiles, ix, iy }, at, px, py, world) {
    const chosen = new Map(this.view.people(variable.dim).map((p) => [side.place(variable.dim, p.label), p]));
    let here = 0;
    const spot = (index, row) => {
      const tile = tiles.find((t) => row >= t.first && row < t.first + t.rows);
      if (!tile || !tile.there[index * tile.rows + row - tile.first]) return null;
      const start = (index * tile.rows + row - tile.first) * tile.shape[2];
      const [x, y] = [Number(tile.data[start + ix]), Number(tile.data[start + iy])];
      return Number.isFinite(x) && Number.isFinite(y) ? [x, y] : null;
    };
    const places = everybody.map((place, index) => ({ index, person: chosen.get(place) }));
    for (const { index, person } of [...places.filter((p) => !p.person), ...places.filter((p) => p.person)]) {
      const now = spot(index, at);
      if (!now) continue;
      here++;
      const color = person?.color ?? this.view.faint;
      if (person || everybody.length <= MOST_TRAILS) {
        context.strokeStyle = color;
        context.lineWidth = person ? 1.6 : 0.7;
        context.globalAlpha = person ? 0.85 : 0.5;
        context.beginPath();
        let last = null;
        for (let row = Math.max(0, at - TRAIL); row <= at; row++) {
          const next = spot(index, row);
          const jump = last && next && world && (Math.abs(next[0] - last[0]) > world.width / 2 || Math.abs(next[1] - last[1]) > world.height / 2);
          if (next) context[last && !jump ? "lineTo" : "moveTo"](px(next[0]), py(next[1]));
          last = next;
        }
        context.stroke();
        context.globalAlpha = 1;
      }
      context.fillStyle = color;
      context.strokeStyle = this.view.back;
      context.lineWidth = 1;
      context.beginPath();
      context.arc(px(now[0]), py(now[1]), person ? 4.5 : 2.5, 0, 2 * Math.PI);
      context.fill();
      if (person) context.stroke();
    }
    const total = side.about.populations.find((p) => p.dim === variable.dim).agents.length;
    const who = this.places.length > 1 ? `${variable.dim}: ` : "";
    if (total > everybody.length) return `${who}${here} here of ${everybody.length} drawn, ${total} in all`;
    return `${who}${here} of ${total} ${who ? "here" : "agents are here"}`;
  }
}

/** Round numbers between two, not many more than wanted. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough * 0.999) ?? rough;
  const out = [];
  for (let i = Math.ceil(low / every); i * every <= high && out.length < 20; i++) out.push(Number((i * every).toPrecision(12)));
  return out;
}
