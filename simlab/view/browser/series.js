// Series: one low row for each channel, a line for each agent; what agents did as steps with names. Drawn once; only the cursor moves.

import { clamp, inert, make, say, short } from "./base.js";

const LOW_ROW = 40;
const LANE = 14;
const MOST_VALUES = 4;
const MOST_CHANNELS = 24;

/** The rows of a panel: one for each channel that is shown. */
export function seriesRows(view, panel) {
  const variable = view.about.variables[panel.variable];
  if (panel.kind === "steps") return [new SeriesRow(view, panel, variable.channels[0], variable.channels.slice(0, 1), true)];
  const chosen = panel.options.channels ?? variable.channels.slice(0, MOST_CHANNELS);
  const rows = chosen.map((channel) => new SeriesRow(view, panel, channel, chosen, false));
  const count = variable.shape.reduce((a, b) => a * b, 1);
  if (chosen.length < count && !panel.options.channels) rows.push(fewer(panel.variable, chosen.length, count));
  return rows;
}

/** Say that there are more channels than rows. */
function fewer(name, shown, count) {
  const text = `${shown} of ${count} channels of ${name}; for others: panels=[Panel("lines", "${name}", channels=[${shown}, …])]`;
  const line = make("div", { class: "sl-fewer", text, title: text });
  return { elements: [line], wants() {}, draw() {} };
}

/** A name that may go over several lines where its words end. */
function breakable(name) {
  return name.split(/(?<=[._])/).flatMap((part) => [inert(part), make("wbr")]);
}

export class SeriesRow {
  constructor(view, panel, channel, asked, steps) {
    Object.assign(this, { view, panel, channel, asked, steps }); // the rows of a panel ask for the same tiles
    this.name = panel.variable;
    const variable = view.about.variables[this.name];
    this.at = asked.indexOf(channel);
    this.whole = /^u?int|bool/.test(variable.dtype);
    const label = variable.shape.length ? variable.labels?.[channel] ?? `[${channel}]` : "";
    this.names = steps ? this.stepNames(variable) : null;
    this.height = this.names ? Math.max(LOW_ROW, LANE * this.names.length + 6) : LOW_ROW;
    this.canvas = make("canvas", { role: "img", "aria-label": `${this.name} ${label} over the episode` });
    this.plot = make("div", { class: "sl-plot" }, this.canvas);
    this.values = make("div", { class: "sl-values" });
    this.spans = [];
    const about = [variable.about, variable.unit].filter(Boolean).join(" · ");
    this.head = make("div", { class: "sl-label", title: [this.name, label, about].filter(Boolean).join(" · ") },
      make("span", { class: "sl-label-name" }, ...breakable(label || this.name)), make("span", { class: "sl-label-more", text: label ? this.name : variable.unit }));
    this.ends = [make("span"), make("span")];
    if (!steps || !this.names) this.head.append(make("div", { class: "sl-limits", "aria-hidden": "true" }, ...this.ends));
    this.elements = [this.head, this.plot, this.values];
    this.plot.style.height = `${this.height}px`;
    this.limits = null;
    this.drawn = "";
  }

  stepNames(variable) {
    if (variable.categories) return variable.categories;
    return variable.dtype === "bool" ? ["false", "true"] : null;
  }

  lines() {
    const variable = this.view.about.variables[this.name];
    const people = variable.dim === null ? [{ label: null, color: this.view.ink }] : this.view.people(variable.dim);
    const out = [];
    for (const side of this.view.sides) {
      if (!side.has(this.name, variable)) continue;
      const channels = side.channelsLike(this.name, this.asked, variable.labels);
      if (channels[this.at] === -1) continue;
      const asked = channels.filter((channel) => channel >= 0);
      const known = people.map((p) => ({ ...p, place: side.place(variable.dim, p.label) })).filter((p) => p.place >= 0);
      const agents = variable.dim === null ? [] : known.map((p) => p.place);
      if (known.length) out.push({ side, agents, people: known, asked, at: asked.indexOf(channels[this.at]) });
    }
    return out;
  }

