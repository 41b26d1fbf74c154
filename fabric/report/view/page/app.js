"use strict";
// The page: what is chosen, the time, and who must draw anew when they change.

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const PLAY_S = 20;  // How long a whole range plays at speed 1.

class Page {
  constructor(data) {
    this.data = data;
    this.runs = data.runs.map((meta, number) => new Run(meta, number));
    Object.assign(this, { metric: METRICS[0], laneChoice: "", chosen: null, playing: null, litFlow: null, focus: null, beside: null, main: { run: this.runs[0], phase: null } });
    this.get = id => document.getElementById(id);
    this.users = new Users(this);
    this.maps = [...document.querySelectorAll(".map")].map(figure => new FabricMap(figure, this));
    this.axis = new Axis(this.get("axis"), this.get("phases"), this);
    this.panel = new Panel(this.get("panel"), this);
    this.useTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.fillControls();
    this.listen();
  }

  // Begin where the run's findings say that there is something to see, or at its begin; the overview says why there.
  async start() {
    const run = this.main.run;
    this.time = run.meta.opening?.at_s ?? run.phases[0].meta.started_s;
    await this.resolve();
    this.rebuild();
    document.body.dataset.state = "ready";
    performance.mark("fabric-ready");
    for (const phase of run.phases) await phase.load();  // The others, once there is something to look at.
    document.body.dataset.state = "complete";
  }

  // Where the run is, if it plays.
  get isLive() { return Boolean(this.data.live); }
  get chosenPort() { return this.chosen?.kind === "port" ? this.chosen.port : null; }
  get chosenNode() { return this.chosen?.kind === "node" ? this.chosen.node : null; }
  get chosenJob() { return this.chosen?.kind === "job" ? this.chosen.job : null; }

  // Which phase and sample each map shows at the time of the slider.
  async resolve() {
    const base = this.main.phase;
    const first = { run: this.main.run, time: this.time, phase: base && (this.beside || base) ? base : this.main.run.phaseAt(this.time) };
    await first.phase.load();
    first.sample = first.phase.sampleAt(first.time);
    let second = null;
    if (this.beside) {
      const { run, phase } = this.beside, time = phase.meta.started_s + (this.time - first.phase.meta.started_s);
      await phase.load();
      second = { run, phase, time, sample: phase.sampleAt(time) };
    }
    Object.assign(this, { first, second });
  }

  get range() {
    const { run, phase } = this.main;
    if (phase && this.beside) {
      const longest = Math.max(...[phase, this.beside.phase].map(one => one.meta.ended_s - one.meta.started_s));
      return [phase.meta.started_s, phase.meta.started_s + longest];
    }
    if (phase) return [phase.meta.started_s, phase.meta.ended_s];
    const sampled = run.phases.filter(one => !one.isLoaded || one.samples);
    return [sampled[0].meta.started_s, sampled[sampled.length - 1].meta.ended_s];
  }

  // When a run's last sample was taken.
  endOf(run) { return Math.max(...run.phases.filter(one => !one.isLoaded || one.samples).map(one => one.meta.ended_s)); }

  // Build anew what depends on what is chosen; then draw.
  rebuild() {
    this.maps[0].show(this.first.run, this.focus);
    this.get("maps").children[1].hidden = !this.second;
    if (this.second) this.maps[1].show(this.second.run, this.focus && this.second.run.nodeOf.has(this.focus) ? this.focus : null);
    this.get("whole").hidden = this.focus === null;
    this.setHead(this.first.run.meta);
    this.fillLanes();
    this.colourValues();
    this.panel.build();
    this.showAxis();
    this.render();
  }

  setHead(meta) {
    const clock = { virtual: "virtual time", namespace: "real time" }[meta.engine] || meta.engine;
    Object.assign(this.get("title"), { textContent: meta.title, title: meta.title });
    Object.assign(this.get("verdict"), { textContent: this.isLive && meta.verdict.status !== "playing" ? `${meta.verdict.status} so far` : meta.verdict.status, className: `badge ${meta.verdict.status}` });
    const facts = [meta.fabric.name, clock, meta.scale].filter(Boolean).join(", ");
    Object.assign(this.get("facts"), { textContent: facts, title: facts });
    this.get("notes").textContent = meta.notes.join("; ");
  }

