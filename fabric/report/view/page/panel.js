"use strict";
// The panel: an overview of where to look first, or all about what is chosen, at the time of the slider.

const MOST_ROWS = 60;

function table(columns, rows, note) {
  return h("table", {}, h("thead", {}, h("tr", {}, columns.map(name => h("th", {}, name)))), h("tbody", {}, rows), note ? h("caption", {}, note) : null);
}

function leading(go, cells, attributes = {}) {
  return h("tr", { class: "leads", tabindex: 0, onclick: go, onkeydown: event => { if (event.key === "Enter") go(); }, ...attributes }, cells.map(cell => h("td", {}, cell)));
}

class Panel {
  constructor(element, page) {
    Object.assign(this, { element, page, update: () => {}, chart: null });
  }

  // Build the panel for what is chosen; `update` then changes only what depends on the time.
  build() {
    const { chosen } = this.page, made = { port: this.ofPort, node: this.ofNode, job: this.ofJob, tree: this.ofTree, names: this.ofNames, userjob: chosen => this.page.users.ofJob(chosen) }[chosen?.kind];
    this.update = () => {};
    this.chart = null;
    this.element.replaceChildren(...(made || this.overview).call(this, chosen).filter(Boolean));
    this.update();
  }

  close() { return h("button", { class: "go", onclick: () => this.page.choose(null) }, "overview"); }

  overview() {
    const { run } = this.page.first, out = [];
    if (run.meta.answer) out.push(h("h2", {}, "Answer"), h("p", {}, run.meta.answer));
    for (const reason of run.meta.verdict.reasons) out.push(h("p", { class: "soft" }, `verdict: ${reason}`));
    for (const note of run.meta.verdict.notes) out.push(h("p", { class: "soft" }, `note: ${note}`));
    if (run.meta.opening) out.push(h("p", { class: "soft", id: "opening" }, `opened at ${run.meta.opening.why}`));
    if (this.page.users.of(run).length) {
      const { out: users, update } = this.page.users.overview();
      out.push(...users);
      this.update = update;
    }
    for (const found of run.meta.findings) out.push(h("h2", {}, found.title), this.findingTable(found));
    if (this.page.isLive) out.push(this.busiestNow());
    if (run.jobs.length) out.push(h("h2", {}, "Jobs"), h("p", {}, run.jobs.map(job => this.jobButton(job))));
    return out;
  }

  // Rows of one phase below its title, which is then no column.
  findingTable(found) {
    const go = row => () => this.page.follow(row);
    if (found.columns[0] !== "phase") return table(found.columns, found.rows.map(row => leading(go(row), row.cells)), found.note);
    const rows = [], columns = found.columns.slice(1);
    let title = null;
    for (const row of found.rows) {
      if (row.cells[0] !== title && row.cells[0] !== "-") rows.push(h("tr", { class: "group" }, h("th", { colspan: columns.length }, row.cells[0])));
      title = row.cells[0];
      rows.push(leading(go(row), row.cells.slice(1)));
    }
    return table(columns, rows, found.note);
  }

  // Of a run that plays: the ports that send most of their link, and the deepest queues, at this time.
  busiestNow() {
    const box = h("div"), { page } = this, before = this.update;
    this.update = () => {
      before();
      const { phase, sample, run } = page.first, { ports, rates_bps: rates, owners, peers } = run.fabric;
      const [rate, backlog] = ["sent_bytes", "backlog_bytes"].map(column => { const out = new Float64Array(ports.length); phase.fill(METRICS.find(metric => metric.column === column), sample, -1, out); return out; });
      const share = port => (Number.isNaN(rate[port]) ? 0 : rate[port] / rates[port]);
      const found = [...ports.keys()].filter(port => share(port) >= 0.0005 || backlog[port] > 0).sort((a, b) => share(b) - share(a)).slice(0, 12);
      const rows = found.map(port => leading(() => page.choose({ kind: "port", port }), [`${ports[port]} → ${owners[peers[port]]}`, formatPercent(share(port)), formatSize(backlog[port])]));
      box.replaceChildren(h("h2", {}, "Busiest ports at this time"), rows.length ? table(["port", "of its link", "queue"], rows) : h("p", { class: "soft" }, "no port sends"));
    };
    return box;
  }

  jobButton(job) {
    return h("span", {}, h("span", { class: "dot", style: `background:${this.page.jobColour(job)}` }), h("button", { class: "go", onclick: () => this.page.choose({ kind: "job", job }) }, job), "  ");
  }

  portButton(port) {
    const fabric = this.page.first.run.fabric;
    return h("button", { class: "go", onclick: () => this.page.choose({ kind: "port", port }) }, fabric.ports[port]);
  }

