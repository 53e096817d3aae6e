// What Python knows: traits of the widget, set at once in the browser and told to the kernel a little later.

const SAVE_MS = 150;

export class Traits {
  constructor(model) {
    this.model = model;
    this.pending = new Map();
    this.sent = [];
    this.undo = [];
  }

  /** Act when Python, or a widget that is linked in the browser, sets a trait. */
  heed(name, act) {
    const ear = () => {
      const value = this.model.get(name);
      if (this.setting || this.isEcho(name, value)) return;
      this.pending.delete(name);
      act(value);
    };
    this.model.on(`change:${name}`, ear);
    this.undo.push(() => this.model.off(`change:${name}`, ear));
  }

  /** Set traits at once here, so that widgets linked in the browser follow, and tell the kernel a little later. */
  save(values) {
    this.setting = true;
    for (const [name, value] of Object.entries(values)) {
      this.model.set(name, value);
      this.pending.set(name, value);
    }
    this.setting = false;
    this.saving ??= setTimeout(() => this.flush(), SAVE_MS);
  }

  /** The kernel says again what it was told a moment ago, while this view has gone on: that must not turn it back. */
  isEcho(name, value) {
    return this.pending.has(name) && this.sent.some(([n, v]) => n === name && v === JSON.stringify(value));
  }

  flush() {
    if (this.saving === undefined || this.saving === null) return;
    clearTimeout(this.saving);
    this.saving = null;
    this.setting = true;
    for (const [name, value] of this.pending) {
      this.model.set(name, value); // an echo may have come in between
      this.sent.push([name, JSON.stringify(value)]);
    }
    this.setting = false;
    this.sent = this.sent.slice(-24);
    this.pending.clear();
    this.model.save_changes();
  }

  close() {
    this.flush();
    for (const undo of this.undo) undo();
  }
}