  showAxis() {
    const origin = this.main.phase ? this.main.phase.meta.started_s : 0, steps = this.chosenJob ? this.first.run.meta.steps.filter(step => step[1] === this.chosenJob).map(step => step.slice(1)) : [];
    const [from, to] = this.range, slider = this.get("slider");
    Object.assign(slider, { min: from, max: to });
    slider.value = this.time;
    this.axis.show(this.first.run, [from, to], origin, steps, this.chosenJob ? this.first.run.meta.streams.filter(track => track.job === this.chosenJob) : []);
  }

  // All that the time changes. Synchronous, so that a step of the slider is one frame.
  render() {
    this.colourValues();
    const views = [this.first, this.second];
    const scale = this.colours();
    views.forEach((view, number) => {
      if (!view) return;
      this.maps[number].draw(scale, this.litIn(view), this.treeIn(view), this.cutsIn(view));
      this.maps[number].caption.textContent = this.captionOf(view);
    });
    const slider = this.get("slider");
    if (document.activeElement !== slider || Math.abs(slider.value - this.time) > 1e-9) slider.value = this.time;
    this.get("cursor").style.left = `${this.axis.x(this.time)}px`;
    this.get("now").textContent = this.timeWords();
    this.panel.update();
    this.axis.mark(this.first.phase.meta);
    document.body.dataset.time = this.first.phase.arrays.at[this.first.sample];
  }

  colourValues() {
    [this.first, this.second].forEach((view, number) => {
      if (view) view.phase.fill(this.metric, view.sample, this.laneIn(view.run), this.maps[number].values);
    });
  }

  // The function from a value to its place on the scale of colours.
  colours() {
    const metric = this.metric, rates = this.first.run.fabric.rates_bps;
    const isRate = metric.unit === "bit/s", isShare = isRate || metric.unit === "fraction";
    const most = isShare ? 1 : Math.max(this.first.phase.mostOf(metric), this.second ? this.second.phase.mostOf(metric) : 0) || 1;
    this.get("least").textContent = "0";
    this.get("most").textContent = isRate ? "100 % of the link" : isShare ? "100 % of the time" : `${metric.text(most)} (square root)`;
    if (isRate) return found => (typeof found === "number" ? NaN : found.value / rates[found.port]);
    if (isShare) return found => (typeof found === "number" ? NaN : found.value);
    return found => (typeof found === "number" ? NaN : Math.sqrt(found.value / most));
  }

  captionOf(view) {
    const { phase, sample } = view, before = view.time < phase.meta.started_s - 1e-3, after = view.time > phase.meta.ended_s + 1e-3;
    const when = before ? "before it" : after ? "after its end: its last sample" : `${formatTime(Math.max(phase.arrays.at[sample] - phase.meta.started_s, 0))} into it`;
    const which = this.runs.length > 1 ? `${view.run.meta.directory}: ` : "";
    return `${which}${phase.meta.title} [${phase.meta.queueing}], ${when}${phase.has(this.metric) ? "" : `; has no ${this.metric.label}`}`;
  }

  timeWords() {
    const { phase, sample } = this.first;
    return `${this.time.toFixed(4)} s, sample ${sample + 1} of ${phase.samples} of phase ${phase.meta.name}`;
  }

