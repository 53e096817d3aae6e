// One run on one side of the viewer: what its episode holds, and the parts of it that are here already.

import { budget, bytesOf, canInflate, decodeBlock, typed } from "./decode.js";
import { Rows, unique } from "./base.js";
import { Picture } from "./paint.js";

const TILE_POINTS = 1024;
const TILE_ROWS = 2 ** 18;
const TILE_BYTES = 48 * 2 ** 20;
const SCALE_MS = 2000;

export const tileRows = (level) => Math.max(2 ** level, Math.min(TILE_POINTS * 2 ** level, TILE_ROWS));

export class Side {
  constructor(number, letter, fetcher) {
    this.number = number;
    this.letter = letter;
    this.fetcher = fetcher;
    this.serial = unique();
    this.generation = 0;
    this.about = null;
    this.scales = new Map();
    this.tiles = new Map();
    this.wanted = new Set();
    this.limit = TILE_BYTES;
  }

  get prefix() {
    return `${this.serial}.${this.generation}/`;
  }

  question(ask, more = {}) {
    return { ask, side: this.number, episode: this.k, ...more };
  }

  async open(k) {
    this.k = k;
    const [about] = await this.fetcher.link.ask(this.question("episode"));
    budget.dropAll(this.prefix);
    this.fetcher.forget(this.prefix);
    this.generation++;
    this.scales.clear();
    this.tiles.clear();
    this.take(about);
    return about;
  }

  /** Take in a newer description of the same episode: it may have grown. */
  take(about) {
    this.about = about;
    this.k = about.k;
    this.n = about.n;
    this.steps = new Rows(about.steps);
    this.rows = new Map();
    for (const [name, variable] of Object.entries(about.variables)) {
      if (variable.rows) this.rows.set(name, new Rows(variable.rows));
    }
  }

  variable(name) {
    return this.about?.variables[name];
  }

  /** Whether there is a variable that can be shown beside one of the same name on the other side. */
  has(name, other) {
    const own = this.variable(name);
    return Boolean(own) && Boolean(own.layout) === Boolean(other.layout) && (own.dim === null) === (other.dim === null) && (own.layout ? true : own.number === other.number);
  }

  /** Place of an agent on the axis of a variable; 0 for the environment, -1 where there is no such agent. */
  place(dim, label) {
    if (dim === null) return 0;
    const population = this.about.populations.find((p) => p.dim === dim);
    return population ? population.agents.indexOf(label) : -1;
  }

  /** The row of a variable that is shown at a row of the episode: of one that is logged now and then, the latest. */
  rowOf(name, row) {
    const own = this.rows.get(name);
    return own ? own.before(row) : row < this.n ? row : -1;
  }

  // -- pictures

  blockOf(variable, place, row) {
    const { length, offset, agents, agent_offset } = variable.layout;
    return [Math.floor((place + agent_offset) / agents), Math.floor((row + offset) / length)];
  }

  key(name, block, chunk) {
    return `${this.prefix}${name}/${block}/${chunk}`;
  }

  /**
   * How a variable is painted, as far as it is known; null before. Limits are asked for again where the variable has grown since: after
   * two seconds at the earliest, and the more seldom the longer the kernel takes to find them.
   */
  scale(name, channels) {
    const key = `${name}/${channels ?? ""}`;
    const count = this.variable(name)?.count;
    if (count === undefined) return null;
    let entry = this.scales.get(key);
    if (!entry) this.scales.set(key, (entry = { scale: null, count: -1, due: 0, asking: false }));
    if (entry.count === 0 && count) entry.scale = null; // from no row at all nothing was learnt
    if (entry.asking || entry.count === count) return entry.scale;
    const wait = entry.due - performance.now();
    if (wait > 0) this.fetcher.later(wait);
    else this.findScale(entry, `${this.prefix}scale/${key}`, { name, channels: channels ?? null }, count);
    return entry.scale;
  }

  async findScale(entry, key, what, count) {
    const { generation } = this;
    const since = performance.now();
    entry.asking = true;
    try {
      const [scale] = await this.fetcher.link.ask(this.question("scale", what));
      if (generation !== this.generation) return;
      const took = performance.now() - since;
      Object.assign(entry, { scale, count, due: scale.low[0] === null ? 0 : since + took + Math.max(SCALE_MS, 20 * took) });
      this.fetcher.failed.delete(key);
    } catch (error) {
      if (this.fetcher.closed || generation !== this.generation) return;
      entry.due = this.fetcher.miss(key, error, true);
    }
    entry.asking = false;
    this.fetcher.changed({});
  }

  /** Whether it is known how a variable is painted, or was asked in vain. */
  isScaleSettled(name, channels) {
    const key = `${name}/${channels ?? ""}`;
    return Boolean(this.scales.get(key)?.scale) || this.fetcher.failed.has(`${this.prefix}scale/${key}`);
  }

  /** What is known about a picture: {picture, there, row}; null while it is on its way; undefined where there is none. */
  picture(name, place, row) {
    const variable = this.variable(name);
    const own = this.rowOf(name, row);
    if (own < 0 || place < 0) return undefined;
    const [block, chunk] = this.blockOf(variable, place, own);
    const entry = budget.get(this.key(name, block, chunk));
    if (!entry || own - entry.first >= entry.rows) return null;
    const { agents, agent_offset, length } = variable.layout;
    const inside = (place + agent_offset) % agents;
    const at = own - entry.first;
    const spans = entry.there?.[inside];
    const there = !spans || spans.some((edge, i) => i % 2 === 0 && edge <= at && at < spans[i + 1]);
    const values = new Picture(entry.data, (inside * length + at) * entry.size, variable.image, variable.first);
    return { picture: values, there, row: own };
  }

