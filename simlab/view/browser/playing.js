// Playing: which row is due, by the wall clock.

const NEAR = 2;
const LATE_S = 0.6;

/** Whether a linked viewer that plays too may be at a row: a step or two away, or where this one was when the kernel was told. */
export function isNear(view, row) {
  const around = (rows) => (view.loop ? ((rows % view.n) + view.n) % view.n : rows);
  const [behind, ahead] = [around(view.row - row), around(row - view.row)];
  return (ahead >= 0 && ahead <= NEAR) || (behind >= 0 && behind <= Math.max(NEAR, LATE_S * view.speed));
}

/**
 * Advance by the wall clock: what comes too late is left out, and nothing drifts.
 *
 * The times of frames are rounded, and come a little early or late. At one step per frame, going by them alone would show a step
 * twice and leave out the next one, again and again; so the next step may come up to half a step early.
 */
export function advance(view, now) {
  if (!view.playing) return;
  view.began ??= { now, row: view.row };
  const due = view.began.row + ((now - view.began.now) * view.speed) / 1000;
  if (due < view.row + 0.5) return;
  const to = Math.max(view.row + 1, Math.floor(due));
  if (to > view.n - 1) {
    if (view.loop && view.n > 1) {
      view.began.row -= to - (to % view.n); // the clock goes on: what is left of a step counts in the next round
      view.row = to % view.n;
    } else {
      view.row = view.n - 1;
      if (!view.live) view.playing = false;
      else view.began = null;
      view.traits.save({ playing: view.playing });
    }
  } else view.row = to;
  view.direction = 1;
  view.traits.save({ step: view.row });
  view.follow();
  view.moved();
}