  nodeButton(node) { return h("button", { class: "go", onclick: () => this.page.choose({ kind: "node", node }) }, node); }

  // What the names of are like a text that was searched for.
  ofNames({ text, names }) {
    const { page } = this, rows = names.slice(0, MOST_ROWS).map(({ name, what, choice }) => leading(() => page.choose(choice), [name, what]));
    const more = names.length > MOST_ROWS ? `the first ${MOST_ROWS} of ${formatCount(names.length)}; type more of the name` : "";
    return [h("h2", {}, `${formatCount(names.length)} names with ${text}`), this.close(), table(["name", "what it is"], rows, more)];
  }

  // A port: its lanes at this time and over time, its peer, the flows that it carries.
  ofPort({ port }) {
    const { page } = this, { fabric } = page.first.run, peer = fabric.peers[port];
    const numbers = h("div", { id: "numbers" }), beside = h("div"), flows = h("div"), charts = h("div", { id: "charts-box" });
    const others = page.second ? [h("h3", {}, `compared with: ${page.second.phase.meta.title}`), beside] : [];
    this.update = () => {
      numbers.replaceChildren(this.lanesTable(page.first, port));
      if (page.second) beside.replaceChildren(page.second.run.portOf.has(fabric.ports[port]) ? this.lanesTable(page.second, page.second.run.portOf.get(fabric.ports[port])) : "no such port");
      this.moveChartCursor();
      if (this.flowsOf !== page.first.phase) { this.flowsOf = page.first.phase; flows.replaceChildren(...this.flowsThrough(port)); this.drawCharts(charts, port); }
    };
    this.flowsOf = null;
    return [
      h("h2", {}, `${fabric.ports[port]} → ${fabric.ports[peer]}`), this.close(),
      h("p", { class: "soft" }, `${formatRate(fabric.rates_bps[port])}, ${fabric.tiers[port]}; other direction: `, this.portButton(peer), "; node: ", this.nodeButton(fabric.owners[port]), "; sends to: ", this.nodeButton(fabric.owners[peer])),
      h("h3", {}, "lanes at this time"), numbers, ...others, h("h3", {}, "over this phase"), charts, flows,
    ];
  }

  lanesTable({ phase, sample }, port) {
    const { page } = this, keys = phase.keysOf.get(port) || [], shown = METRICS.filter(metric => phase.has(metric));
    const rate = page.first.run.fabric.rates_bps[port];
    const rows = keys.map(key => {
      const lane = page.laneName(phase.run, phase.arrays.lanes[key]);
      const cells = shown.map(metric => {
        const value = phase.value(metric, sample, key), share = metric.unit === "bit/s" && !Number.isNaN(value) ? ` (${formatPercent(value / rate)})` : "";
        return h("td", { "data-metric": metric.label, "data-value": value }, Number.isNaN(value) ? "-" : metric.text(value) + share);
      });
      const raws = Object.keys(phase.columns).map(name => [`data-${name.replaceAll("_", "-")}`, phase.raw(name, sample, key)]);
      return h("tr", { "data-lane": lane, ...Object.fromEntries(raws) }, h("td", {}, h("span", { class: "dot", style: `background:${page.laneColour(lane)}` }), lane), cells);
    });
    return table(["lane", ...shown.map(metric => metric.label)], rows, `sample at ${phase.arrays.at[sample].toFixed(6)} s; rates: since the sample before${shown.filter(metric => metric.label.includes(" ")).map(metric => `; ${metric.label}: ${metric.meaning}`).join("")}`);
  }

  flowsThrough(port) {
    const { phase } = this.page.first, found = phase.flowsWhere(flow => flow.ports.includes(port));
    if (!phase.flows.ports.length) return [];
    return [h("h3", {}, `flows in this phase that may come this way: ${formatCount(found.length)}`), this.flowsTable(found)];
  }

  flowsTable(found) {
    const rows = found.slice(0, MOST_ROWS).map(flow => leading(() => this.page.lightFlow(flow), [flow.job, `${flow.host} → ${flow.peer}`, flow.ways > 1 ? `${flow.ways}` : flow.ways ? "1" : "?", flow.stall ? `${formatPercent(flow.stall.slowed_s / flow.stall.active_s)}${flow.stall.victim ? ", victim" : ""}` : ""]));
    const more = found.length > MOST_ROWS ? `the first ${MOST_ROWS} of ${formatCount(found.length)}` : "";
    return table(["job", "flow", "paths", "slowed by others"], rows, more);
  }

