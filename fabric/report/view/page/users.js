"use strict";
// Users' jobs of a platform: their rows on the time axis, and what the panel says of them, of nodes and of all events.

const MOST_QUEUE_ROWS = 14, MOST_NODE_ROWS = 20;
const PRIORITIES = ["UNDER_NORMAL", "AUTO", "NORMAL", "ABOVE_NORMAL", "HIGH", "VERY_HIGH", "EXTREME_HIGH"];
const ENDS = { finished: "finished", suspend: "suspended", restart: "stopped, to begin again", cancel: "stopped for good", timeout: "stopped at its limit", fail: "failed", left: "left", "": "goes on" };

class Users {
  constructor(page) { Object.assign(this, { page, user: "", rows: "", event: "" }); }

  // The platforms of a run whose phase overlaps the range of the axis.
  of(run) { return run.meta.users || []; }

  get all() { return this.of(this.page.first?.run || this.page.main.run); }

  names(run) { return this.of(run).flatMap(one => one.jobs.map(job => ({ name: job.name, what: `job of ${job.user || "a user"}`, choice: this.choice(one, job) }))); }

  choice(platform, job) { return { kind: "userjob", platform: platform.platform, phase: platform.phase, number: job.number }; }

  colour(platform, job) {
    const all = this.page.data.job_colours, place = platform.jobs.indexOf(job);
    const found = all[Math.max(place, 0) % all.length];
    return this.page.themeName === "dark" && found === "#222222" ? "#dddddd" : found;
  }

  isShown(job) { return !this.user || job.user === this.user; }

  wants(kind) { return !this.rows || this.rows === kind; }

  // The controls are there only where a run has users' jobs.
  fillControls() {
    const box = this.page.get("users"), users = [...new Set(this.all.flatMap(one => one.jobs.map(job => job.user)))].filter(Boolean).sort();
    box.hidden = !this.all.length;
    document.getElementById("time").classList.toggle("named", Boolean(this.all.length));
    const options = (found, chosen) => found.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
    this.page.get("rows").replaceChildren(...options([["", "all"], ["queue", "queue"], ["held", "nodes"], ["events", "events"], ["faults", "faults"], ["traffic", "traffic"]], this.rows));
    this.page.get("who").replaceChildren(...options([["", "all"], ...users.map(user => [user, user])], this.user));
  }

  listen() {
    const changed = () => { this.page.showAxis(); this.page.panel.build(); this.page.render(); };
    this.page.get("rows").addEventListener("change", event => { this.rows = event.target.value; changed(); });
    this.page.get("who").addEventListener("change", event => { this.user = event.target.value; changed(); });
  }

  // Rows of the axis: a job each, by priority, and a node each.
  axisRows(run) {
    const queue = [], held = [];
    for (const platform of this.of(run)) {
      const jobs = platform.jobs.filter(job => this.isShown(job)).sort((a, b) => rank(b) - rank(a) || a.submitted_s - b.submitted_s);
      for (const job of jobs.slice(0, MOST_QUEUE_ROWS)) queue.push({ kind: "queue", name: job.name, more: [job.user, job.priority].filter(Boolean).join(", "), items: this.queueItems(platform, job) });
      for (const [node, items] of [...this.heldItems(platform)].sort().slice(0, MOST_NODE_ROWS)) held.push({ kind: "held", name: node, items });
    }
    const ticks = this.events(run).filter(one => one.choice).map(one => ({ ...one, kind: "event", label: `${one.event.replace("_", " ")} ${one.what}`, detail: one.why }));
    const events = ticks.length ? [{ kind: "event", name: "events", items: ticks }] : [];
    return [...(this.wants("queue") ? queue : []), ...(this.wants("held") ? held : []), ...(this.wants("events") ? events : [])];
  }

  queueItems(platform, job) {
    const choice = this.choice(platform, job), colour = this.colour(platform, job), common = { choice, colour, label: job.name };
    const facts = `${nodesOf(job)} ${job.user} ${job.priority}`.trim();
    const waits = job.waits.map(([begin_s, end_s]) => ({ ...common, kind: "wait", begin_s, end_s, detail: `waits; ${facts}` }));
    const lives = job.lives.map(life => ({ ...common, kind: "life", begin_s: life.started_s, end_s: life.ended_s, detail: `${ENDS[life.end] ?? life.end}; on ${life.nodes.join(" ")}` }));
    const notices = job.lives.filter(life => life.told_s !== null).map(life => ({ ...common, kind: "notice", begin_s: life.told_s, end_s: life.ended_s, detail: `${ENDS[life.end] ?? life.end}: ${life.end_why}` }));
    return [...waits, ...lives, ...notices];
  }