  /** Ask for what the plot and the values at the cursor need. */
  wants(list, row) {
    for (const line of this.lines()) {
      this.tilesFor(line, list);
      line.side.valuesAt(this.name, line.agents, 0, Math.min(row, line.side.n - 1), list, line.asked);
    }
  }

  /** The level whose points are about as many as pixels. */
  levelFor(side, from, to) {
    const wide = Math.max(100, this.view.plotWidth);
    const rows = side.rows.get(this.name);
    const span = rows ? ((to - from) * rows.count) / Math.max(1, side.n) : to - from;
    return span <= 2 * wide || span <= 2048 ? 0 : 2 * Math.max(1, Math.floor(Math.log2(span / wide) / 2));
  }

  tilesFor({ side, agents, asked }, list) {
    const own = side.rows.get(this.name);
    const count = side.variable(this.name).count;
    const [from, to] = this.view.window;
    const place = (row) => (own ? Math.max(0, own.before(row)) : row);
    const parts = [[0, count - 1, this.levelFor(side, 0, side.n)]];
    if (from > 0 || to < this.view.n - 1) parts.push([place(from) - 1, place(to) + 1, this.levelFor(side, from, to)]);
    return parts.map(([a, b, level], i) => ({ level, tiles: side.tilesBetween(this.name, agents, level, Math.max(0, a), b, list, i ? 9 : 10, asked) }));
  }

  // -- drawing

  draw(row) {
    const lines = this.lines();
    const parts = lines.map((line) => this.tilesFor(line, null));
    const key = JSON.stringify([this.view.window, this.view.plotWidth, this.view.theme, this.view.n, parts.map((p) => p.map((q) => [q.level, q.tiles.map((t) => [t.first, t.rows])])), lines.map((l) => l.people.map((p) => [p.label, p.color]))]);
    if (key !== this.drawn && this.view.plotWidth > 0) {
      this.drawn = key;
      this.drawPlot(lines, parts);
    }
    this.drawValues(lines, row);
  }

  drawPlot(lines, parts) {
    const { view, canvas } = this;
    const wide = view.plotWidth;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(this.height * ratio);
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${this.height}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    this.findLimits(lines, parts);
    if (this.names) this.drawLanes(context, wide);
    else this.drawFrame(context, wide);
    const total = lines.reduce((sum, line) => sum + line.people.length, 0);
    let lane = 0;
    lines.forEach((line, i) => {
      const best = parts[i].at(-1).tiles.length ? parts[i].at(-1) : parts[i][0];
      line.people.forEach((person, index) => {
        context.globalAlpha = total > 8 ? 0.7 : 1;
        context.setLineDash(line.side.number ? [4, 3] : []);
        if (this.names) this.drawSteps(context, best, line, index, person.color, lane++, total);
        else this.drawLine(context, best, line, index, person.color);
      });
    });
    context.setLineDash([]);
    context.globalAlpha = 1;
    if (!lines.length) this.note(context, wide, view.about.variables[this.name].dim === null ? "not in this run" : "none of these agents is chosen");
    else if (!this.limits && !this.names && parts.flat().some((p) => p.tiles.length)) this.note(context, wide, "no finite number");
    this.drawDifference(context);
  }

  findLimits(lines, parts) {
    let low = Infinity;
    let high = -Infinity;
    parts.forEach(([{ level, tiles }], n) => {
      const { at } = lines[n];
      for (const tile of tiles) {
        if (tile.text) continue;
        const stride = tile.shape[2] * (level ? 2 : 1);
        const points = tile.shape[0] * tile.shape[1];
        for (let i = 0; i < points; i++) {
          if (!level && !tile.there[i]) continue;
          for (let end = 0; end < (level ? 2 : 1); end++) {
            const v = Number(tile.data[i * stride + at * (level ? 2 : 1) + end]);
            if (Number.isFinite(v)) {
              if (v < low) low = v;
              if (v > high) high = v;
            }
          }
        }
      }
    });
    this.limits = low <= high ? [low, high] : null;
  }

