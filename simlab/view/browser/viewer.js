// The viewer of an episode: one cursor over pictures, series, map and table. Everything is drawn here; the kernel only sends bytes.

import { News, clamp, cut, make } from "./base.js";
import { Bar, Head } from "./controls.js";
import { customPanel } from "./custom.js";
import { budget } from "./decode.js";
import { poll } from "./follow.js";
import { listenToHands } from "./hands.js";
import { Fetcher } from "./link.js";
import { MapPanel } from "./map.js";
import { colorTable } from "./paint.js";
import { PicturePanel } from "./pictures.js";
import { advance, isNear } from "./playing.js";
import { seriesRows } from "./series.js";
import { Side } from "./side.js";
import { TablePanel } from "./table.js";
import { agentColor, findTheme } from "./theme.js";
import { Axis, PAD, Timeline } from "./timeline.js";
import { Traits } from "./traits.js";
import { Troubles } from "./troubles.js";

const POLL_MS = 1000;

export class EpisodeView {
  constructor(model, root, link) {
    this.model = model;
    this.root = root;
    this.link = link;
    this.news = new News();
    this.fetcher = new Fetcher(link, () => this.arrived());
    this.sides = [];
    this.row = 0;
    this.n = 0;
    this.k = model.get("episode");
    this.agents = [];
    this.window = [0, 0];
    this.events = [];
    this.kind = "";
    this.notes = [];
    this.bookmarks = model.get("bookmarks") ?? [];
    this.bookmarksNote = model.get("_bookmarks_note") ?? "";
    this.playing = false;
    this.speed = model.get("speed") ?? 30;
    this.loop = model.get("loop") ?? false;
    this.live = model.get("live") ?? false;
    this.direction = 1;
    this.difference = null;
    this.panels = [];
    this.series = [];
    this.plotWidth = 0;
    this.generation = 0;
    this.troubles = new Troubles(this);
    this.closed = false;
    this.traits = new Traits(model);
    this.undo = [];
  }

  // -- life

