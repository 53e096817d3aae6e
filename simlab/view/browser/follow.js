// A run that is being written: new steps appear, and a cursor at the end stays at the end.

/** Ask whether the run has grown; a cursor at the end stays there. */
export async function poll(view) {
  if (view.closed || !view.about) return;
  view.polling = true;
  try {
    const [told] = await view.link.ask({ ask: "grown", episode: view.k });
    view.troubles.well("live");
    const same = told.n === view.sides[0].n && told.episodes === view.episodes?.count;
    if (view.closed || same) return;
    const atEnd = view.row >= view.n - 1;
    const [listed] = await view.link.ask({ ask: "episodes", side: 0 });
    view.episodes = listed;
    view.head.list(listed);
    const newest = view.episodeNumber(listed.count - 1);
    if (atEnd && newest !== view.k && told.complete) {
      await view.openEpisode(newest, -1);
      return;
    }
    const [about] = await view.link.ask(view.sides[0].question("episode"));
    if (view.closed || about.k !== view.k) return;
    grow(view, about, atEnd);
  } catch (error) {
    if (view.closed) return;
    view.fail(error, "live");
  } finally {
    view.polling = false;
  }
}

function grow(view, about, atEnd) {
  const whole = view.window[0] === 0 && view.window[1] >= view.n - 1;
  const people = JSON.stringify(view.about.populations);
  const changed = view.shapeOf(about) !== view.shape;
  view.keepShown(about);
  view.sides[0].take(about);
  view.n = Math.max(...view.sides.map((side) => side.n));
  if (whole) view.window = [0, Math.max(0, view.n - 1)];
  if (atEnd) {
    view.row = Math.max(0, view.n - 1);
    view.traits.save({ step: view.row });
  }
  if (changed || people !== JSON.stringify(about.populations)) {
    if (!view.agents.length) view.agents = view.model.get("agents").filter((label) => view.everybody().includes(label));
    view.shape = view.shapeOf(about);
    view.build();
  }
  view.head.draw();
  view.findEvents(view.generation);
  view.moved();
}
