// What opens at a button: who is shown, which panels, which bookmarks, which keys.

import { cut, icon, make, say } from "./base.js";

const MOST_LISTED = 200;

/** A button with a small window below it. */
export class Menu {
  constructor(view, sign, label, fill, extra = null) {
    this.view = view;
    this.fill = fill;
    this.text = extra;
    this.body = make("div", { class: "sl-menu", hidden: true, role: "group", "aria-label": label });
    this.knob = make("button", { type: "button", class: extra ? "sl-button sl-texty" : "sl-button", "aria-label": label, title: label, "aria-expanded": "false", on: { click: () => this.toggle() } }, icon(sign), extra);
    this.root = make("span", { class: "sl-menu-root" }, this.knob, this.body);
  }
  toggle(open = this.body.hidden) {
    if (open === !this.body.hidden) return;
    if (open) {
      this.view.closeMenus(this);
      this.body.replaceChildren(...this.fill());
      this.body.classList.remove("sl-flip");
      this.body.style.removeProperty("--sl-right");
    }
    this.body.hidden = !open;
    this.knob.setAttribute("aria-expanded", String(open));
    if (open) {
      const space = this.view.root.getBoundingClientRect();
      const box = this.body.getBoundingClientRect();
      this.body.classList.toggle("sl-flip", box.right > space.right);
      const beyond = space.left + 4 - this.body.getBoundingClientRect().left;
      if (beyond > 0) this.body.style.setProperty("--sl-right", `${-beyond}px`);
      this.body.querySelector("input, button, select")?.focus({ preventScroll: true });
    } else if (this.body.contains(document.activeElement)) this.knob.focus({ preventScroll: true });
  }
  refresh() {
    if (!this.body.hidden) this.body.replaceChildren(...this.fill());
  }
}

export function agentsMenu(view) {
  const count = make("span", {});
  const menu = new Menu(view, "people", "Agents that are shown", () => fillAgents(view, menu), count);
  menu.tell = () => {
    const all = view.everybody().length;
    say(count, `${view.agents.length} of ${all}`);
    menu.root.hidden = all === 0;
  };
  return menu;
}

function fillAgents(view, menu) {
  const everybody = view.everybody();
  const list = make("div", { class: "sl-list" });
  const told = make("p", { class: "sl-hint" });
  const search = make("input", { type: "search", placeholder: "find an agent", "aria-label": "Find an agent", on: { input: () => fill() } });
  const fill = () => {
    const wanted = search.value.toLowerCase();
    const found = everybody.filter((label) => String(label).toLowerCase().includes(wanted));
    list.replaceChildren(...found.slice(0, MOST_LISTED).map((label) => make("label", { class: "sl-check" }, make("input", {
      type: "checkbox", checked: view.agents.includes(label),
      on: { change: (e) => view.showAgents(e.target.checked ? everybody.filter((a) => a === label || view.agents.includes(a)) : view.agents.filter((a) => a !== label)) },
    }), make("i", { class: "sl-dot", style: `--sl-dot: ${view.colorOf(label) ?? "transparent"}` }), make("span", { text: cut(label), title: label }))));
    say(told, found.length > MOST_LISTED ? `${MOST_LISTED} of ${found.length} are listed; type to find others` : "");
  };
  fill();
  const all = make("button", { type: "button", class: "sl-word", text: everybody.length > 64 ? "first 64" : "all", on: { click: () => { view.showAgents(everybody.slice(0, 64)); menu.refresh(); } } });
  const none = make("button", { type: "button", class: "sl-word", text: "none", on: { click: () => { view.showAgents([]); menu.refresh(); } } });
  return [make("div", { class: "sl-menu-head" }, everybody.length > 12 ? search : null, all, none), list, told];
}

export function panelsMenu(view) {
  return new Menu(view, "panels", "Panels that are shown", () => [make("div", { class: "sl-list" }, ...view.about.panels.map((panel) => make("label", { class: "sl-check" }, make("input", {
    type: "checkbox", checked: panel.shown, on: { change: (e) => { panel.shown = e.target.checked; view.build(); } },
  }), make("span", { text: panel.variable ?? panel.kind }), make("span", { class: "sl-hint", text: panel.variable ? panel.kind : "" }))))]);
}

/** Tell the timesteps that were logged at rows of any episodes: at once where they are known, else when they come. */
async function tellSteps(view, moments, tell) {
  const others = [];
  moments.forEach(([k, row], i) => (k === view.k ? row < view.n && tell(i, view.stepOf(row)) : others.push(i)));
  if (!others.length) return;
  try {
    const [{ steps }] = await view.link.ask({ ask: "steps", side: 0, moments: others.map((i) => moments[i]) });
    others.forEach((i, place) => steps[place] !== null && tell(i, steps[place]));
  } catch (error) {
    if (!view.closed) view.fail(error);
  }
}

export function marksMenu(view) {
  const menu = new Menu(view, "mark", "Bookmarks (m sets one)", () => {
    const note = make("input", { type: "text", maxlength: 200, disabled: !view.n, placeholder: view.n ? `note for step ${view.stepOf(view.row)}` : "this episode has no steps", "aria-label": "Note of the bookmark" });
    const add = () => {
      view.addBookmark(note.value);
      menu.toggle(false);
      view.root.focus({ preventScroll: true });
    };
    note.addEventListener("keydown", (event) => {
      if (event.key === "Enter") add();
    });
    const marks = view.bookmarks.map((mark, i) => ({ mark, i })).sort((a, b) => a.mark.episode - b.mark.episode || a.mark.step - b.mark.step);
    const jumps = marks.map(({ mark }) => make("button", { type: "button", class: "sl-word", text: `episode ${mark.episode}, row ${mark.step}`, on: { click: () => view.jumpTo(mark) } }));
    tellSteps(view, marks.map(({ mark }) => [mark.episode, mark.step]), (i, step) => say(jumps[i], `episode ${marks[i].mark.episode}, step ${step}`));
    return [
      make("div", { class: "sl-menu-head" }, note, make("button", { type: "button", class: "sl-word", text: "set", disabled: !view.n, on: { click: add } })),
      make("div", { class: "sl-list" }, ...marks.map(({ mark, i }, place) => make("div", { class: "sl-mark" }, jumps[place],
        make("span", { class: "sl-hint", text: cut(mark.note ?? "", 200) }),
        make("button", { type: "button", class: "sl-word", "aria-label": "Remove the bookmark", text: "×", on: { click: () => { view.removeBookmark(i); menu.refresh(); } } })))),
      make("p", { class: "sl-hint", text: view.bookmarksNote || (marks.length ? "" : "No bookmarks yet.") }),
    ];
  });
  return menu;
}

const KEYS = [
  ["← →", "one step (with Shift ten)"], ["PgUp PgDn", "a hundred steps"], ["Home End", "first, last step"], ["Space", "play, pause"],
  ["[ ]", "previous, next event"], ["↑ ↓", "previous, next episode"], ["− +", "slower, faster"], ["l", "loop"], ["z Shift+z 0", "zoom series in, out, all"],
  ["m", "bookmark"], ["?", "these keys"], ["Esc", "close, leave"],
];

export function helpMenu(view) {
  return new Menu(view, "help", "Keys (?)", () => [make("table", { class: "sl-keys" }, make("tbody", {}, ...KEYS.map(([keys, what]) => make("tr", {},
    make("th", { scope: "row" }, ...keys.split(" ").map((key) => make("kbd", { text: key }))), make("td", { text: what })))))]);
}

