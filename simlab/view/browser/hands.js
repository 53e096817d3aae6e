// What hands do: keys, drags, the wheel. The notebook never sees a key that was meant for the viewer.

import { clamp } from "./base.js";
import { PAD } from "./timeline.js";

/** Listen to everything that happens inside the viewer; returns what undoes it outside of it. */
export function listenToHands(view) {
  const away = (event) => {
    if (!view.root.contains(event.target)) view.closeMenus();
  };
  document.addEventListener("pointerdown", away);
  const lend = (event) => lendKeys(view, event);
  window.addEventListener("keydown", lend, true);
  view.root.addEventListener("keydown", (event) => key(view, event));
  view.root.addEventListener("pointerdown", (event) => {
    if (!event.target.closest?.(".sl-menu-root, .sl-tuner, .sl-tune")) view.closeMenus();
    if (!event.target.closest?.("button, input, select, label, .sl-menu, .sl-tuner, .sl-table")) view.root.focus({ preventScroll: true });
  });
  dragging(view);
  return () => {
    document.removeEventListener("pointerdown", away);
    window.removeEventListener("keydown", lend, true);
  };
}

function dragging(view) {
  const seek = (event, rect, full) => {
    const part = (event.clientX - rect.left - PAD) / Math.max(1, rect.width - 2 * PAD);
    const [from, to] = full ? [0, view.n - 1] : view.window;
    view.goTo(from + part * (to - from), "drag");
  };
  view.rows.addEventListener("pointerdown", (event) => {
    const plot = event.target.closest(".sl-plot");
    if (!plot || event.button !== 0) return;
    plot.setPointerCapture(event.pointerId);
    const rect = plot.getBoundingClientRect();
    if (view.playing) view.play(false);
    seek(event, rect, false);
    const move = (e) => seek(e, rect, false);
    plot.addEventListener("pointermove", move);
    plot.addEventListener("lostpointercapture", () => plot.removeEventListener("pointermove", move), { once: true });
    event.preventDefault();
    view.root.focus({ preventScroll: true });
  });
  view.track.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page keeps its wheel
    const plot = event.target.closest(".sl-plot, .sl-timeline");
    if (!plot) return;
    event.preventDefault();
    const rect = plot.getBoundingClientRect();
    const part = (event.clientX - rect.left - PAD) / Math.max(1, rect.width - 2 * PAD);
    const [from, to] = view.window;
    view.zoom(event.deltaY > 0 ? 1.25 : 0.8, clamp(from + part * (to - from), 0, view.n - 1));
  }, { passive: false });
}

const MODIFIED = (event) => event.ctrlKey || event.metaKey || event.altKey;
const OF_TEXT = /^([acvxyz]|Arrow.*|Backspace|Delete|Home|End)$/i;
const WRITING = "input:not([type=range]):not([type=checkbox]), select, textarea";
const ASIDE = "data-lm-suppress-shortcuts";

/**
 * Keys with Ctrl, Meta or Alt belong to the notebook (Ctrl+S saves it), which listens before the viewer does and leaves alone what
 * lies in elements with a certain attribute. So it is taken away while such a key goes by.
 */
function lendKeys(view, event) {
  const { target } = event;
  if (!MODIFIED(event) || !view.root.contains(target) || (target.matches(WRITING) && OF_TEXT.test(event.key))) return;
  const guarded = [];
  for (let at = target; at; at = at === view.root ? null : at.parentElement) if (at.hasAttribute(ASIDE)) guarded.push(at);
  for (const element of guarded) element.removeAttribute(ASIDE);
  setTimeout(() => guarded.forEach((element) => element.setAttribute(ASIDE, "true")));
}

/** Keys that scroll a table, choose in a window or set a slider stay with it. */
function keepsKey(target, key) {
  if (target.closest(".sl-menu, .sl-tuner")) return key !== "?";
  return target.closest(".sl-table") !== null && /^(Arrow(Up|Down)|Page(Up|Down)|Home|End)$/.test(key);
}

function key(view, event) {
  if (MODIFIED(event) || event.isComposing) return;
  const { target } = event;
  event.stopPropagation(); // the notebook has letters of its own
  const writing = target.matches?.(WRITING);
  if (event.key === "Escape") {
    if (!view.closeMenus()) (writing || target !== view.root ? view.root.focus({ preventScroll: true }) : view.root.blur());
    event.preventDefault();
    return;
  }
  const pressed = target.matches?.("button, summary, input[type=checkbox]") && (event.key === " " || event.key === "Enter");
  const choosing = target.matches?.("select") && "[]?".includes(event.key); // no option begins with these
  if ((writing && !choosing) || pressed || keepsKey(target, event.key)) return;
  const far = event.shiftKey ? 10 : 1;
  const sliding = target.matches("input[type=range]");
  const acts = {
    ArrowRight: () => view.goTo(view.row + far, "key"), ArrowLeft: () => view.goTo(view.row - far, "key"),
    ".": () => view.goTo(view.row + 1, "key"), ",": () => view.goTo(view.row - 1, "key"),
    PageDown: () => view.goTo(view.row + 100, "key"), PageUp: () => view.goTo(view.row - 100, "key"),
    Home: () => view.goTo(0, "key"), End: () => view.goTo(view.n - 1, "key"),
    ArrowDown: () => (sliding ? view.goTo(view.row - far, "key") : view.stepEpisode(1)),
    ArrowUp: () => (sliding ? view.goTo(view.row + far, "key") : view.stepEpisode(-1)),
    " ": () => view.play(!view.playing), "[": () => view.jump(-1), "]": () => view.jump(1),
    "+": () => view.bar.faster(1), "=": () => view.bar.faster(1), "-": () => view.bar.faster(-1),
    l: () => view.setLoop(!view.loop), m: () => view.head.marks.toggle(true), "?": () => view.head.help.toggle(),
    z: () => view.zoom(0.5), Z: () => view.zoom(2), 0: () => view.zoom(Infinity),
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}
