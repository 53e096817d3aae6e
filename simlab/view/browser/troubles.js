// What goes wrong: shown with its reason, tried again a few times, forgotten when it is well again.

import { MOST_TRIES, RETRY_MS } from "./link.js";

export class Troubles {
  constructor(view) {
    this.view = view;
    this.reasons = new Map();
    this.broken = new Set();
  }

  /** Keep a reason until it is well again; `what` tells troubles apart. */
  add(error, what = "view") {
    if (error.message === "closed") return;
    this.reasons.set(what, error.message);
    this.view.invalidate();
  }

  well(what) {
    if (this.reasons.delete(what)) this.view.invalidate();
  }

  /** What is shown. */
  worst() {
    return [...this.reasons.values()][0] || this.view.fetcher.trouble();
  }

  /** Ask, and where that fails show why and ask again, a few times. */
  async insist(what, ask, isOver = () => false) {
    for (let tries = 1; ; tries++) {
      try {
        const answer = await ask();
        this.well(what);
        return answer;
      } catch (error) {
        if (this.view.closed || isOver()) throw error;
        this.add(error, what);
        if (tries === MOST_TRIES) throw error;
        await new Promise((done) => setTimeout(done, RETRY_MS * tries));
        if (this.view.closed || isOver()) throw error;
      }
    }
  }

  /** One panel that fails leaves the others alone; what is wrong with it is said once. */
  safely(panel, act) {
    try {
      act();
    } catch (error) {
      if (this.broken.has(panel)) return;
      this.broken.add(panel);
      const name = panel.name ?? panel.variable ?? panel.kind ?? panel.panel?.variable ?? panel.panel?.kind ?? "";
      this.add(new Error(`Panel ${name}: ${error.message}`), "panel");
    }
  }
}
