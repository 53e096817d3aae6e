// Chunks as they lie in an HDF5 file made into numbers again, and a store of them that never outgrows its budget.

const TYPES = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, int32: Int32Array,
  float32: Float32Array, float64: Float64Array, int64: BigInt64Array, uint64: BigUint64Array,
};

export const bytesOf = (dtype) => TYPES[dtype].BYTES_PER_ELEMENT;

export const canInflate = typeof DecompressionStream === "function";

export async function inflate(octets) {
  const stream = new Blob([octets]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Undo HDF5's shuffle filter: all first bytes, all second bytes, ... become elements again. */
export function unshuffle(octets, size) {
  const count = octets.length / size;
  const out = new Uint8Array(octets.length);
  for (let plane = 0; plane < size; plane++) {
    const start = plane * count;
    for (let i = 0, at = plane; i < count; i++, at += size) out[at] = octets[start + i];
  }
  return out;
}

export function typed(octets, dtype) {
  const Type = TYPES[dtype];
  if (!Type) throw new Error(`no numbers of type ${dtype}`);
  const aligned = octets.byteOffset % Type.BYTES_PER_ELEMENT === 0 ? octets : octets.slice();
  return new Type(aligned.buffer, aligned.byteOffset, Math.floor(aligned.byteLength / Type.BYTES_PER_ELEMENT));
}

export async function decodeBlock(answer, octets, dtype, count) {
  const size = TYPES[dtype].BYTES_PER_ELEMENT;
  if (answer.empty) return typed(new Uint8Array(count * size), dtype);
  let data = answer.deflated ? await inflate(octets) : octets;
  if (answer.shuffled) data = unshuffle(data, size);
  if (data.length < count * size) throw new Error("a chunk is shorter than it should be");
  return typed(data, dtype);
}

/** What is kept in memory, for all viewers of a page together: the least recently used goes first. */
class Budget {
  constructor(limit) {
    this.limit = limit;
    this.bytes = 0;
    this.entries = new Map();
  }
  get(key) {
    const entry = this.entries.get(key);
    if (entry) {
      this.entries.delete(key);
      this.entries.set(key, entry);
    }
    return entry?.value;
  }
  set(key, value, bytes) {
    this.drop(key);
    this.entries.set(key, { value, bytes });
    this.bytes += bytes;
    for (const [oldest, entry] of this.entries) {
      if (this.bytes <= this.limit || oldest === key) break;
      this.entries.delete(oldest);
      this.bytes -= entry.bytes;
    }
  }
  drop(key) {
    const entry = this.entries.get(key);
    if (entry) {
      this.bytes -= entry.bytes;
      this.entries.delete(key);
    }
  }
  dropAll(prefix) {
    for (const key of [...this.entries.keys()]) if (key.startsWith(prefix)) this.drop(key);
  }
}

const KEY = Symbol.for("simlab.viewer.budget");
export const budget = (globalThis[KEY] ??= new Budget(((navigator.deviceMemory ?? 8) >= 8 ? 256 : 128) * 2 ** 20));