  // Directions to show among the others: those of what is chosen, at this time.
  litIn({ run, phase }) {
    const { chosen } = this, own = this.first.run, named = port => run.portOf.get(own.fabric.ports[port]);
    if (this.litFlow) return new Set([...this.litFlow.ports].map(named));
    if (chosen?.kind === "userjob") return this.users.litAt(run, this.time, chosen);
    if (chosen?.kind === "job") return lit(phase.flowsWhere(flow => flow.job === chosen.job));
    if (chosen?.kind === "node" && run.nodeOf.get(chosen.node)?.level === 0) {
      const found = lit(phase.flowsWhere(flow => flow.host === chosen.node || flow.peer === chosen.node));
      return found && found.size ? found : null;
    }
    if (chosen?.kind === "tree") {
      const tree = this.treeIn({ run, phase, sample: (run === this.first.run && phase === this.first.phase ? this.first : this.second).sample });
      const victims = phase.flowsWhere(flow => flow.stall?.victim && flow.stall.root?.[0] === own.fabric.ports[chosen.port]);
      return new Set([...(tree ? [...tree.members, ...tree.roots] : []), ...victims.flatMap(flow => [...flow.ports])]);
    }
    return null;
  }

  // Both directions of the links that are not as they should be at this time.
  cutsIn({ run, time }) {
    const now = run.meta.happened.spans.filter(one => one.kind === "cut" && one.begin_s <= time && time <= one.end_s);
    return new Set(now.flatMap(one => one.ports.map(port => run.portOf.get(port))));
  }

  treeIn({ run, phase, sample }) {
    const { chosen } = this;
    if (chosen?.kind !== "tree") return null;
    const own = this.first.run, port = run.portOf.get(own.fabric.ports[chosen.port]), name = this.laneName(own, chosen.lane);
    const tree = phase.treesAt(sample).find(one => one.port === port && this.laneName(run, one.lane) === name);
    if (!tree) return null;
    const out = { roots: new Set(), members: new Set(), hosts: new Set() };
    for (let i = 0; i < tree.members.length; i += 4) {
      (tree.members[i + 2] === 0 ? out.roots : out.members).add(tree.members[i]);
      const owner = run.fabric.owners[tree.members[i]];
      if (run.nodeOf.get(owner).level === 0) out.hosts.add(owner);
    }
    return out;
  }

  // What the user does -----------------------------------------------------------------------------------------------

  choose(what) {
    this.chosen = what;
    this.litFlow = null;
    this.rebuild();
  }

  lightFlow(flow) {
    this.litFlow = this.litFlow?.number === flow.number ? null : flow;
    this.render();
  }

  // Go where a row of the overview leads.
  async follow(row) {
    const run = this.first.run, port = run.portOf.get(row.port), lane = run.meta.lanes.indexOf(row.lane);
    if (port !== undefined) this.chosen = row.is_tree ? { kind: "tree", port, lane } : { kind: "port", port };
    this.litFlow = null;
    if (row.at_s !== null) {
      this.time = row.at_s;
      if (this.main.phase && !this.beside) this.main.phase = null;
    }
    this.fillPhases();
    await this.resolve();
    this.rebuild();
  }

  async moveTo(time) {
    const [from, to] = this.range;
    this.time = Math.min(Math.max(time, from), to);
    const phase = this.first.phase;
    const needs = !this.main.phase && !this.main.run.phaseAt(this.time).isLoaded;
    if (needs) { await this.resolve(); return this.rebuild(); }
    this.place();
    if (this.first.phase !== phase) this.fillLanes();
    this.render();
  }

  // As resolve(), of phases that are there.
  place() {
    const phase = this.main.phase ?? this.main.run.phaseAt(this.time);
    this.first = { run: this.main.run, phase, time: this.time, sample: phase.sampleAt(this.time) };
    if (this.beside) {
      const time = this.beside.phase.meta.started_s + (this.time - phase.meta.started_s);
      this.second = { ...this.beside, time, sample: this.beside.phase.sampleAt(time) };
    }
  }

  // To the next sample, or by more, also into the next phase.
  step(by) {
    const { phase, sample } = this.first, target = sample + by;
    if (target >= 0 && target < phase.samples) return this.moveTo(phase.arrays.at[target]);
    const other = this.main.phase ? null : this.main.run.phases[phase.number + Math.sign(by)];
    return other ? this.moveTo(by > 0 ? other.meta.started_s : other.meta.ended_s) : this.moveTo(by > 0 ? this.range[1] : this.range[0]);
  }

