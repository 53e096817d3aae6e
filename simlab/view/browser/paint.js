// Values become colours, by the same rules as simlab/view/paint.py: limits are told, nothing is clipped unseen.

export const ABSENT = [226, 220, 230];
const PAPER = [250, 250, 247];
export const BELOW = 0.4;

/** Round halves to even, as numpy does. */
function round(x) {
  const r = Math.round(x);
  return r - x === 0.5 && r % 2 !== 0 ? r - 1 : r;
}

export function colorTable(anchors) {
  const table = [];
  for (let i = 0; i < 256; i++) {
    const at = (i * (anchors.length - 1)) / 255;
    const low = Math.min(Math.floor(at), anchors.length - 2);
    table.push([16, 8, 0].map((bits) => {
      const a = ((anchors[low] >> bits) & 255) / 255;
      const b = ((anchors[low + 1] >> bits) & 255) / 255;
      return round(255 * (a + (b - a) * (at - low)));
    }));
  }
  return table;
}

function meanOf(picture, pixel, channels) {
  let sum = 0;
  for (const c of channels) sum += picture.at(pixel, c);
  return sum / channels.length;
}

/** Limits of one picture: least and greatest finite number of the channels that count, or of their mean. */
export function limitsOf(picture, channels, mean = false) {
  let low = Infinity;
  let high = -Infinity;
  const meet = (v) => {
    if (!Number.isFinite(v)) return;
    if (v < low) low = v;
    if (v > high) high = v;
  };
  for (let i = 0; i < picture.pixels; i++) {
    if (mean) meet(meanOf(picture, i, channels));
    else for (const c of channels) meet(picture.at(i, c));
  }
  return low <= high ? [low, high] : [null, null];
}

/** One picture inside a chunk: where its numbers begin and how they lie. */
export class Picture {
  constructor(data, start, [height, width, channels], channelsFirst) {
    Object.assign(this, { data, start, height, width, channels });
    this.pixels = height * width;
    this.stepPixel = channelsFirst ? 1 : channels;
    this.stepChannel = channelsFirst ? this.pixels : 1;
  }
  raw(pixel, channel) {
    return this.data[this.start + pixel * this.stepPixel + channel * this.stepChannel];
  }
  at(pixel, channel) {
    return Number(this.raw(pixel, channel));
  }
}

/** Paint a picture into RGBA bytes. Returns how many pixels are no number, how many are infinite, and how many lie beyond the limits. */
export function paint(picture, scale, tables, palette, out) {
  const { style, low, high, table } = scale;
  if (style === "categories") return paintCategories(picture, high[0] + 1, palette, out);
  if (style === "channels") return paintChannels(picture, scale, palette, out);
  if (style === "rgb") return paintRgb(picture, low[0], high[0], out);
  const colors = style === "gray" && !table ? null : tables[table ?? "viridis"];
  return paintScale(picture, scale, colors, out);
}

function put(out, at, r, g, b) {
  out[at] = r;
  out[at + 1] = g;
  out[at + 2] = b;
  out[at + 3] = 255;
}

function paintRgb(picture, low, high, out) {
  const { data, start, pixels, stepPixel, stepChannel } = picture;
  let lost = 0;
  let infinite = 0;
  let beyond = 0;
  if (low === 0 && high === 255 && data instanceof Uint8Array) {
    for (let i = 0, at = start, to = 0; i < pixels; i++, at += stepPixel, to += 4) {
      put(out, to, data[at], data[at + stepChannel], data[at + 2 * stepChannel]);
    }
    return { lost, infinite, beyond };
  }
  const span = high - low;
  const shade = (v) => (span > 0 ? Math.min(1, Math.max(0, (v - low) / span)) : 0.5);
  for (let i = 0; i < pixels; i++) {
    const rgb = [picture.at(i, 0), picture.at(i, 1), picture.at(i, 2)];
    const rest = picture.channels > 3 ? picture.at(i, 3) : 0;
    if (rgb.some(Number.isNaN) || Number.isNaN(rest)) {
      put(out, 4 * i, ...ABSENT);
      lost++;
      continue;
    }
    if (rgb.some((v) => Math.abs(v) === Infinity)) infinite++;
    else if (rgb.some((v) => v < low || v > high)) beyond++;
    put(out, 4 * i, round(255 * shade(rgb[0])), round(255 * shade(rgb[1])), round(255 * shade(rgb[2])));
  }
  return { lost, infinite, beyond };
}

function paintScale(picture, scale, colors, out) {
  const { low, high, mean, only, chosen } = scale;
  const from = low[0] ?? NaN; // no number at all: whatever is infinite gets the colour of the middle
  const span = high[0] - from;
  let lost = 0;
  let infinite = 0;
  let beyond = 0;
  for (let i = 0; i < picture.pixels; i++) {
    const v = only !== undefined ? picture.at(i, only) : mean ? meanOf(picture, i, chosen) : picture.at(i, 0);
    if (Number.isNaN(v)) {
      put(out, 4 * i, ...ABSENT);
      lost++;
      continue;
    }
    if (Math.abs(v) === Infinity) infinite++;
    else if (v < from || v > high[0]) beyond++;
    const part = span > 0 ? Math.min(1, Math.max(0, (v - from) / span)) : 0.5;
    if (colors) {
      const color = colors[round(255 * part)];
      put(out, 4 * i, color[0], color[1], color[2]);
    } else {
      const gray = round(255 * part);
      put(out, 4 * i, gray, gray, gray);
    }
  }
  return { lost, infinite, beyond };
}

function paintChannels(picture, scale, palette, out) {
  const { low, high, chosen } = scale;
  const zero = low.map((l, n) => Math.min(high[n], Math.max(l, 0))); // nothing stays paper; less is a dark shade
  const reach = high.map((h, n) => Math.max(h - zero[n], zero[n] - low[n]));
  let lost = 0;
  let infinite = 0;
  let beyond = 0;
  for (let i = 0; i < picture.pixels; i++) {
    let r = PAPER[0];
    let g = PAPER[1];
    let b = PAPER[2];
    let missing = false;
    let endless = false;
    let outside = false;
    for (let n = 0; n < chosen.length; n++) {
      const c = chosen[n];
      const v = picture.at(i, c);
      if (Number.isNaN(v)) missing = true;
      else if (Math.abs(v) === Infinity) endless = true;
      else if (v < low[n] || v > high[n]) outside = true;
      const away = Math.min(high[n], Math.max(low[n], v)) - zero[n];
      const cover = reach[n] > 0 ? Math.abs(away) / reach[n] : 0;
      const color = palette[c % palette.length];
      const shade = away < 0 ? BELOW : 1;
      r = r * (1 - cover) + shade * color[0] * cover;
      g = g * (1 - cover) + shade * color[1] * cover;
      b = b * (1 - cover) + shade * color[2] * cover;
    }
    if (missing) {
      put(out, 4 * i, ...ABSENT);
      lost++;
    } else {
      put(out, 4 * i, round(r), round(g), round(b));
      if (endless) infinite++;
      else if (outside) beyond++;
    }
  }
  return { lost, infinite, beyond };
}

function paintCategories(picture, count, palette, out) {
  let beyond = 0;
  for (let i = 0; i < picture.pixels; i++) {
    const v = picture.at(i, 0);
    const known = v >= 0 && v < count;
    if (!known) beyond++;
    put(out, 4 * i, ...(known ? palette[Math.trunc(v) % palette.length] : ABSENT));
  }
  return { lost: 0, infinite: 0, beyond };
}