  heldItems(platform) {
    const found = new Map(), add = (node, item) => found.set(node, [...(found.get(node) || []), item]);
    for (const one of platform.out) add(one.node, { kind: "out", label: one.node, begin_s: one.from_s, end_s: one.until_s, detail: `out: ${one.why}`, choice: { kind: "node", node: one.node } });
    for (const job of platform.jobs) {
      for (const life of job.lives) for (const node of life.nodes) {
        if (!found.has(node)) found.set(node, []);
        if (this.isShown(job)) add(node, { kind: "life", label: job.name, begin_s: life.started_s, end_s: life.ended_s, detail: `${job.name} on ${node}`, colour: this.colour(platform, job), choice: this.choice(platform, job) });
      }
    }
    return found;
  }

  // All that happened: the platform's events, failures and repairs, in order, as far as the filters let them.
  events(run) {
    const found = [];
    for (const platform of this.of(run)) {
      const jobs = new Map(platform.jobs.map(job => [job.number, job]));
      for (const [at_s, event, number, nodes, why] of platform.events) {
        const job = jobs.get(number);
        if (this.user && job?.user !== this.user) continue;
        found.push({ at_s, event, what: job?.name || nodes, nodes: job ? nodes : "", why: event === "submitted" ? [job?.user, job?.priority, nodesOf(job)].filter(Boolean).join(", ") : why, choice: job ? this.choice(platform, job) : run.nodeOf.has(nodes) ? { kind: "node", node: nodes } : null });
      }
    }
    if (!this.user) {
      for (const one of run.meta.happened.changes || []) found.push({ at_s: one.at_s, event: one.kind, what: one.label, nodes: "", why: one.detail, choice: null });
      for (const one of run.meta.happened.instants) found.push({ at_s: one.at_s, event: one.kind, what: "controller", nodes: "", why: one.label, choice: null });
    }
    return found.sort((a, b) => a.at_s - b.at_s);
  }

  // A job as the run has it by now: while that plays, what goes on lasts longer with each answer.
  asOfNow(run, platform, job) { return this.find(run, this.choice(platform, job))?.job || job; }

  // Whether a time is in a span; one that goes on has its end in it, too, which is when it was looked at.
  isWithin(from, until, time, goesOn) { return from <= time && (time < until || (goesOn && time <= until && until >= this.page.endOf(this.page.first.run))); }

  stateAt(job, time) {
    const life = job.lives.find(one => this.isWithin(one.started_s, one.ended_s, time, one.end === ""));
    if (life) return life.told_s !== null && time >= life.told_s ? `told: ${ENDS[life.end] ?? life.end}` : `runs on ${life.nodes.length === 1 ? life.nodes[0] : `${life.nodes.length} nodes`}`;
    const waitsOn = !job.lives.length || job.lives[job.lives.length - 1].ended_s <= job.waits[job.waits.length - 1]?.[0];
    if (job.waits.some(([from, until], place) => this.isWithin(from, until, time, waitsOn && place === job.waits.length - 1))) return "waits";
    return time < job.submitted_s ? "not submitted" : job.lives.length ? "ended" : "-";
  }

  // The ports of a job's nodes at a time, and what is sent to them.
  litAt(run, time, chosen) {
    const job = this.find(run, chosen)?.job, life = job?.lives.find(one => this.isWithin(one.started_s, one.ended_s, time, one.end === ""));
    if (!life) return null;
    const ports = life.nodes.flatMap(node => run.portsOf.get(node) || []);
    return new Set([...ports, ...ports.map(port => run.fabric.peers[port])]);
  }

  find(run, chosen) {
    const platform = this.of(run).find(one => one.platform === chosen.platform && one.phase === chosen.phase), job = platform?.jobs.find(one => one.number === chosen.number);
    return job ? { platform, job } : null;
  }

  // The panel ---------------------------------------------------------------------------------------------------------

  dot(platform, job) { return h("span", { class: "dot", style: `background:${this.colour(platform, job)}` }); }

  seconds(at) { const { run } = this.page.first, phase = run.phaseAt(at); return `${(at - (phase?.meta.started_s ?? 0)).toFixed(1)} s`; }

  // The overview's part: all jobs, and all that happened. Returns elements, and what to do when the time changes.
  overview() {
    const { page } = this, { run } = page.first, out = [], states = [];
    for (const platform of this.of(run)) {
      const rows = platform.jobs.filter(job => this.isShown(job)).slice(0, MOST_ROWS).map(job => {
        const state = h("span");
        states.push(() => { state.textContent = this.stateAt(this.asOfNow(run, platform, job), page.time); });
        return leading(() => page.choose(this.choice(platform, job)), [h("span", {}, this.dot(platform, job), job.name), job.user, job.priority, job.asks ? `${job.asks}` : "-", `${job.lives.length}`, state]);
      });
      const hidden = platform.jobs.filter(job => this.isShown(job)).length - rows.length;
      out.push(h("h2", {}, `Users' jobs of ${platform.platform}`), table(["job", "user", "priority", "nodes", "lives", "at this time"], rows, hidden ? `${hidden} more; search for their names` : ""));
    }
    out.push(...this.eventsTable(this.events(run), true));
    return { out, update: () => states.forEach(update => update()) };
  }