  play() {
    if (this.playing !== null) { cancelAnimationFrame(this.playing); this.playing = null; this.get("play").textContent = "▶"; return; }
    this.get("play").textContent = "⏸";
    const [from, to] = this.range;
    if (this.time >= to - 1e-9) this.time = from;
    let last = performance.now();
    const tick = now => {
      const speed = Number(this.get("speed").value) * (to - from) / PLAY_S;
      const next = this.time + speed * (now - last) / 1000;
      last = now;
      this.moveTo(next);
      if (next >= to) { this.play(); return; }
      this.playing = requestAnimationFrame(tick);
    };
    this.playing = requestAnimationFrame(tick);
  }

  openNode(node) { this.focus = node; this.rebuild(); }

  pointed(map, found, event) {
    if (!found) return this.tell(null);
    const { fabric } = map.run, words = port => { const value = map.values[port]; return `${fabric.ports[port]} → ${fabric.owners[fabric.peers[port]]}: ${Number.isNaN(value) ? "not sampled" : this.metric.text(value)}`; };
    if (found.node) return this.tell(found.node, event);
    if (found.block) return this.tell(`${found.block.sent.length} NICs at ${found.block.leaf}\nmost sent: ${words(mostOf(found.block.sent, map.values))}\nmost received: ${words(mostOf(found.block.received, map.values))}`, event);
    return this.tell(found.half.ports.map(words).join("\n"), event);
  }

  clicked(map, found) {
    if (!found) return this.chosen ? this.choose(null) : undefined;
    const inFirst = port => this.first.run.portOf.get(map.run.fabric.ports[port]);
    if (found.node && this.first.run.nodeOf.has(found.node)) return this.choose({ kind: "node", node: found.node });
    if (found.block) return this.choose({ kind: "node", node: found.block.leaf });
    if (found.half && inFirst(found.half.ports[0]) !== undefined) return this.choose({ kind: "port", port: inFirst(found.half.ports[0]) });
  }

  opened(map, found) {
    const node = found?.node || found?.block?.leaf;
    if (node) this.openNode(node);
  }

  tell(words, event) {
    const tip = this.get("tip");
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const box = this.get("maps").getBoundingClientRect();
    Object.assign(tip.style, { left: `${Math.min(event.clientX - box.left + 14, box.width - 240)}px`, top: `${Math.min(event.clientY - box.top + 12, box.height - 30)}px` });
  }

  // Go to what has this name, whatever its case; else to the only one whose name has the text in it, or list them.
  search(text) {
    const wanted = text.trim().toLowerCase(), all = wanted ? this.names() : [];
    const exact = all.find(one => one.name === text.trim()) || all.find(one => one.name.toLowerCase() === wanted);
    const found = exact ? [exact] : all.filter(one => one.name.toLowerCase().includes(wanted));
    if (found.length === 1) return this.choose(found[0].choice);
    if (found.length) return this.choose({ kind: "names", text: text.trim(), names: found });
    this.get("search").setCustomValidity(`there is no port, node or job ${text.trim()}`);
    this.get("search").reportValidity();
  }

  // All that can be searched for: what it is, and how it is chosen.
  names() {
    const { run } = this.first, { fabric } = run;
    return [
      ...this.users.names(run),
      ...run.jobs.map(name => ({ name, what: "job", choice: { kind: "job", job: name } })),
      ...fabric.nodes.map(node => ({ name: node.name, what: node.role, choice: { kind: "node", node: node.name } })),
      ...fabric.ports.map((name, port) => ({ name, what: `port, sends to ${fabric.owners[fabric.peers[port]]}`, choice: { kind: "port", port } })),
    ];
  }

  // Controls ---------------------------------------------------------------------------------------------------------

  fillControls() {
    this.get("metric").replaceChildren(...METRICS.filter(metric => this.runs.some(run => run.phases.some(phase => metric.column in phase.meta.columns || metric.column in phase.columns))).map(metric => h("option", { value: metric.label, title: metric.meaning }, metric.label)));
    this.get("speed").replaceChildren(...SPEEDS.map(speed => h("option", { value: speed, selected: speed === 1 }, `${speed}`)));
    const { fabric } = this.main.run, nodes = fabric.nodes.map(node => node.name);
    this.users.fillControls();
    this.get("names").replaceChildren(...[...this.users.names(this.main.run).map(one => one.name), ...this.main.run.jobs, ...nodes, ...(fabric.ports.length < 3000 ? fabric.ports : [])].map(name => h("option", { value: name })));
    this.fillPhases();
  }