  // A host or a switch: its ports at this time, its flows.
  ofNode({ node }) {
    const { page } = this, { run } = page.first, info = run.nodeOf.get(node), ports = run.portsOf.get(node);
    const now = h("div"), flows = h("div");
    this.flowsOf = null;
    this.update = () => {
      now.replaceChildren(this.portsTable(ports));
      if (this.flowsOf === page.first.phase) return;
      this.flowsOf = page.first.phase;
      const found = page.first.phase.flowsWhere(flow => flow.host === node || flow.peer === node);
      flows.replaceChildren(...(info.level === 0 ? [h("h3", {}, `flows in this phase: ${formatCount(found.length)}`), this.flowsTable(found)] : []));
    };
    return [
      h("h2", {}, node), this.close(),
      h("p", { class: "soft" }, `${info.role}${info.zone === null ? "" : `, zone ${info.zone}`}, ${ports.length === 1 ? "1 port" : `${ports.length} ports`}; `, h("button", { class: "go", onclick: () => page.openNode(node) }, "look at its ports one by one")),
      ...page.users.ofNode(node), h("h3", {}, "what it sends and is sent at this time"), now, flows,
    ];
  }

  portsTable(ports) {
    const { page } = this, { fabric } = page.first.run, { phase, sample } = page.first, metric = page.metric;
    const values = page.maps[0].values;
    const cell = port => { const value = values[port]; return Number.isNaN(value) ? "-" : metric.text(value); };
    const rows = ports.slice(0, MOST_ROWS).map(port => leading(() => page.choose({ kind: "port", port }), [`${fabric.ports[port]} → ${fabric.owners[fabric.peers[port]]}`, cell(port), cell(fabric.peers[port])]));
    return table(["port", `sends: ${metric.label}`, "is sent"], rows, `${page.laneWords()}, at ${phase.arrays.at[sample].toFixed(4)} s`);
  }

  // A job: the paths of its flows light up; its steps, and how congestion slowed it.
  ofJob({ job }) {
    const { page } = this, { run } = page.first, steps = h("div"), flows = h("div");
    this.flowsOf = null;
    this.update = () => {
      steps.replaceChildren(...this.stepsOf(run, job), ...this.streamsOf(run, job));
      if (this.flowsOf === page.first.phase) return;
      this.flowsOf = page.first.phase;
      const found = page.first.phase.flowsWhere(flow => flow.job === job), slowed = found.filter(flow => flow.stall && flow.stall.slowed_s > 0);
      slowed.sort((a, b) => b.stall.slowed_s - a.stall.slowed_s);
      flows.replaceChildren(h("h3", {}, `flows in this phase: ${formatCount(found.length)}; slowed by ports that they do not use: ${slowed.length}`), this.flowsTable([...slowed, ...found.filter(flow => !slowed.includes(flow))]));
    };
    return [h("h2", {}, "job ", this.jobButton(job)), this.close(), steps, flows];
  }

  stepsOf(run, job) {
    const time = this.page.first.time, all = run.meta.steps.filter(step => step[1] === job);
    if (!all.length) return [h("p", { class: "soft" }, "no steps: neither a collective nor a graph of work")];
    const here = all.filter(step => step[0] === this.page.first.phase.meta.name), now = here.find(step => step[3] <= time && time <= step[4]);
    const lengths = here.map(step => step[4] - step[3]).sort((a, b) => a - b);
    const words = here.length ? `steps in this phase: ${here.length}, median ${formatTime(lengths[lengths.length >> 1])}, longest ${formatTime(lengths[lengths.length - 1])}` : "no steps in this phase";
    const present = now ? `now: step ${now[2]}, ${formatTime(time - now[3])} of ${formatTime(now[4] - now[3])}` : "now: between steps";
    const slowest = [...here].sort((a, b) => (b[4] - b[3]) - (a[4] - a[3])).slice(0, 5);
    const rows = slowest.map(step => leading(() => this.page.moveTo(step[3]), [`${step[2]}`, `${step[3].toFixed(4)} s`, formatTime(step[4] - step[3])]));
    return [h("p", {}, words), h("p", {}, present), table(["slowest steps", "began at", "took"], rows)];
  }

