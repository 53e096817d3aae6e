// Questions to the kernel and their answers; what is no longer wanted is never asked.

import { unique } from "./base.js";

export class KernelLink {
  constructor(model) {
    this.model = model;
    this.waiting = new Map();
    this.count = 0;
    this.name = unique();
    this.hear = (answer, buffers) => {
      const entry = this.waiting.get(answer?.id);
      if (!entry) return;
      this.waiting.delete(answer.id);
      const octets = (buffers ?? []).map((b) => (b.buffer ? new Uint8Array(b.buffer, b.byteOffset, b.byteLength) : new Uint8Array(b)));
      if (answer.error) entry.reject(new Error(answer.error));
      else entry.resolve([answer, octets]);
    };
    model.on("msg:custom", this.hear);
  }
  ask(question) {
    const id = `${this.name}.${this.count++}`;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, since: performance.now() });
      this.model.send({ ...question, id });
    });
  }
  /** Milliseconds that the oldest question has been waiting. */
  delay() {
    const oldest = this.waiting.values().next().value;
    return oldest ? performance.now() - oldest.since : 0;
  }
  close() {
    this.model.off("msg:custom", this.hear);
    for (const entry of this.waiting.values()) entry.reject(new Error("closed"));
    this.waiting.clear();
  }
}

const MOST_IN_FLIGHT = 6;
export const RETRY_MS = 1500;
export const MOST_TRIES = 5;
const GIVEN_UP_MS = 30_000;

/** Asks for what is wanted now, the most urgent first, a few at a time. */
export class Fetcher {
  constructor(link, changed) {
    this.link = link;
    this.changed = changed;
    this.wanted = new Map();
    this.flying = new Set();
    this.failed = new Map();
    this.current = new Set();
    this.closed = false;
  }
  /** Replace what a group wants: [{key, urgency, question, take}]. */
  want(group, items) {
    this.wanted.set(group, items);
    this.current = new Set(items.map((item) => item.key));
    this.pump();
  }
  /** Look again after some time at what is wanted; the earliest time that was said counts, and is followed by the next. */
  later(pause) {
    const at = performance.now() + pause;
    if (this.closed || (this.timer && this.at <= at)) return;
    clearTimeout(this.timer);
    this.at = at;
    this.timer = setTimeout(() => {
      this.timer = null;
      if (!this.closed) this.changed({});
    }, pause + 5);
  }
  /** Keep why something failed, and say when to try again: a few times by itself, then only when it is wanted anew. */
  miss(key, error, lasting = false) {
    const times = (this.failed.get(key)?.times ?? 0) + 1;
    const again = performance.now() + (times < MOST_TRIES ? RETRY_MS * times : GIVEN_UP_MS);
    this.failed.set(key, { times, again, why: error.message, lasting });
    return again;
  }
  forget(prefix) {
    for (const key of [...this.failed.keys()]) if (key.startsWith(prefix)) this.failed.delete(key);
  }
  /** Why something that is wanted now is not here; "" if nothing failed. */
  trouble() {
    for (const [key, { why, times, lasting }] of this.failed) {
      if (lasting || this.current.has(key)) return times < MOST_TRIES ? `${why} – trying again` : why;
    }
    return "";
  }
  pump() {
    while (!this.closed && this.flying.size < MOST_IN_FLIGHT) {
      let best = null;
      let again = Infinity;
      const now = performance.now();
      for (const items of this.wanted.values()) {
        for (const item of items) {
          if (this.flying.has(item.key) || (best && item.urgency >= best.urgency)) continue;
          const failure = this.failed.get(item.key);
          if (failure && now < failure.again) {
            if (failure.times < MOST_TRIES) again = Math.min(again, failure.again);
            continue;
          }
          best = item;
        }
      }
      if (again < Infinity) this.later(again - now);
      if (!best) return;
      this.start(best);
    }
  }
  async start(item) {
    this.flying.add(item.key);
    for (const [group, items] of this.wanted) this.wanted.set(group, items.filter((other) => other.key !== item.key));
    try {
      const [answer, buffers] = await this.link.ask(item.question);
      await item.take(answer, buffers);
      this.failed.delete(item.key);
    } catch (error) {
      if (this.closed) return;
      this.miss(item.key, error);
    } finally {
      this.flying.delete(item.key);
    }
    if (this.closed) return;
    this.changed(item);
    this.pump();
  }
  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.wanted.clear();
  }
}