  fillPhases() {
    const several = this.runs.length > 1, options = (whole, chosen) => [
      ...whole, ...this.runs.flatMap(run => run.phases.map(phase => h("option", { value: `${run.number}/${phase.number}`, selected: phase === chosen }, `${several ? `${run.meta.directory}: ` : ""}${phase.meta.title} [${phase.meta.queueing}]`)))];
    const runs = this.runs.map(run => h("option", { value: `${run.number}/`, selected: run === this.main.run && !this.main.phase }, several ? `${run.meta.directory}: whole run` : "whole run"));
    this.get("main").replaceChildren(...options(runs, this.main.phase));
    this.get("beside").replaceChildren(...options([h("option", { value: "" }, "nothing")], this.beside?.phase));
  }

  phaseNamed(value) {
    const [run, phase] = value.split("/");
    return { run: this.runs[Number(run)], phase: phase === "" ? null : this.runs[Number(run)].phases[Number(phase)] };
  }

  async showMain(value) {
    const isOther = this.phaseNamed(value).run !== this.main.run;
    this.main = this.phaseNamed(value);
    if (!this.main.phase) this.beside = null;
    if (isOther) { this.chosen = null; this.focus = null; }
    const [from, to] = this.range;
    if (this.time < from || this.time > to) this.time = from;
    await this.changed();
  }

  async showBeside(value) {
    this.beside = value ? this.phaseNamed(value) : null;
    if (this.beside && !this.main.phase) this.main = { run: this.main.run, phase: this.first.phase };
    const [from, to] = this.range;
    if (this.time < from || this.time > to) this.time = from;
    await this.changed();
  }

  async changed() {
    this.fillControls();
    this.get("metric").value = this.metric.label;
    await this.resolve();
    this.rebuild();
  }

  fillLanes() {
    const lanes = new Set(this.first.phase.lanesUsed.map(lane => this.laneName(this.first.run, lane)));
    if (this.second) for (const lane of this.second.phase.lanesUsed) lanes.add(this.laneName(this.second.run, lane));
    const select = this.get("lane");
    select.replaceChildren(h("option", { value: "" }, "all"), ...[...lanes].map(lane => h("option", { value: lane, selected: lane === this.laneChoice }, lane)));
    if (!lanes.has(this.laneChoice)) this.laneChoice = "";
  }

  laneIn(run) { return this.laneChoice ? run.meta.lanes.indexOf(this.laneChoice) : -1; }
  laneName(run, lane) { return run.meta.lanes[lane]; }
  laneWords() { return this.laneChoice ? `lane ${this.laneChoice}` : "all lanes"; }
  laneColour(name) { const found = this.data.lane_colours[name] || "#777777"; return this.themeName === "dark" && found === "#222222" ? "#dddddd" : found; }
  jobColour(name) {
    const all = this.data.job_colours, place = this.main.run.jobs.indexOf(name), known = this.data.lane_colours[name];
    return known && name !== "shared" ? known : all[Math.max(place, 0) % all.length];
  }

  useTheme(name) {
    document.documentElement.dataset.theme = name;
    this.themeName = name;
    const style = getComputedStyle(document.documentElement), read = key => style.getPropertyValue(`--${key}`).trim();
    this.theme = { ...Object.fromEntries(["bg", "text", "soft", "line", "grid", "node", "compute", "storage", "root", "accent", "band", "cut"].map(key => [key, read(key)])), dim: Number(read("dim")), heat: this.data.heat[name] };
    const brush = this.get("scale").getContext("2d");
    for (let x = 0; x < 160; x++) { brush.fillStyle = this.theme.heat[Math.round(x * 255 / 159)]; brush.fillRect(x, 0, 1, 12); }
  }

