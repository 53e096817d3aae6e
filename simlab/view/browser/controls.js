// The two bars: which episode, who, what; and how to move through it.

import { button, icon, make, say, setIcon } from "./base.js";
import { agentsMenu, helpMenu, marksMenu, panelsMenu } from "./menus.js";

const MOST_SIGNS = 8;
const SPEEDS = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480];

export class Head {
  constructor(view) {
    this.view = view;
    this.select = make("select", { class: "sl-episode", "aria-label": "Episode", on: { change: () => view.openEpisode(view.episodeNumber(this.select.selectedIndex)) } });
    this.number = make("input", { class: "sl-episode", type: "number", hidden: true, "aria-label": "Number of the episode", on: { change: () => view.openEpisode(Number(this.number.value)) } });
    this.facts = make("span", { class: "sl-facts sl-episode-facts" });
    this.live = make("span", { class: "sl-live", hidden: true, text: "live" });
    this.agents = agentsMenu(view);
    this.menus = [this.agents, panelsMenu(view), marksMenu(view), helpMenu(view)];
    this.marks = this.menus[2];
    this.help = this.menus[3];
    this.root = make("div", { class: "sl-head", role: "toolbar", "aria-label": "Episode and agents" },
      button("left", "Previous episode (↑)", () => view.stepEpisode(-1)), this.select, this.number, button("right", "Next episode (↓)", () => view.stepEpisode(1)),
      this.facts, this.live, make("span", { class: "sl-menus" }, ...this.menus.map((menu) => menu.root)));
  }

  list(episodes) {
    this.episodes = episodes;
    const named = episodes.names !== null;
    this.select.hidden = !named;
    this.number.hidden = named;
    if (named) {
      this.select.replaceChildren(...episodes.names.map((name, i) => {
        const option = make("option", { text: `Episode ${this.view.episodeNumber(i)} · ${name}` });
        return option;
      }));
    }
    this.draw();
  }

  draw() {
    const { view } = this;
    if (!view.about) return;
    if (this.episodes?.names) this.select.selectedIndex = view.episodePlace(view.k);
    else this.number.value = String(view.k);
    const other = view.sides[1]?.about;
    const facts = view.about.facts.slice(0, 3).join(" · ");
    say(this.facts, other ? `A: ${facts}   B: episode ${other.k} · ${other.facts.slice(0, 3).join(" · ")}` : this.episodes?.names ? "" : facts);
    this.facts.title = this.facts.textContent;
    this.live.hidden = !view.live;
    this.agents.tell();
  }
}

export class Bar {
  constructor(view) {
    this.view = view;
    this.playing = icon("play");
    this.play = make("button", { type: "button", class: "sl-button sl-play", on: { click: () => view.play(!view.playing) } }, this.playing);
    this.speed = make("select", { class: "sl-speed", "aria-label": "Speed, steps per second", title: "Steps per second", on: { change: () => view.setSpeed(Number(this.speed.value)) } });
    this.loop = button("loop", "Loop (l)", () => view.setLoop(!view.loop), { "aria-pressed": "false" });
    this.kind = make("select", { class: "sl-kind", "aria-label": "Which events to jump to", on: { change: () => view.setKind(this.kind.value) } });
    this.signs = make("span", { class: "sl-signs" });
    this.what = make("span", { class: "sl-what" });
    this.status = make("span", { class: "sl-status", role: "status", "aria-live": "polite" });
    this.root = make("div", { class: "sl-bar-row", role: "toolbar", "aria-label": "Playing" },
      make("span", { class: "sl-group" }, button("first", "First step (Home)", () => view.goTo(0, "jump")), button("back", "One step back (←)", () => view.goTo(view.row - 1, "key")),
        this.play, button("on", "One step on (→)", () => view.goTo(view.row + 1, "key")), button("last", "Last step (End)", () => view.goTo(view.n - 1, "jump")), this.loop, this.speed),
      make("span", { class: "sl-group" }, button("left", "Previous event ([)", () => view.jump(-1)), this.kind, button("right", "Next event (])", () => view.jump(1))),
      this.signs, this.what, this.status);
  }

  draw() {
    const { view } = this;
    if (this.shown !== view.playing) {
      this.shown = view.playing;
      setIcon(this.playing, view.playing ? "pause" : "play");
      const label = view.playing ? "Pause (Space)" : "Play (Space)";
      this.play.setAttribute("aria-label", label);
      this.play.title = label;
      this.play.setAttribute("aria-pressed", String(view.playing));
    }
    if (this.speed.value !== String(view.speed)) {
      const speeds = SPEEDS.includes(view.speed) ? SPEEDS : [...SPEEDS, view.speed].sort((a, b) => a - b);
      this.speed.replaceChildren(...speeds.map((speed) => make("option", { value: String(speed), text: `${speed}/s` })));
      this.speed.value = String(view.speed);
    }
    this.loop.setAttribute("aria-pressed", String(view.loop));
    const happened = view.events.filter((event) => event[1] === view.row && (!view.kind || event[0] === view.kind)).map((event) => event[2]);
    const marked = view.bookmarks.filter((mark) => mark.episode === view.k && mark.step === view.row).map((mark) => `⚑ ${mark.note || "bookmark"}`);
    say(this.what, [...happened, ...marked].slice(0, 3).join(" · "));
    const wrong = view.troubles.worst();
    const status = wrong || view.status();
    if (this.status.textContent !== status) this.status.title = status;
    say(this.status, status);
    this.status.classList.toggle("sl-wrong", wrong !== "");
  }

  kinds(events) {
    const counts = new Map();
    for (const [kind] of events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    this.kind.replaceChildren(make("option", { value: "", text: `any event (${events.length})` }),
      ...[...counts].map(([kind, count]) => make("option", { value: kind, text: `${kind} (${count})` })));
    this.signs.replaceChildren(...[...counts.keys()].slice(0, MOST_SIGNS).map((kind) => make("span", { class: "sl-sign", title: `marks of the timeline: ${kind}` },
      make("i", { class: kind === "birth" ? "sl-up" : kind === "death" ? "sl-down" : null, style: `--sl-dot: ${this.view.timeline.colorOf(kind)}` }), make("span", { text: kind }))));
    if (this.view.kind && !counts.has(this.view.kind)) this.view.kind = "";
    this.kind.value = this.view.kind;
  }

  faster(by) {
    const at = SPEEDS.findIndex((speed) => speed >= this.view.speed);
    this.view.setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, (at < 0 ? SPEEDS.length - 1 : at) + by))]);
  }
}