  // The streams of a job's ranks: what each runs now, and for which part of the phase it is busy.
  streamsOf(run, job) {
    const time = this.page.first.time, { started_s, ended_s } = this.page.first.phase.meta, tracks = run.meta.streams.filter(track => track.job === job);
    if (!tracks.length) return [];
    const rows = tracks.slice(0, MOST_ROWS).map(track => {
      const here = track.played.filter(([, , , begin, end]) => end >= started_s && begin <= ended_s), now = here.find(([, , , begin, end]) => begin <= time && time <= end);
      const from = Math.min(...here.map(one => one[3])), until = Math.max(...here.map(one => one[4])), busy = here.reduce((sum, [, , , begin, end]) => sum + end - begin, 0);
      return leading(() => here.length && this.page.moveTo(here[0][3]), [track.name, now ? now[0] : "-", here.length && until > from ? `${Math.round(100 * busy / (until - from))} %` : "-"]);
    });
    return [table(["stream", "now", "busy"], rows, "busy: of the time from its first recorded operation in the phase to its last; operations of no stream overlap")];
  }

  // A congestion tree: its root, and at this time its branches, the hosts that cannot send, and the flows that it slows.
  ofTree({ port, lane }) {
    const { page } = this, { fabric } = page.first.run, now = h("div");
    const name = `${fabric.ports[port]} ${page.laneName(page.first.run, lane)}`;
    this.update = () => now.replaceChildren(...this.treeNow(port, lane));
    return [
      h("h2", {}, `tree of ${name}`), this.close(),
      h("p", { class: "soft" }, "root: ", this.portButton(port), ` → ${fabric.owners[fabric.peers[port]]}; red: the root, dashed: lanes that wait for it, rings: hosts that cannot send${fabric.grouped ? "; blocks of hosts have a border of the same kind" : ""}`), now,
    ];
  }

  treeNow(port, lane) {
    const { page } = this, { phase, sample } = page.first, { fabric } = page.first.run;
    const tree = phase.treesAt(sample).find(one => one.port === port && one.lane === lane);
    if (!tree) return [h("p", {}, "no tree with this root at this time"), this.otherTrees(phase, sample)];
    const rows = [], blocked = new Set();
    for (let i = 0; i < tree.members.length; i += 4) {
      const [member, of, depth, percent] = tree.members.subarray(i, i + 4);
      if (page.first.run.nodeOf.get(fabric.owners[member]).level === 0) blocked.add(fabric.owners[member]);
      rows.push([depth, leading(() => page.choose({ kind: "port", port: member }), [depth ? `${depth}` : "root", `${fabric.ports[member]} → ${fabric.owners[fabric.peers[member]]}`, page.laneName(phase.run, of), depth ? `${percent} %` : "busy"])]);
    }
    rows.sort((a, b) => a[0] - b[0]);
    const victims = phase.flowsWhere(flow => flow.stall && flow.stall.victim && flow.stall.root && flow.stall.root[0] === fabric.ports[port] && flow.stall.root[1] === page.laneName(phase.run, lane));
    return [
      h("p", {}, `${rows.length} lanes, ${formatSize(tree.bytes)} waiting; hosts that cannot send: ${[...blocked].sort().join(", ") || "none"}`),
      table(["waits from root", "port", "lane", "stalled"], rows.slice(0, MOST_ROWS).map(row => row[1]), "stalled: part of the interval since the sample before"),
      h("h3", {}, `victims in this phase (flows slowed, though they do not cross the root): ${victims.length}`), this.flowsTable(victims), this.otherTrees(phase, sample),
    ];
  }

  otherTrees(phase, sample) {
    const { page } = this, found = phase.treesAt(sample);
    const rows = found.slice(0, 12).map(tree => leading(() => page.choose({ kind: "tree", port: tree.port, lane: tree.lane }), [`${page.first.run.fabric.ports[tree.port]} ${page.laneName(phase.run, tree.lane)}`, tree.kind, `${tree.members.length / 4}`]));
    return h("div", {}, h("h3", {}, `trees at this time: ${found.length}`), rows.length ? table(["root", "kind", "lanes"], rows) : "");
  }

  async drawCharts(box, port) {
    const { page } = this, { phase } = page.first, library = await page.charts();
    if (page.chosen?.port !== port || page.first.phase !== phase) return;
    this.cursor = h("div", { id: "chart-cursor" });
    this.chart = await drawPortCharts(library, box, this.cursor, page, phase, port);
    if (!this.chart) return;
    this.chart.on("plotly_click", event => page.moveTo(event.points[0].x));
    this.chart.on("plotly_relayout", () => this.moveChartCursor());
    this.moveChartCursor();
    this.chart.dataset.drawn = "yes";
  }

  moveChartCursor() {
    const layout = this.chart?._fullLayout;
    if (!layout || !this.cursor) return;
    const axis = layout.xaxis, x = axis._offset + axis.l2p(this.page.first.time);
    Object.assign(this.cursor.style, { left: `${x}px`, top: `${layout._size.t}px`, height: `${layout._size.h}px` });
  }
}
