// Small things that every other part uses: elements, numbers for people, news between parts.

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  first: "M3 2.5h2v11H3zM13 2.5v11L5.5 8z",
  last: "M11 2.5h2v11h-2zM3 2.5v11L10.5 8z",
  back: "M11 2.5v11L3.5 8z",
  on: "M5 2.5v11L12.5 8z",
  left: "M10.2 3 11.4 4.2 7.6 8l3.8 3.8-1.2 1.2L5.2 8z",
  right: "M5.8 3 4.6 4.2 8.4 8l-3.8 3.8L5.8 13l5-5z",
  loop: "M11 2l3 2.5-3 2.5V5.3H5.2A2.2 2.2 0 0 0 3 7.5v.7H1.4v-.7a3.8 3.8 0 0 1 3.8-3.8H11zM5 14l-3-2.5L5 9v1.7h5.8A2.2 2.2 0 0 0 13 8.5v-.7h1.6v.7a3.8 3.8 0 0 1-3.8 3.8H5z",
  mark: "M3.5 2h9v12L8 11l-4.5 3z",
  panels: "M2 2.5h5v4.8H2zM9 2.5h5v4.8H9zM2 8.7h12v1.8H2zM2 12h12v1.8H2z",
  help: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zm-.8 9.6h1.6v1.6H7.2zm.1-1.2c0-2 1.9-2.1 1.9-3.4 0-.7-.5-1.1-1.2-1.1s-1.2.5-1.3 1.3L5.2 6.4C5.4 4.9 6.5 4 8 4s2.7.9 2.7 2.4c0 1.9-2 2-2 3.5z",
  tune: "M2 4h7.2a1.9 1.9 0 0 1 3.6 0H14v1.4h-1.2a1.9 1.9 0 0 1-3.6 0H2zm0 6.6h1.2a1.9 1.9 0 0 1 3.6 0H14V12H6.8a1.9 1.9 0 0 1-3.6 0H2z",
  people: "M6 8a2.7 2.7 0 1 0 0-5.4A2.7 2.7 0 0 0 6 8zm-5 5.6c0-2.6 2.2-4.2 5-4.2s5 1.6 5 4.2zM11 8a2.2 2.2 0 0 0 0-4.4v1.5a3.7 3.7 0 0 1-.6 2.8zm1 5.6h3c0-2.2-1.4-3.6-3.3-4 .2.9.3 2.6.3 4z",
};

/** Text of a file as it may be shown: what cannot be seen, or turns the direction of what follows, is told as such. */
export const inert = (text) => String(text).replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, "\uFFFD");

/** Text on one line, cut where it is long. */
export function cut(text, most = 40) {
  const letters = [...inert(text)];
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 1).join("")}…`;
}

/** Make an element. Text only ever becomes text; nothing from a file is read as markup. */
export function make(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = inert(value);
    else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : name === "title" || name.startsWith("aria-") ? inert(value) : String(value));
  }
  if (/^(button|input|select|summary|textarea)$/.test(tag)) element.setAttribute("data-lm-suppress-shortcuts", "true");
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  setIcon(svg, name);
  return svg;
}

export function setIcon(svg, name) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.replaceChildren(path);
}

/** Set text only where it changed: the browser lays nothing out again for the rest. */
export function say(element, text) {
  const shown = inert(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export function button(name, label, act, extra = {}) {
  return make("button", { type: "button", class: "sl-button", "aria-label": label, title: label, on: { click: act }, ...extra }, icon(name));
}

export class News {
  #ears = new Map();
  on(topic, ear) {
    if (!this.#ears.has(topic)) this.#ears.set(topic, new Set());
    this.#ears.get(topic).add(ear);
    return () => this.#ears.get(topic)?.delete(ear);
  }
  tell(topic, ...what) {
    for (const ear of [...(this.#ears.get(topic) ?? [])]) ear(...what);
  }
  deaf() {
    this.#ears.clear();
  }
}

export const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

const COUNTER = Symbol.for("simlab.viewer.serial");

/** A name that nothing else on the page has: every widget may have loaded this module for itself. */
export function unique() {
  globalThis[COUNTER] = (globalThis[COUNTER] ?? 0) + 1;
  return `${Date.now().toString(36)}.${globalThis[COUNTER]}`;
}

/** A number for people: few digits, never longer than its place. */
export function short(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "number") return String(value);
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value).replace("-", "−");
  const text = Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

/** Whole numbers that are a start and a stride, or are all written down. */
export class Rows {
  constructor(told) {
    this.told = told;
    this.count = told.values ? told.values.length : told.count;
  }
  at(i) {
    return this.told.values ? this.told.values[i] : this.told.start + this.told.stride * i;
  }
  /** The last place whose number is not above `value`; -1 where there is none. */
  before(value) {
    if (!this.told.values) {
      if (!this.count || value < this.told.start) return -1;
      return Math.min(this.count - 1, Math.floor((value - this.told.start) / Math.max(1, this.told.stride)));
    }
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.told.values[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}
