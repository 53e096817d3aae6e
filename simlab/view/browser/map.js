// A map: where the agents are, where they came from, over the latest picture of the world where the two fit.

import { make, say } from "./base.js";
import { paint } from "./paint.js";

const TRAIL = 60;
const MOST_TRAILS = 64;

export class MapPanel {
  constructor(view, panel) {
    this.view = view;
    this.place = panel.options.place ?? view.about.place;
    this.canvas = make("canvas", { role: "img", "aria-label": "Map of the agents" });
    this.facts = make("span", { class: "sl-facts" });
    this.screen = make("div", { class: "sl-map" }, this.canvas);
    this.root = make("section", { class: "sl-panel", "aria-label": "Map" },
      make("header", { class: "sl-panel-head" }, make("span", { class: "sl-title", text: "map" }), this.facts), this.screen);
    this.background = this.findBackground();
    this.bounds = null;
    this.met = null;
    this.paper = document.createElement("canvas");
  }

  findBackground() {
    const found = Object.entries(this.view.about.variables).find(([, v]) => v.dim === null && v.layout);
    return found ? found[0] : null;
  }

  /** Everybody has a place on the map, chosen or not. */
  everybody(side) {
    const variable = side.variable(this.place?.[0]);
    if (!variable || variable.dim === null) return [];
    const population = side.about.populations.find((p) => p.dim === variable.dim);
    return population.agents.slice(0, 512).map((_, i) => i);
  }

  wants(row, direction, list) {
    for (const side of this.view.sides) {
      if (!this.place || !side.variable(this.place[0])) continue;
      const at = Math.min(row, side.n - 1);
      side.tilesBetween(this.place[0], this.everybody(side), 0, Math.max(0, at - TRAIL), at, list, 4);
      if (this.background && side.variable(this.background)) list.push(...side.wantAround(this.background, 0, at, direction));
    }
  }

  draw(row) {
    if (!this.place) {
      say(this.facts, "no positions in this run");
      return;
    }
    const side = this.view.sides[0];
    const name = this.place[0];
    const everybody = this.everybody(side);
    const at = Math.min(row, side.n - 1);
    const tiles = side.tilesBetween(name, everybody, 0, Math.max(0, at - TRAIL), at, null, 0);
    if (!tiles.length) return;
    const found = this.background ? side.picture(this.background, 0, at) : null;
    const world = found?.there ? found.picture : null;
    const known = this.grow(tiles, world);
    const wide = this.screen.clientWidth || 240;
    const [x0, y0, x1, y1] = this.bounds;
    const high = Math.max(60, Math.min(260, Math.round((wide * (y1 - y0)) / (x1 - x0))));
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
    const scale = Math.min(wide / (x1 - x0), high / (y1 - y0));
    const px = (x) => (wide - scale * (x1 - x0)) / 2 + (x - x0) * scale;
    const py = (y) => (known ? (y - y0) * scale : high - (y - y0) * scale);
    if (known) this.drawWorld(context, world, side, px, py);
    this.drawPeople(context, side, tiles, everybody, at, px, py, known ? world : null);
    this.drawOthers(context, row, px, py);
    this.canvas.setAttribute("data-row", String(at));
  }

  /** Let the bounds hold everything that was met. Returns whether the world's picture is the ground. */
  grow(tiles, world) {
    let [x0, y0, x1, y1] = this.met ?? [Infinity, Infinity, -Infinity, -Infinity];
    const [, ix, iy] = this.place;
    for (const tile of tiles) {
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
    const [name, ix, iy] = this.place;
    for (const side of this.view.sides.slice(1)) {
      const variable = side.variable(name);
      if (!variable || row >= side.n) continue;
      const everybody = this.everybody(side);
      for (const person of this.view.people(variable.dim)) {
        const values = side.valuesAt(name, everybody, side.place(variable.dim, person.label), row, null);
        if (!values) continue;
        context.strokeStyle = person.color;
        context.lineWidth = 2;
        context.beginPath();
        context.arc(px(Number(values[ix])), py(Number(values[iy])), 6.5, 0, 2 * Math.PI);
        context.stroke();
      }
    }
  }

  drawPeople(context, side, tiles, everybody, at, px, py, world) {
    const [name, ix, iy] = this.place;
    const variable = side.variable(name);
    const chosen = new Map(this.view.people(variable.dim).map((p) => [side.place(variable.dim, p.label), p]));
    let here = 0;
    const spot = (index, row) => {
      const tile = tiles.find((t) => row >= t.first && row < t.first + t.rows);
      if (!tile || !tile.there[index * tile.rows + row - tile.first]) return null;
      const start = (index * tile.rows + row - tile.first) * tile.shape[2];
      const [x, y] = [Number(tile.data[start + ix]), Number(tile.data[start + iy])];
      return Number.isFinite(x) && Number.isFinite(y) ? [x, y] : null;
    };
    const order = everybody.filter((i) => !chosen.has(i)).concat(everybody.filter((i) => chosen.has(i)));
    for (const index of order) {
      const person = chosen.get(index);
      const now = spot(index, at);
      if (now) here++;
      const color = person?.color ?? this.view.faint;
      if (now && (person || everybody.length <= MOST_TRAILS)) {
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
      if (!now) continue;
      context.fillStyle = color;
      context.strokeStyle = this.view.back;
      context.lineWidth = 1;
      context.beginPath();
      context.arc(px(now[0]), py(now[1]), person ? 4.5 : 2.5, 0, 2 * Math.PI);
      context.fill();
      if (person) context.stroke();
    }
    say(this.facts, `${here} of ${everybody.length} agents are here`);
  }
}