  /** The chunk that holds a row, as something to fetch; null if it is here. */
  wantPicture(name, place, row, urgency) {
    const variable = this.variable(name);
    const own = this.rowOf(name, row);
    if (own < 0 || place < 0) return null;
    return this.wantBlock(name, variable, ...this.blockOf(variable, place, own), own, urgency);
  }

  wantBlock(name, variable, block, chunk, own, urgency) {
    const key = this.key(name, block, chunk);
    const entry = budget.get(key);
    const { length, offset } = variable.layout;
    const last = Math.min(variable.count, (chunk + 1) * length - offset);
    if (chunk < 0 || chunk * length - offset >= variable.count) return null;
    if (entry && entry.first + entry.rows >= last) return null;
    const generation = this.generation;
    const tried = this.fetcher.failed.get(key)?.times ?? 0;
    return {
      key,
      urgency,
      question: this.question("block", { name, block, chunk, inflate: canInflate && tried === 0 }),
      take: async (answer, [octets]) => {
        const size = variable.shape.reduce((a, b) => a * b, 1);
        const data = await decodeBlock(answer, octets, variable.layout.dtype, variable.layout.agents * length * size);
        if (generation !== this.generation) return;
        budget.set(key, { data, size, first: answer.first, rows: answer.rows, there: answer.there }, data.byteLength);
      },
    };
  }

  /** Bytes of a chunk of pictures. */
  blockBytes(name) {
    const { layout, shape } = this.variable(name);
    return layout.agents * layout.length * shape.reduce((a, b) => a * b, 1) * bytesOf(layout.dtype);
  }

  /** Chunks around a row in the direction of play: two ahead, one behind; only the one at the row where there is no room for more. */
  wantAround(name, place, row, direction, room = true) {
    const variable = this.variable(name);
    const own = Math.max(0, this.rowOf(name, row));
    if (place < 0 || !variable.count) return [];
    const [block, chunk] = this.blockOf(variable, place, own);
    const ahead = direction < 0 ? -1 : 1;
    const order = room ? [[0, 0], [ahead, 20], [2 * ahead, 21], [-ahead, 22]] : [[0, 0]];
    return order.map(([d, urgency]) => this.wantBlock(name, variable, block, chunk + d, own, urgency)).filter(Boolean);
  }

  // -- series

  /** Which channels here are like those of another side: by label where both have some, else by number; -1 where there is none. */
  channelsLike(name, channels, labels) {
    const own = this.variable(name);
    return channels.map((channel) => {
      const at = labels && own.labels ? own.labels.indexOf(labels[channel]) : channel;
      return own.channels.includes(at) ? at : -1;
    });
  }

  /** Tiles of a series between two of its rows; what is missing or has grown is put on the list of what to fetch. */
  tilesBetween(name, agents, level, from, to, list, urgency, channels = this.variable(name).channels ?? []) {
    const variable = this.variable(name);
    const span = tileRows(level);
    const out = [];
    const end = Math.min(to, variable.count - 1);
    for (let t = Math.max(0, Math.floor(from / span)); t * span <= end; t++) {
      const key = `${name}/${agents}/${channels}/${level}/${t}`;
      const entry = this.tiles.get(key);
      if (list) this.wanted.add(key);
      if (entry) out.push(entry);
      if (!entry || entry.first + entry.rows < Math.min(variable.count, (t + 1) * span)) {
        const generation = this.generation;
        list?.push({
          key: `${this.prefix}${key}`,
          urgency,
          question: this.question("tile", { name, agents, level, tile: t, channels }),
          take: (answer, buffers) => {
            if (generation === this.generation) this.keepTile(key, readTile(answer, buffers));
          },
        });
      }
    }
    return out;
  }

  /** Keep a tile. The oldest go first, but never one that is wanted now: it would only be asked for again. */
  keepTile(key, tile) {
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    let bytes = 0;
    for (const each of this.tiles.values()) bytes += each.bytes;
    for (const [oldest, each] of this.tiles) {
      if (bytes <= this.limit) break;
      if (this.wanted.has(oldest)) continue;
      this.tiles.delete(oldest);
      bytes -= each.bytes;
    }
  }

  /** The values of one agent at a row: numbers or text; null while they are on their way; undefined where nothing was logged. */
  valuesAt(name, agents, index, row, list, channels) {
    const own = this.rowOf(name, row);
    if (own < 0 || index < 0) return undefined;
    const [tile] = this.tilesBetween(name, agents, 0, own, own, list, 5, channels);
    const at = tile ? own - tile.first : 0;
    if (!tile || at >= tile.rows) return null;
    if (tile.text) return tile.text[index][at] === "" ? undefined : [tile.text[index][at]];
    if (!tile.there[index * tile.rows + at]) return undefined;
    const wide = tile.shape[2];
    const start = (index * tile.rows + at) * wide;
    return Array.from(tile.data.subarray(start, start + wide));
  }
}

function readTile(answer, buffers) {
  const tile = { first: answer.first, rows: answer.rows, level: answer.level, shape: answer.shape, text: answer.text, bytes: 0 };
  if (answer.text) {
    tile.bytes = answer.text.reduce((sum, row) => sum + row.reduce((s, word) => s + 2 * word.length + 8, 0), 0);
    return tile;
  }
  tile.data = typed(buffers[0], answer.dtype);
  tile.occurred = answer.occurred ? typed(buffers[1], "uint32") : null;
  tile.there = (!answer.occurred && buffers[1]) || null;
  tile.bytes = tile.data.byteLength + ((tile.there ?? tile.occurred)?.byteLength ?? 0);
  return tile;
}
