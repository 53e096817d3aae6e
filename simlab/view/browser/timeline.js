// The episode as one line: where the cursor is, what happened, what is here already; drag it, click it.

import { clamp, make, say } from "./base.js";

export const PAD = 6;
const STRIP = 26;
const SIGNS = { end: "#8a9099", birth: "#009e73", death: "#d55e00", NaN: "#cc79a7", reward: "#e69f00" };
const OTHER = ["#0072b2", "#56b4e9", "#8c5614", "#6b4e9b"];

export class Timeline {
  constructor(view) {
    this.view = view;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.range = make("input", {
      type: "range", class: "sl-range", min: 0, max: 0, step: 1, value: 0, "aria-label": "Step of the episode",
      on: { input: () => view.goTo(Number(this.range.value), "drag") },
    });
    this.box = make("div", { class: "sl-timeline" }, this.canvas, this.range);
    this.now = make("output", { class: "sl-now", "aria-live": "off" });
    this.end = make("span", { class: "sl-end" });
    this.elements = [this.now, this.box, this.end];
    this.drawn = "";
    this.range.addEventListener("pointermove", (event) => this.hint(event));
    this.range.addEventListener("pointerleave", () => this.range.removeAttribute("title"));
  }

  /** Say what happened at the mark under the pointer. */
  hint(event) {
    const x = event.clientX - this.range.getBoundingClientRect().left;
    const near = this.view.events.filter(([kind, row]) => (!this.view.kind || kind === this.view.kind) && Math.abs(this.xOf(row) - x) < 3);
    const text = near.slice(0, 4).map(([, row, what]) => `step ${this.view.stepOf(row)}: ${what}`).join("\n");
    if (this.range.title !== text) this.range.title = text;
  }

  colorOf(kind) {
    if (SIGNS[kind]) return SIGNS[kind];
    const others = [...new Set(this.view.events.map((e) => e[0]))].filter((k) => !SIGNS[k]);
    return OTHER[Math.max(0, others.indexOf(kind)) % OTHER.length];
  }

  draw(row) {
    const { view } = this;
    const last = Math.max(0, view.n - 1);
    if (this.range.max !== String(last)) this.range.max = String(last);
    if (this.range.value !== String(row)) this.range.value = String(row);
    const step = view.n ? view.stepOf(row) : "–";
    say(this.now, `step ${step}`);
    say(this.end, view.n ? `of ${view.stepOf(last)}` : "no steps");
    this.range.setAttribute("aria-valuetext", `step ${step} of ${view.n ? view.stepOf(last) : 0}`);
    const key = JSON.stringify([view.plotWidth, view.n, view.theme, view.window, view.events.length, view.kind, view.bookmarks.length, view.difference, view.k, view.generation]);
    if (key !== this.drawn && view.plotWidth > 0) {
      this.drawn = key;
      this.drawStrip();
    }
  }

  xOf(row) {
    return PAD + (row / Math.max(1, this.view.n - 1)) * (this.view.plotWidth - 2 * PAD);
  }

  drawStrip() {
    const { view, canvas } = this;
    const wide = view.plotWidth;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(STRIP * ratio);
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${STRIP}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const middle = STRIP / 2;
    context.fillStyle = view.rule;
    context.fillRect(PAD, middle - 1.5, wide - 2 * PAD, 3);
    const [from, to] = view.window;
    if (from > 0 || to < view.n - 1) {
      context.fillStyle = view.faint;
      context.fillRect(this.xOf(from), middle - 3, Math.max(2, this.xOf(to) - this.xOf(from)), 6);
    }
    for (const [kind, row] of view.events) {
      if (view.kind && view.kind !== kind) continue;
      context.fillStyle = this.colorOf(kind);
      context.fillRect(Math.round(this.xOf(row)) - 0.75, kind === "birth" ? middle - 9 : kind === "death" ? middle + 3 : middle - 8, 1.5, kind === "birth" || kind === "death" ? 6 : 16);
    }
    if (view.difference?.row !== undefined && view.difference.row !== null) {
      context.fillStyle = view.accent;
      const x = this.xOf(view.difference.row);
      context.beginPath();
      context.moveTo(x - 4, 0);
      context.lineTo(x + 4, 0);
      context.lineTo(x, 7);
      context.fill();
    }
    context.fillStyle = view.accent;
    for (const mark of view.bookmarks) {
      if (mark.episode !== view.k) continue;
      const x = this.xOf(clamp(mark.step, 0, view.n - 1));
      context.beginPath();
      context.moveTo(x, STRIP - 8);
      context.lineTo(x + 3.5, STRIP);
      context.lineTo(x - 3.5, STRIP);
      context.fill();
    }
  }
}

/** Steps below the series. */
export class Axis {
  constructor(view) {
    this.view = view;
    this.ticks = make("div", {});
    this.root = make("div", { class: "sl-grid sl-axis", "aria-hidden": "true" }, make("div", {}, make("span", { text: "step" })), this.ticks, make("div", {}));
    this.drawn = "";
  }

  draw() {
    const { view } = this;
    const key = JSON.stringify([view.window, view.plotWidth, view.k, view.n]);
    if (key === this.drawn || !view.plotWidth || !view.n) return;
    this.drawn = key;
    const [from, to] = view.window;
    const wanted = Math.max(2, Math.floor(view.plotWidth / 110));
    const rough = Math.max(1, (to - from) / wanted);
    const power = 10 ** Math.floor(Math.log10(rough));
    const every = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough));
    const marks = [];
    for (let row = Math.ceil(from / every) * every; row <= to; row += every) {
      marks.push(make("span", { text: view.stepOf(row).toLocaleString("en"), style: `left: ${Math.round(view.xOf(row))}px` }));
    }
    this.ticks.replaceChildren(...marks);
    this.root.hidden = !view.series.length;
  }
}