  // The charting library: it is large, so it is read when a port is first looked at.
  charts() {
    this.library ??= (async () => {
      const holder = this.get("charts"), script = h("script");
      if (holder) {
        script.textContent = new TextDecoder().decode(await unzipped(fromBase64(holder.textContent.trim())));
        document.head.append(script);
      } else {
        script.src = "charts.js";
        await new Promise((done, failed) => { script.onload = done; script.onerror = failed; document.head.append(script); });
      }
      return window.Plotly;
    })();
    return this.library;
  }

  listen() {
    const on = (id, event, action) => this.get(id).addEventListener(event, action);
    on("slider", "input", event => this.moveTo(Number(event.target.value)));
    on("metric", "change", event => { this.metric = METRICS.find(metric => metric.label === event.target.value); this.render(); });
    on("lane", "change", event => { this.laneChoice = event.target.value; this.render(); });
    on("main", "change", event => this.showMain(event.target.value));
    on("beside", "change", event => this.showBeside(event.target.value));
    on("play", "click", () => this.play());
    on("back", "click", () => this.step(-1));
    on("on", "click", () => this.step(1));
    on("whole", "click", () => { this.focus = null; this.rebuild(); });
    on("help", "click", () => this.get("keys").showModal());
    on("theme", "click", () => { this.useTheme(this.themeName === "dark" ? "light" : "dark"); this.rebuild(); });
    on("search", "change", event => this.search(event.target.value));
    on("search", "input", event => event.target.setCustomValidity(""));
    this.users.listen();
    document.addEventListener("keydown", event => this.pressed(event));
    new ResizeObserver(() => { if (this.first) { this.axis.draw(); this.render(); } }).observe(this.get("maps"));
  }

  pressed(event) {
    const inField = event.target.matches("input[type=search], select, dialog *");
    if (event.ctrlKey || event.metaKey || event.altKey || (inField && event.key !== "Escape")) return;
    const cycle = (id, by) => { const select = this.get(id); select.selectedIndex = (select.selectedIndex + by + select.options.length) % select.options.length; select.dispatchEvent(new Event("change")); };
    const phase = by => { const other = this.main.run.phases[this.first.phase.number + by]; if (other) this.main.phase ? this.showMain(`${this.main.run.number}/${other.number}`) : this.moveTo(other.meta.started_s); };
    const zoom = factor => { const { width, height } = this.maps[0].size(); this.maps[0].zoomAt(factor, width / 2, height / 2); };
    const actions = {
      " ": () => this.play(), ArrowLeft: () => this.step(event.shiftKey ? -10 : -1), ArrowRight: () => this.step(event.shiftKey ? 10 : 1),
      Home: () => this.moveTo(this.range[0]), End: () => this.moveTo(this.range[1]), "[": () => phase(-1), "]": () => phase(1),
      m: () => cycle("metric", 1), l: () => cycle("lane", 1), "/": () => this.get("search").focus(), "?": () => this.get("keys").showModal(),
      Escape: () => { if (this.litFlow || this.chosen) this.choose(null); else { this.focus = null; this.rebuild(); } },
      "+": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: () => { for (const map of this.maps) Object.assign(map, { zoom: 1, shift: [0, 0] }); this.render(); },
    };
    const isButton = event.target.matches("button, tr.leads") && [" ", "Enter"].includes(event.key);
    if (actions[event.key] && !isButton) { event.preventDefault(); actions[event.key](); }
  }
}

function lit(flows) {
  const found = new Set();
  for (const flow of flows) for (const port of flow.ports) found.add(port);
  return found;
}

function mostOf(ports, values) { return ports.reduce((best, port) => (values[port] > values[best] || Number.isNaN(values[best]) ? port : best), ports[0]); }

window.addEventListener("error", event => showError(event.message));
window.addEventListener("unhandledrejection", event => showError(String(event.reason?.message || event.reason)));
function showError(words) { document.body.dataset.state = "failed"; document.body.prepend(h("div", { class: "error" }, `This page failed: ${words}`)); }