  y(value) {
    const [low, high] = this.limits ?? [0, 1];
    const span = high - low;
    const part = span > 0 ? (value - low) / span : 0.5;
    return this.height - 5 - clamp(part, -0.05, 1.05) * (this.height - 10);
  }

  drawFrame(context, wide) {
    context.strokeStyle = this.view.rule;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, this.height - 0.5);
    context.lineTo(wide, this.height - 0.5);
    if (this.limits && this.limits[0] < 0 && this.limits[1] > 0) {
      const zero = Math.round(this.y(0)) + 0.5;
      context.moveTo(0, zero);
      context.lineTo(wide, zero);
    }
    context.stroke();
    const [low, high] = this.limits ?? [null, null];
    say(this.ends[0], high === null ? "" : short(high, 3));
    say(this.ends[1], low === null || low === high ? "" : short(low, 3));
  }

  drawLanes(context, wide) {
    const each = (this.height - 6) / this.names.length;
    context.fillStyle = this.view.dim;
    for (let i = 0; i < this.names.length; i += 2) context.fillRect(0, this.laneY(i) - each / 2, wide, each);
    if (!this.laneNames) {
      this.laneNames = make("div", { class: "sl-lanes", "aria-hidden": "true" }, ...this.names.map((name) => make("span", { text: name, title: name })));
      this.head.append(this.laneNames);
    }
  }

  laneY(value) {
    return 3 + (value + 0.5) * ((this.height - 6) / this.names.length);
  }

  x(side, ownRow) {
    const own = side.rows.get(this.name);
    return this.view.xOf(own ? own.at(ownRow) : ownRow);
  }

  drawLine(context, { level, tiles }, line, index, color) {
    context.strokeStyle = color;
    context.fillStyle = color;
    context.lineWidth = 1.25;
    context.lineJoin = "round";
    const every = 2 ** level;
    context.font = `11px ${this.view.font}`;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    let open = false;
    let alone = null;
    let told = -Infinity;
    let column = -1;
    let run = false;
    const stroke = () => {
      context.stroke();
      if (alone) context.fillRect(alone[0] - 1, alone[1] - 1, 2.5, 2.5); // a value without neighbours is a point
    };
    for (const tile of tiles) {
      if (tile.text || index >= tile.shape[0]) continue;
      const [, points, channels] = tile.shape;
      for (let i = 0; i < points; i++) {
        const base = (index * points + i) * channels + line.at;
        const low = level ? tile.data[2 * base] : Number(tile.data[base]);
        const high = level ? tile.data[2 * base + 1] : low;
        if ((!level && !tile.there[index * points + i]) || Number.isNaN(low)) {
          if (open) stroke();
          open = false;
          continue;
        }
        const x = this.x(line.side, tile.first + (level ? Math.min(i * every + every / 2, tile.rows - 1) : i));
        const beyond = [low, high].filter((end) => !Number.isFinite(end));
        for (const end of new Set(beyond)) {
          const top = end > 0;
          if (Math.round(x) !== column) context.fillRect(Math.round(x) - 0.75, top ? 0 : this.height - 3, 1.5, 3); // one in each column of pixels
          if (!run && x - told > 16) context.fillText(top ? "∞" : "−∞", Math.max(8, x), top ? 13 : this.height - 5); // and a word where they begin
          if (!run) told = x;
        }
        if (beyond.length) column = Math.round(x);
        run = beyond.length > 0;
        const ends = [low, high].filter(Number.isFinite);
        if (!ends.length) {
          if (open) stroke();
          open = false;
          continue;
        }
        const y = this.y(ends[0]);
        if (!open) {
          context.beginPath();
          context.moveTo(x, y);
          alone = [x, y];
          open = true;
        } else {
          context.lineTo(x, y);
          alone = null;
        }
        if (ends.length > 1 && high !== low) context.lineTo(x, this.y(high));
      }
    }
    if (open) stroke();
  }

  drawSteps(context, { level, tiles }, line, index, color, lane, lanes) {
    const high = (this.height - 6) / this.names.length - 3;
    const each = Math.max(1.5, high / lanes);
    context.fillStyle = line.side.number ? dashes(context, color) : color;
    const every = 2 ** level;
    for (const tile of tiles) {
      if (index >= tile.shape[0]) continue;
      const [, points, channels] = tile.shape;
      const wide = Math.max(1, this.view.xOf(every) - this.view.xOf(0) - (every === 1 && this.view.xOf(1) - this.view.xOf(0) > 4 ? 1 : 0));
      for (let i = 0; i < points; i++) {
        const base = (index * points + i) * channels + line.at;
        if (!level && !tile.there[index * points + i]) continue;
        const least = level ? tile.data[2 * base] : Number(tile.data[base]);
        const most = level ? tile.data[2 * base + 1] : least;
        if (Number.isNaN(least)) continue;
        const x = this.x(line.side, tile.first + i * every);
        for (const value of this.valuesOf(tile.occurred?.[base] ?? 0, least, most)) {
          context.fillRect(x - (level ? 0 : wide / 2), this.laneY(value) - high / 2 + lane * (high / lanes), wide, each);
        }
      }
    }
  }

  /** Which values occurred, by their bits; of values without one, the least and the greatest are known. */
  valuesOf(bits, least, most) {
    const found = new Set([least, most]);
    for (let value = 0; bits; value++, bits >>>= 1) if (bits & 1) found.add(value);
    return found;
  }

  drawDifference(context) {
    const row = this.view.difference?.row;
    if (row === undefined || row === null) return;
    const x = this.view.xOf(row);
    context.strokeStyle = this.view.accent;
    context.setLineDash([2, 2]);
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, this.height);
    context.stroke();
    context.setLineDash([]);
  }

  note(context, wide, text) {
    context.fillStyle = this.view.faint;
    context.font = `11px ${this.view.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, wide / 2, this.height / 2);
  }

  // -- values at the cursor

  drawValues(lines, row) {
    const shown = [];
    const both = this.view.sides.length > 1;
    const each = Math.floor(MOST_VALUES / Math.max(1, lines.length));
    const valueOf = ({ side, agents, asked, at }, index) => {
      const values = row < side.n ? side.valuesAt(this.name, agents, index, row, null, asked) : undefined;
      const value = values?.[at];
      const named = this.names && value !== undefined ? this.names[Number(value)] : undefined;
      return values === null ? "…" : value === undefined ? "–" : named ?? value;
    };
    // An agent's two values stand side by side.
    for (const label of [...new Set(lines.flatMap((line) => line.people.map((p) => p.label)))].slice(0, each)) {
      for (const line of lines) {
        const index = line.people.findIndex((p) => p.label === label);
        const person = line.people[index];
        if (!person) continue;
        const value = valueOf(line, index);
        const told = typeof value === "string" ? value : short(value, lines.length * line.people.length > 1 ? 3 : 5);
        const whose = person.label === null ? "" : inert(person.label);
        shown.push([both ? `${line.side.letter} ${told}` : told, person.color, both ? `${line.side.letter} · ${whose || this.name}` : whose]);
      }
    }
    while (this.spans.length < shown.length) {
      const span = make("span");
      this.spans.push(span);
      this.values.append(span);
    }
    this.spans.forEach((span, i) => {
      span.hidden = i >= shown.length;
      if (span.hidden) return;
      say(span, shown[i][0]);
      const title = String(shown[i][2] ?? "");
      if (span.title !== title) span.title = title;
      if (span.dataset.color !== shown[i][1]) {
        span.dataset.color = shown[i][1];
        span.style.setProperty("--sl-dot", shown[i][1]);
        span.classList.toggle("sl-whose", shown[i][2] !== "");
      }
    });
  }
}

/** What the second side did is drawn in dashes, like its lines. */
function dashes(context, color) {
  const tile = document.createElement("canvas");
  tile.width = 5;
  tile.height = 1;
  const ink = tile.getContext("2d");
  ink.fillStyle = color;
  ink.fillRect(0, 0, 3, 1);
  return context.createPattern(tile, "repeat");
}