  async start() {
    const root = this.root;
    root.classList.add("sl-viewer");
    for (const [name, value] of Object.entries({ tabindex: "0", role: "group", "aria-label": `Episode viewer ${this.model.get("_title") ?? ""}`, "data-lm-suppress-shortcuts": "true" })) root.setAttribute(name, value);
    this.head = new Head(this);
    this.bar = new Bar(this);
    this.timeline = new Timeline(this);
    this.axis = new Axis(this);
    this.pictures = make("div", { class: "sl-top" });
    this.rows = make("div", { class: "sl-rows" });
    this.cursor = make("div", { class: "sl-cursor", "aria-hidden": "true" });
    this.below = make("div", { class: "sl-below" });
    this.track = make("div", { class: "sl-track" }, make("div", { class: "sl-grid" }, ...this.timeline.elements), this.rows, this.axis.root, this.cursor);
    root.replaceChildren(this.head.root, this.pictures, this.bar.root, this.track, this.below);
    this.listen();
    findTheme(this);
    const count = this.model.get("_sides") ?? 1;
    for (let i = 0; i < count; i++) this.sides.push(new Side(i, "AB"[i], this.fetcher));
    this.troubles.insist("episodes", () => this.link.ask({ ask: "episodes", side: 0 })).then(([listed]) => {
      this.episodes = listed;
      this.head.list(listed);
    }, () => {}); // what went wrong is shown already
    this.laterRow = this.model.get("step") ?? 0;
    await this.openEpisode(this.k, 0, false);
    if (!this.model.get("playing") || this.closed) return;
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) this.traits.save({ playing: false }); // until somebody says so
    else this.play(true);
  }

  listen() {
    const heed = (name, act) => this.traits.heed(name, act);
    heed("step", (step) => (this.opening || step !== this.row) && this.goTo(step, "kernel"));
    heed("episode", (k) => k !== this.k && this.openEpisode(k, 0, false));
    heed("agents", (agents) => this.showAgents(agents, false));
    heed("playing", (playing) => {
      if (playing !== this.playing) this.play(playing, false);
      if (!playing) this.goTo(this.model.get("step"), "kernel"); // where a linked viewer stopped
    });
    heed("speed", (speed) => this.setSpeed(speed, false));
    heed("loop", (loop) => this.setLoop(loop, false));
    heed("bookmarks", (marks) => {
      this.bookmarks = marks;
      this.head.marks.refresh();
      this.invalidate();
    });
    heed("_bookmarks_note", (note) => {
      this.bookmarksNote = note;
      this.head.marks.refresh();
    });
    heed("_changed", () => poll(this));
    this.undo.push(listenToHands(this));
    const sized = new ResizeObserver(() => this.measure());
    sized.observe(this.root);
    const themed = new MutationObserver(() => findTheme(this));
    themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class", "style"] });
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["class", "style", "data-theme"] });
    const media = window.matchMedia("(prefers-color-scheme: dark)");
    const prefers = () => findTheme(this);
    media.addEventListener("change", prefers);
    this.timer = setInterval(() => this.tick(), POLL_MS);
    this.undo.push(() => {
      sized.disconnect();
      themed.disconnect();
      media.removeEventListener("change", prefers);
      clearInterval(this.timer);
    });
  }

  close() {
    this.closed = true;
    this.traits.close();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.later);
    for (const undo of this.undo) undo();
    for (const panel of this.panels) panel.destroy?.();
    this.fetcher.close();
    for (const side of this.sides) budget.dropAll(`${side.serial}.`);
    this.link.close();
    this.news.deaf();
  }

  /** Show what is wrong, until it is well again. */
  fail(error, what) {
    this.troubles.add(error, what);
  }

  // -- what is shown

  get about() {
    return this.sides[0]?.about ?? null;
  }

  episodeNumber(place) {
    const told = this.episodes.numbers;
    return told.values ? told.values[place] : told.start + told.stride * place;
  }

  episodePlace(k) {
    const told = this.episodes.numbers;
    return told.values ? told.values.indexOf(k) : Math.round((k - told.start) / Math.max(1, told.stride));
  }

  async openEpisode(k, row = 0, tell = true) {
    const turn = ++this.generation;
    this.opening = true;
    for (const what of ["view", "episode", "events", "panel"]) this.troubles.well(what);
    const before = this.k;
    this.k = k;
    const open = () => {
      const other = this.model.get("_other_episode");
      return Promise.all(this.sides.map((side, i) => side.open(i && other !== null && other !== undefined ? other : k)));
    };
    try {
      if (this.built) await open();
      else await this.troubles.insist("episode", open, () => turn !== this.generation); // there is nothing else to look at
    } catch (error) {
      if (turn !== this.generation || this.closed) return;
      this.k = before;
      this.opening = false;
      this.fail(error, "episode");
      this.head.draw();
      return;
    }
    if (turn !== this.generation || this.closed) return;
    const about = this.about;
    this.k = about.k;
    this.n = Math.max(...this.sides.map((side) => side.n));
    this.window = [0, Math.max(0, this.n - 1)];
    this.palette ??= about.palette.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    this.tables ??= Object.fromEntries(Object.entries(about.colormaps).map(([name, anchors]) => [name, colorTable(anchors)]));
    this.events = [];
    this.eventsHere = false;
    this.jumpLater = 0;
    this.difference = null;
    this.opening = false;
    row = this.laterRow ?? row;
    this.laterRow = null;
    this.row = clamp(row < 0 ? this.n + row : row, 0, Math.max(0, this.n - 1));
    const everybody = this.everybody();
    this.agents = this.model.get("agents").filter((label) => everybody.includes(label));
    if (!this.built || this.shape !== this.shapeOf(about)) this.keepShown(about);
    this.shape = this.shapeOf(about);
    this.build();
    this.head.draw();
    if (tell) this.traits.save({ episode: this.k, step: this.row });
    else if (this.model.get("step") !== this.row) this.traits.save({ step: this.row });
    if (this.playing) this.began = null;
    this.findEvents(turn);
  }

  shapeOf(about) {
    return JSON.stringify(Object.entries(about.variables).map(([name, v]) => [name, v.shape, v.dim]));
  }

  /** What the reader switched on or off stays so in the next episode. */
  keepShown(about) {
    const known = this.shownPanels;
    if (known) for (const panel of about.panels) panel.shown = known.get(`${panel.kind}/${panel.variable}`) ?? panel.shown;
  }

  async findEvents(turn) {
    await new Promise((done) => setTimeout(done, 60)); // pictures first
    if (turn !== this.generation || this.closed) return;
    const isOver = () => turn !== this.generation;
    try {
      const [found] = await this.troubles.insist("events", () => this.link.ask({ ask: "events", side: 0, episode: this.k }), isOver);
      if (turn !== this.generation || this.closed) return;
      this.events = found.events;
      this.notes = found.notes;
      if (this.sides.length > 1) {
        const [difference] = await this.troubles.insist("events", () => this.link.ask({ ask: "difference", episode: this.sides[0].k, other: this.sides[1].k }), isOver);
        if (turn !== this.generation || this.closed) return;
        this.difference = difference;
        if (difference.row !== null) this.events = [...this.events, ["difference", difference.row, difference.text]].sort((a, b) => a[1] - b[1]);
      }
      this.eventsHere = true;
      this.bar.kinds(this.events);
      if (this.jumpLater) this.jump(this.jumpLater);
      this.jumpLater = 0;
      for (const row of this.series) row.drawn = "";
      this.invalidate();
    } catch (error) {
      if (turn === this.generation && !this.closed) this.fail(error, "events");
    }
  }

  everybody() {
    const all = this.sides.flatMap((side) => side.about?.populations.flatMap((p) => p.agents) ?? []);
    return [...new Set(all)];
  }

  people(dim) {
    const known = new Set(this.sides.flatMap((side) => side.about?.populations.find((p) => p.dim === dim)?.agents ?? []));
    return this.agents.filter((label) => known.has(label)).map((label) => ({ label, name: cut(label), color: this.colorOf(label) }));
  }

  colorOf(label) {
    return agentColor(this.agents.indexOf(label), this.theme);
  }

  stepOf(row) {
    const side = this.sides.find((s) => row < s.n) ?? this.sides[0];
    return side.steps.at(clamp(row, 0, side.n - 1));
  }

  build() {
    const about = this.about;
    for (const panel of this.panels) panel.destroy?.();
    this.shownPanels = new Map(about.panels.map((panel) => [`${panel.kind}/${panel.variable}`, panel.shown]));
    this.panels = [];
    this.series = [];
    this.troubles.broken.clear();
    const shown = about.panels.filter((p) => p.shown);
    this.lacking = this.sides.slice(1).flatMap((side) => {
      const names = [...new Set(shown.map((p) => p.variable).filter((name) => name && !side.has(name, about.variables[name])))];
      return names.length ? [`${side.letter} has no ${names.join(", ")}`] : [];
    });
    this.topPanels = shown.filter((p) => !["lines", "steps", "table"].includes(p.kind)).length;
    for (const panel of shown) {
      this.troubles.safely(panel, () => {
        if (panel.kind === "picture") this.panels.push(new PicturePanel(this, panel));
        else if (panel.kind === "map") this.panels.push(new MapPanel(this, panel));
        else if (panel.kind === "table") this.panels.push(new TablePanel(this, panel));
        else if (panel.kind === "lines" || panel.kind === "steps") this.series.push(...seriesRows(this, panel));
        else this.panels.push(customPanel(this, panel));
      });
    }
    const wide = (panel) => panel.root.classList.contains("sl-wide");
    this.pictures.replaceChildren(...this.panels.filter((p) => !wide(p)).map((p) => p.root));
    this.below.replaceChildren(...this.panels.filter(wide).map((p) => p.root));
    this.rows.replaceChildren(...this.series.flatMap((row) => row.elements));
    this.built = true;
    this.measure();
    this.moved();
  }

  // -- moving

  goTo(row, how = "jump") {
    if (how === "kernel" && (this.opening || !this.n)) this.laterRow = row; // Python set the episode and the step
    if (!this.n || (how === "kernel" && this.opening)) return;
    const to = clamp(Math.round(row), 0, this.n - 1);
    if (how === "kernel" && this.playing && isNear(this, to)) return; // a linked viewer that plays too: each has a clock of its own
    if (how !== "play" && this.playing) this.began = null;
    if (how === "key" && this.playing) this.play(false);
    if (to === this.row) return;
    this.direction = to > this.row ? 1 : -1;
    this.row = to;
    if (how !== "kernel") this.traits.save({ step: to });
    this.follow();
    this.moved();
  }

  /** Keep the cursor inside what the series show. */
  follow() {
    const [from, to] = this.window;
    if (this.row >= from && this.row <= to) return;
    const span = to - from;
    const start = clamp(this.row < from ? this.row - Math.round(span * 0.8) : this.row - Math.round(span * 0.2), 0, Math.max(0, this.n - 1 - span));
    this.window = [start, start + span];
  }

  zoom(by, at = this.row) {
    const [from, to] = this.window;
    const span = clamp((to - from) * by, Math.min(16, this.n - 1), this.n - 1);
    const part = to > from ? (at - from) / (to - from) : 0.5;
    const start = clamp(Math.round(at - part * span), 0, this.n - 1 - Math.round(span));
    this.window = by === Infinity ? [0, this.n - 1] : [start, start + Math.round(span)];
    this.moved();
  }

  play(on, tell = true) {
    if (on && this.row >= this.n - 1 && !this.live) this.row = 0;
    this.playing = on && this.n > 0;
    this.began = null;
    if (tell) this.traits.save({ playing: this.playing, step: this.row });
    this.moved();
  }

  setSpeed(speed, tell = true) {
    if (!(speed > 0)) return;
    this.speed = speed;
    this.began = null;
    if (tell) this.traits.save({ speed });
    this.invalidate();
  }

  setLoop(loop, tell = true) {
    this.loop = loop;
    if (tell) this.traits.save({ loop });
    this.invalidate();
  }

  jump(way) {
    if (!this.eventsHere) {
      this.jumpLater = way; // as soon as they are known
      return;
    }
    const rows = [...this.events.filter((event) => !this.kind || event[0] === this.kind).map((event) => event[1]),
      ...(this.kind ? [] : this.bookmarks.filter((mark) => mark.episode === this.k).map((mark) => mark.step))].sort((a, b) => a - b);
    const to = way > 0 ? rows.find((row) => row > this.row) : rows.findLast((row) => row < this.row);
    if (to !== undefined) this.goTo(to, "key");
  }

  setKind(kind) {
    this.kind = kind;
    this.invalidate();
  }

  async stepEpisode(by) {
    if (!this.episodes) return;
    const to = this.episodePlace(this.k) + by;
    if (to >= 0 && to < this.episodes.count) await this.openEpisode(this.episodeNumber(to));
  }

  showAgents(labels, tell = true) {
    const everybody = this.everybody();
    this.agents = labels.filter((label) => everybody.includes(label));
    if (tell) this.traits.save({ agents: this.agents });
    if (!this.built) return;
    this.build();
    this.head.draw();
  }

  // -- bookmarks

  addBookmark(note) {
    if (!this.n) return;
    this.keepBookmarks([...this.bookmarks, { episode: this.k, step: this.row, note: note ?? "" }]);
  }

  removeBookmark(place) {
    this.keepBookmarks(this.bookmarks.filter((_, i) => i !== place));
  }

  keepBookmarks(marks) {
    this.bookmarks = marks;
    this.traits.save({ bookmarks: marks });
    this.traits.flush();
    this.invalidate();
  }

  async jumpTo(mark) {
    if (mark.episode !== this.k) await this.openEpisode(mark.episode, mark.step);
    else this.goTo(mark.step, "jump");
  }

  tick() {
    if (this.live && !this.polling) poll(this);
    else if (this.link.delay() > 2000) this.invalidate();
  }

  // -- drawing

  arrived() {
    this.wantParts();
    this.invalidate();
  }

  moved() {
    this.wantParts();
    this.invalidate();
  }

  wantParts() {
    if (!this.built || this.closed) return;
    const list = [];
    for (const side of this.sides) side.wanted.clear();
    for (const panel of this.panels) this.troubles.safely(panel, () => panel.wants(this.row, this.direction, list));
    for (const row of this.series) this.troubles.safely(row, () => row.wants(list, this.row));
    this.fetcher.want("parts", list);
  }

  invalidate() {
    if (this.frame || this.closed) return;
    this.frame = requestAnimationFrame((now) => {
      this.frame = null;
      this.drawAll(now);
    });
  }

  drawAll(now) {
    if (this.closed) return;
    if (!this.built) {
      this.drawNothing();
      return;
    }
    advance(this, now);
    for (const panel of this.panels) this.troubles.safely(panel, () => panel.draw(this.row));
    for (const row of this.series) this.troubles.safely(row, () => row.draw(this.row));
    this.timeline.draw(this.row);
    this.axis.draw();
    this.bar.draw();
    const x = this.plotLeft + this.xOf(this.row);
    this.cursor.style.transform = `translateX(${Math.round(x * 2) / 2}px)`;
    this.root.setAttribute("data-row", String(this.row));
    if (!this.ready) {
      this.ready = true;
      this.news.tell("ready");
    }
    if (this.playing) this.invalidate();
  }

  /** Before there is anything to draw, say what is wrong. */
  drawNothing() {
    const wrong = this.troubles.worst();
    this.pictures.replaceChildren(...(wrong ? [make("p", { class: "sl-none sl-wrong", role: "alert", text: wrong })] : []));
    this.bar.draw();
  }

  status() {
    if (this.link.delay() > 2000) return "waiting for the kernel …";
    const waiting = this.root.querySelectorAll(".sl-waiting").length;
    if (waiting) return "loading …";
    return [...(this.lacking ?? []), ...(this.difference?.text && this.difference.row === null ? [this.difference.text] : []), ...this.notes].filter(Boolean).join(" · ");
  }

  xOf(row) {
    const [from, to] = this.window;
    return PAD + ((row - from) / Math.max(1, to - from)) * (this.plotWidth - 2 * PAD);
  }

  measure() {
    const width = this.root.clientWidth;
    if (width) this.root.classList.toggle("sl-narrow", width < 600);
    const box = this.timeline.box.getBoundingClientRect();
    if (!box.width) {
      // Hidden for the moment, as while Jupyter changes its theme: look again, and keep what there was.
      clearTimeout(this.later);
      this.later = setTimeout(() => !this.closed && this.measure(), 200);
      return;
    }
    const left = box.left - this.track.getBoundingClientRect().left;
    if (box.width === this.plotWidth && left === this.plotLeft) return;
    this.plotWidth = Math.floor(box.width);
    this.plotLeft = left;
    this.moved();
  }

  closeMenus(but = null) {
    let open = false;
    for (const menu of this.head.menus) {
      if (menu === but) continue;
      open ||= !menu.body.hidden;
      menu.toggle(false);
    }
    for (const panel of this.panels) open = panel.openTuner?.(false) || open;
    return open;
  }
}
