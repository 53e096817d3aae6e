// Light or dark: colours for what is drawn on canvases come from the style sheet, and that takes Jupyter's.

import { make } from "./base.js";

const LIGHT = ["#d55e00", "#0072b2", "#009e73", "#b45c93", "#b87d00", "#3d9bd1", "#6b4e9b", "#8c5614"];
const DARK = ["#ff8a3d", "#5cb3ea", "#3ccba0", "#e59ac4", "#f0b840", "#9ad4f5", "#b39ae0", "#d09a55"];

/** The colour of the agent at a place among those that are shown; people who are colour-blind can tell them apart. */
export function agentColor(place, theme) {
  const colors = theme === "dark" ? DARK : LIGHT;
  return place < 0 ? null : colors[place % colors.length];
}

export function findTheme(view) {
  const style = getComputedStyle(view.root);
  const probe = make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const colorAt = (name, otherwise) => {
    probe.fillStyle = otherwise;
    probe.fillStyle = style.getPropertyValue(name).trim() || otherwise;
    return probe.fillStyle;
  };
  const declared = style.getPropertyValue("--jp-layout-color0").trim();
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  probe.fillStyle = declared || (view.root.closest(".sl-page") && dark ? "#16181b" : "#ffffff");
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  const theme = 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light";
  view.root.classList.toggle("sl-dark", theme === "dark");
  const changed = theme !== view.theme;
  view.theme = theme;
  view.ink = colorAt("--sl-ink", theme === "dark" ? "#e6e8eb" : "#22262b");
  view.faint = colorAt("--sl-faint", "#666d77");
  view.rule = colorAt("--sl-rule", "#d9dce0");
  view.dim = theme === "dark" ? "rgb(148 155 166 / 12%)" : "rgb(117 124 134 / 9%)";
  view.back = colorAt("--sl-back", theme === "dark" ? "#16181b" : "#ffffff");
  view.accent = colorAt("--sl-accent", "#0072b2");
  view.font = style.fontFamily || "sans-serif";
  if (changed && view.built) view.build();
  else view.invalidate();
}
