// One run on one side of the viewer: what its episode holds, and the parts of it that are here already.

import { budget, canInflate, decodeBlock, typed } from "./decode.js";
import { Rows, unique } from "./base.js";
import { Picture } from "./paint.js";

const TILE_POINTS = 1024;
const TILE_ROWS = 2 ** 18;

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
    this.asked = new Map();
    this.note = "";
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

  scale(name, channels) {
    const key = `${name}/${channels ?? ""}`;
    const known = this.scales.get(key);
    if (known === undefined) {
      this.scales.set(key, null);
      const ask = () => this.fetcher.link.ask(this.question("scale", { name, channels: channels ?? null }));
      const generation = this.generation;
      ask().then(([scale]) => {
        if (generation !== this.generation) return;
        this.scales.set(key, scale);
        this.fetcher.changed({});
      }, (error) => {
        this.note = error.message;
        this.fetcher.changed({ error });
      });
    }
    return known ?? null;
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
      fail: (error) => {
        this.note = error.message;
      },
    };
  }

  /** Chunks around a row in the direction of play: two ahead, one behind. */
  wantAround(name, place, row, direction) {
    const variable = this.variable(name);
    const own = Math.max(0, this.rowOf(name, row));
    if (place < 0 || !variable.count) return [];
    const [block, chunk] = this.blockOf(variable, place, own);
    const ahead = direction < 0 ? -1 : 1;
    const order = [[0, 0], [ahead, 20], [2 * ahead, 21], [-ahead, 22]];
    return order.map(([d, urgency]) => this.wantBlock(name, variable, block, chunk + d, own, urgency)).filter(Boolean);
  }

  // -- series

  tileKey(name, agents, level, tile) {
    return `${name}/${agents}/${level}/${tile}`;
  }

  tile(name, agents, level, tile) {
    return this.tiles.get(this.tileKey(name, agents, level, tile));
  }

  /** Tiles of a series between two of its rows; what is missing or has grown is put on the list of what to fetch. */
  tilesBetween(name, agents, level, from, to, list, urgency) {
    const variable = this.variable(name);
    const span = tileRows(level);
    const out = [];
    const end = Math.min(to, variable.count - 1);
    for (let t = Math.max(0, Math.floor(from / span)); t * span <= end; t++) {
      const key = this.tileKey(name, agents, level, t);
      const entry = this.tiles.get(key);
      if (entry) out.push(entry);
      if (!entry || entry.first + entry.rows < Math.min(variable.count, (t + 1) * span)) {
        const generation = this.generation;
        list?.push({
          key: `${this.prefix}${key}`,
          urgency,
          question: this.question("tile", { name, agents, level, tile: t, channels: variable.channels ?? [] }),
          take: (answer, buffers) => {
            if (generation === this.generation) this.keepTile(key, readTile(answer, buffers));
          },
          fail: (error) => {
            this.note = error.message;
          },
        });
      }
    }
    return out;
  }

  keepTile(key, tile) {
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    let bytes = 0;
    for (const each of this.tiles.values()) bytes += each.bytes;
    for (const [oldest, each] of this.tiles) {
      if (bytes <= 48 * 2 ** 20) break;
      this.tiles.delete(oldest);
      bytes -= each.bytes;
    }
  }

  /** The values of one agent at a row: numbers or text; null while they are on their way; undefined where nothing was logged. */
  valuesAt(name, agents, index, row, list) {
    const own = this.rowOf(name, row);
    if (own < 0 || index < 0) return undefined;
    const [tile] = this.tilesBetween(name, agents, 0, own, own, list, 5);
    const at = tile ? own - tile.first : 0;
    if (!tile || at >= tile.rows) return null;
    if (tile.text) return tile.text[index][at] === "" ? undefined : [tile.text[index][at]];
    if (!tile.there[index * tile.rows + at]) return undefined;
    const channels = tile.shape[2];
    const start = (index * tile.rows + at) * channels;
    return Array.from(tile.data.subarray(start, start + channels));
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