  eventsTable(all, hasFilter) {
    const { page } = this, kinds = [...new Set(all.map(one => one.event))].sort();
    const shown = all.filter(one => !hasFilter || !this.event || one.event === this.event);
    const rows = shown.slice(0, 4 * MOST_ROWS).map(one => leading(() => page.moveTo(one.at_s), [this.seconds(one.at_s), one.event.replace("_", " "), one.what, [one.nodes, one.why].filter(Boolean).join(": ")]));
    const select = h("select", { onchange: event => { this.event = event.target.value; page.panel.build(); } }, ["", ...kinds].map(kind => h("option", { value: kind, selected: kind === this.event }, kind.replace("_", " ") || "all")));
    const more = shown.length - rows.length;
    const title = h("h2", {}, "What happened ", ...(hasFilter ? [h("label", { class: "filter" }, "show ", select)] : []));
    const note = more > 0 ? `${more} later ones; choose a kind or a user` : "times: since the phase began";
    return [title, h("div", { class: "wraps" }, table(["at", "event", "of", "reason"], rows, note))];
  }

  // A user's job: its lives with their nodes and reasons, its waits, its events.
  ofJob(chosen) {
    const { page } = this, { run } = page.first, found = this.find(run, chosen), panel = page.panel;
    if (!found) return [h("h2", {}, "no such job in this run"), panel.close()];
    const { platform, job } = found, now = h("p");
    panel.update = () => { now.textContent = `at this time: ${this.stateAt(this.asOfNow(run, platform, job), page.time)}`; };
    const rows = job.lives.map((life, place) => leading(() => page.moveTo(life.started_s), [
      `${place + 1}`, h("span", {}, life.nodes.flatMap(node => [run.nodeOf.has(node) ? panel.nodeButton(node) : node, " "])), `${this.seconds(life.started_s)} to ${this.seconds(life.ended_s)}`,
      `${ENDS[life.end] ?? life.end}${life.step === null ? "" : `, step ${life.step} saved`}`,
    ]));
    const reasons = job.lives.flatMap((life, place) => [h("li", {}, `life ${place + 1} began: ${life.why || "-"}`), ...(life.end_why ? [h("li", {}, `life ${place + 1} ended: ${life.end_why}`)] : [])]);
    const waited = job.waits.reduce((sum, [from, until]) => sum + until - from, 0);
    return [
      h("h2", {}, this.dot(platform, job), job.name), panel.close(),
      h("p", { class: "soft" }, [job.user && `of ${job.user}`, job.priority, nodesOf(job), `job ${job.number} of ${platform.platform}`].filter(Boolean).join(", "), `; waited ${formatTime(waited)} in all`), now,
      h("h3", {}, "its lives"), h("div", { class: "wraps" }, table(["life", "nodes, by rank", "from, to", "ended"], rows)), h("h3", {}, "reasons"), h("ul", { class: "reasons" }, reasons),
      ...this.eventsTable(this.events(run).filter(one => one.choice?.kind === "userjob" && one.choice.number === job.number && one.choice.platform === platform.platform), false),
    ];
  }

  // Who had a node, and when it was out; nothing of a node that no platform has.
  ofNode(node) {
    const { page } = this, { run } = page.first, rows = [];
    for (const platform of this.of(run)) {
      for (const job of platform.jobs) for (const life of job.lives) if (life.nodes.includes(node)) rows.push([life.started_s, leading(() => page.choose(this.choice(platform, job)), [h("span", {}, this.dot(platform, job), job.name), `${this.seconds(life.started_s)} to ${this.seconds(life.ended_s)}`, `rank ${life.nodes.indexOf(node)}; ${ENDS[life.end] ?? life.end}`])]);
      for (const one of platform.out.filter(one => one.node === node)) rows.push([one.from_s, leading(() => page.moveTo(one.from_s), ["out", `${this.seconds(one.from_s)} to ${this.seconds(one.until_s)}`, `${one.why}${one.back ? `; back: ${one.back}` : ""}`])]);
    }
    return rows.length ? [h("h3", {}, "who had it"), h("div", { class: "wraps" }, table(["job", "from, to", "as"], rows.sort((a, b) => a[0] - b[0]).map(([, row]) => row)))] : [];
  }
}

function nodesOf(job) { return job?.asks ? `${job.asks} node${job.asks === 1 ? "" : "s"}` : ""; }
function rank(job) { return PRIORITIES.indexOf(job.priority); }
