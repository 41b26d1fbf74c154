"use strict";
// Several runs that are played as one study: the grid of its points with the state of each run; below it, the run that plays.

class Study {
  constructor(data) {
    this.data = data;
    this.get = id => document.getElementById(id);
    this.get("study").hidden = false;
    document.body.classList.toggle("only", !data.shown);
  }

  async begin() {
    for (;;) {
      await this.ask();
      await new Promise(done => setTimeout(done, this.data.period_ms));
    }
  }

  async ask() {
    let reply;
    try {
      reply = await fetch("study");
    } catch {
      this.get("counts").textContent = `the sweep has ended, or was ended; its tables and runs: ${this.data.directory}`;
      document.body.dataset.study = "ended";
      await new Promise(() => {});  // Nothing comes any more.
    }
    if (!reply.ok) throw new Error(`the sweep's server answers ${reply.status}`);
    this.draw(await reply.json());
  }

  draw({ counts, points }) {
    const states = points.flatMap(point => point.runs.map(run => run.state)), { data } = this;
    const cells = Object.entries(counts).map(([name, text]) => `${name} ${text}`).join(", ");
    this.get("counts").textContent = `${data.name} (${data.facts}): ${cells}`;
    this.get("states").replaceChildren(...data.colours.map(state => h("span", { class: `chip ${state}` }, `${state} ${states.filter(one => one === state).length}`)));
    const head = h("tr", {}, data.axes.map(axis => h("th", {}, axis)), h("th", {}, "runs, by seed"));
    const rows = points.map(point => h("tr", {}, point.values.map(value => h("td", {}, value)), h("td", {}, h("div", { class: "chips" }, point.runs.map(run => this.chip(run))))));
    this.get("grid").replaceChildren(h("thead", {}, head), h("tbody", {}, rows));
    document.body.dataset.study = "live";
    const isOver = !points.some(point => point.runs.some(run => run.key === data.shown && run.state === "playing"));
    if (isOver && states.includes("playing")) location.replace("./");  // The map is of another run, perhaps of another fabric.
  }

  // A run: what plays is shown below when it is chosen, what has ended in a page of its own.
  chip({ key, seed, state, words, fraction }) {
    const attributes = { class: `chip ${state}${key === this.data.shown ? " shown" : ""}`, title: `${state}: ${words || key}` };
    if (state === "playing") {
      const done = Math.round(100 * fraction);
      return h("a", { ...attributes, href: `?run=${key}`, style: `--done: ${done}%` }, `${seed}: ${done} %`);
    }
    const hasPage = !["waiting", "failed"].includes(state);
    return h(hasPage ? "a" : "span", hasPage ? { ...attributes, href: `run/${key}/`, target: "_blank" } : attributes, `${seed}`);
  }
}

if (DATA.runs.length) {
  const page = new Page(DATA);
  window.fabricView = page;
  if (page.isLive) new LiveRun(page).begin(); else page.start();
}
if (DATA.study) new Study(DATA.study).begin();
