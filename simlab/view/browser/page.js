// A page that stands alone: the same viewer, its questions answered from what the page holds.

import { Rows } from "./base.js";
import { canInflate, inflate, typed } from "./decode.js";
import { tileRows } from "./side.js";
import { EpisodeView } from "./viewer.js";

const octetsOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export class PageLink {
  constructor(data) {
    this.data = data;
    this.series = new Map();
  }
  delay() {
    return 0;
  }
  close() {}
  async ask(question) {
    const { ask, episode, name } = question;
    if (ask === "episodes") return [this.data.episodes, []];
    if (ask === "steps") return [{ steps: question.moments.map(([k, row]) => this.stepAt(this.data.held[k]?.about, row)) }, []];
    const held = this.data.held[episode];
    if (!held) throw new Error(`episode ${episode} is not in this page`);
    if (ask === "episode") return [held.about, []];
    if (ask === "events") return [held.events, []];
    if (ask === "scale") return [chosenScale(held.scales[name], question.channels), []];
    if (ask === "block") return this.block(held, question);
    if (ask === "tile") return this.tile(held, question);
    throw new Error(`this page has no ${ask}`);
  }
  stepAt(about, row) {
    return about && row < about.n ? new Rows(about.steps).at(row) : null;
  }
  block(held, { name, block, chunk }) {
    const found = held.blocks[name]?.[`${block}/${chunk}`];
    if (!found) throw new Error(`${name} is not in this page`);
    if (!canInflate) throw new Error("this browser cannot inflate; a newer one shows the pictures");
    return [found[0], found[1] ? [octetsOf(found[1])] : []];
  }
  async whole(held, episode, name) {
    const key = `${episode}/${name}`;
    if (!this.series.has(key)) {
      const found = held.series[name];
      if (!found) throw new Error(`${name} is not in this page`);
      const open = async () => {
        if (found.text) return found;
        return { ...found, data: typed(await inflate(octetsOf(found.data)), found.dtype), there: await inflate(octetsOf(found.there)) };
      };
      this.series.set(key, open());
    }
    return this.series.get(key);
  }
  async tile(held, { episode, name, agents, level, tile, channels }) {
    const all = await this.whole(held, episode, name);
    const [, rows, width] = all.shape;
    const first = tile * tileRows(level);
    const count = Math.min(rows, first + tileRows(level)) - first;
    const people = agents.length ? agents : [0];
    const header = { first, rows: count, level };
    if (all.text) return [{ ...header, text: people.map((p) => all.text[p].slice(first, first + count)) }, []];
    const own = held.about.variables[name].channels;
    const picks = channels.map((c) => own.indexOf(c));
    const every = 2 ** level;
    const points = Math.ceil(count / every);
    const there = new Uint8Array(people.length * count);
    people.forEach((p, i) => there.set(all.there.subarray(p * rows + first, p * rows + first + count), i * count));
    const at = (p, row, c) => all.data[(p * rows + first + row) * width + picks[c]];
    if (level === 0) {
      const data = new all.data.constructor(people.length * count * picks.length);
      let to = 0;
      for (const p of people) for (let row = 0; row < count; row++) for (let c = 0; c < picks.length; c++) data[to++] = at(p, row, c);
      return [{ ...header, shape: [people.length, count, picks.length], dtype: all.dtype }, [new Uint8Array(data.buffer), there]];
    }
    const named = held.about.variables[name].categories || held.about.variables[name].dtype === "bool";
    const occurred = named && !/^float/.test(all.dtype) ? new Uint32Array(people.length * points * picks.length) : null;
    const ends = new Float64Array(people.length * points * picks.length * 2).fill(NaN);
    people.forEach((p, i) => {
      for (let row = 0; row < count; row++) {
        if (!there[i * count + row]) continue;
        for (let c = 0; c < picks.length; c++) {
          const value = Number(at(p, row, c));
          const to = ((i * points + Math.floor(row / every)) * picks.length + c) * 2;
          if (Number.isNaN(value)) continue;
          if (occurred && value >= 0 && value < 32) occurred[to / 2] |= 1 << value;
          if (!(ends[to] <= value)) ends[to] = value;
          if (!(ends[to + 1] >= value)) ends[to + 1] = value;
        }
      }
    });
    const octets = [ends, ...(occurred ? [occurred] : [])].map((numbers) => new Uint8Array(numbers.buffer));
    return [{ ...header, shape: [people.length, points, picks.length, 2], dtype: "float64", occurred: occurred !== null }, octets];
  }
}

/** The scale of some channels, from that of all. */
function chosenScale(scale, channels) {
  if (!channels || !scale) return scale;
  const each = scale.low.length > 1;
  const low = channels.map((c) => scale.low[each ? c : 0]);
  const high = channels.map((c) => scale.high[each ? c : 0]);
  const labels = scale.style === "channels" ? channels.map((c) => scale.labels[c]) : scale.labels;
  if (channels.length === 1) return { ...scale, style: "scale", low, high, labels: [], mean: false };
  return { ...scale, style: "channels", low, high, labels: labels.length ? labels : channels.map((c) => `channel ${c}`), mean: false };
}

/** What a widget model is to the viewer, without a kernel behind it. */
export class PageModel {
  constructor(traits) {
    this.traits = traits;
    this.ears = new Map();
  }
  get(name) {
    return this.traits[name];
  }
  set(name, value) {
    this.traits[name] = value;
    for (const ear of this.ears.get(`change:${name}`) ?? []) ear();
  }
  on(topic, ear) {
    if (!this.ears.has(topic)) this.ears.set(topic, new Set());
    this.ears.get(topic).add(ear);
  }
  off(topic, ear) {
    this.ears.get(topic)?.delete(ear);
  }
  save_changes() {
    const { episode, step } = this.traits;
    try {
      history.replaceState(null, "", `#episode=${episode}&step=${step}`);
    } catch {
      // a page in a frame may have no address of its own
    }
  }
  send() {}
}

export function startPage() {
  const data = JSON.parse(document.getElementById("simlab-data").textContent);
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const name of ["episode", "step"]) {
    const value = Number.parseInt(asked.get(name), 10);
    if (value >= 0 && (name !== "episode" || data.held[value])) data.traits[name] = value;
  }
  const root = document.getElementById("simlab-viewer");
  const view = new EpisodeView(new PageModel(data.traits), root, new PageLink(data));
  view.start();
  return view;
}
