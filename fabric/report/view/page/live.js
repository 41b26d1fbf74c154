"use strict";
// A run that plays: its samples are asked for as they come, and the page follows them unless the user looks back.

class LivePhase extends Phase {
  constructor(run, meta, number) {
    super(run, meta, number);
    this.room = 0;
    this.flows = { table: [], begins: [0], ports: new Int32Array(0), jobs: meta.jobs, levels: [], hosts: [], stalls: {}, count: 0 };
    this.trees = null;
    this.arrays = { at: new Float64Array(0), ports: Int32Array.from(meta.ports), lanes: Int32Array.from(meta.lanes) };
    for (const [name, grows] of Object.entries(meta.columns)) this.columns[name] = grows ? { base: null, growth: new Float64Array(0), last: null } : { values: new Float64Array(0) };
    this.indexKeys();
  }

  load() { return Promise.resolve(); }

  // Take in samples that follow those that are there.
  append(at, columns) {
    const keys = this.arrays.ports.length, before = this.samples, after = before + at.length;
    this.arrays.at = Float64Array.from([...this.arrays.at, ...at]);
    const isFull = after > this.room;
    if (isFull) this.room = Math.max(2 * after, 256);
    for (const [name, column] of Object.entries(this.columns)) {
      const rows = columns[name], part = column.values ? "values" : "growth";
      if (isFull) { const larger = new Float64Array(this.room * keys); larger.set(column[part]); column[part] = larger; }
      for (let row = 0; row < at.length; row++) {
        const now = rows.subarray(row * keys, (row + 1) * keys);
        if (column.values) { column.values.set(now, (before + row) * keys); continue; }
        if (column.base) for (let k = 0; k < keys; k++) column.growth[(before + row - 1) * keys + k] = now[k] - column.last[k];
        else column.base = Float64Array.from(now);
        column.last = now;
      }
    }
    Object.assign(this.meta, { started_s: this.arrays.at[0], ended_s: this.arrays.at[after - 1] });
    this.most = {};
  }
}

class LiveRun {
  constructor(page) { Object.assign(this, { page, run: page.runs[0], began: false }); }

  async begin() {
    document.body.dataset.state = "waiting";
    this.page.get("notes").textContent = "waiting for the first phase";
    this.page.setHead(this.run.meta);
    for (;;) {
      const isMore = await this.ask();
      if (!isMore) await new Promise(done => setTimeout(done, this.page.data.live.period_ms));
    }
  }

  // Ask for what is new; return whether there is more at once.
  async ask() {
    const phases = this.run.phases, at = Math.max(0, phases.findIndex(phase => phase.samples < phase.meta.samples));
    const here = phases.some(phase => phase.samples < phase.meta.samples) ? at : Math.max(phases.length - 1, 0);
    let reply;
    try {
      reply = await fetch(`${this.page.data.live.at}live?phase=${here}&from=${phases[here]?.samples ?? 0}`);
    } catch {
      this.page.get("notes").textContent = `the run has ended, or was ended; its result: ${this.result || "see the terminal"}`;
      document.body.dataset.state = "ended";
      await new Promise(() => {});  // Nothing comes any more.
    }
    if (!reply.ok) throw new Error(`the run's server answers ${reply.status}`);
    const answer = await reply.json();
    if (answer.has_ended) { this.page.get("notes").textContent = "this run has ended"; await new Promise(() => {}); }  // One of several, see Study.
    await this.takeIn(answer, here);
    return phases.some(phase => phase.samples < phase.meta.samples);
  }

  async takeIn(answer, here) {
    const { page, run } = this, known = run.phases.length, last = run.phases[known - 1];
    const follows = !this.began || page.time === this.followed || (page.first.phase === last && page.first.sample >= last.samples - 1) || page.time >= page.range[1] - 1e-9;
    run.meta.lanes = answer.lanes;
    page.data.lane_colours = answer.lane_colours;
    for (const [number, meta] of answer.phases.entries()) {
      if (number >= run.phases.length) run.phases.push(new LivePhase(run, meta, number));
      else run.phases[number].meta.samples = meta.samples;
    }
    run.meta.phases = run.phases.map(phase => phase.meta);
    run.jobs = [...new Set(run.phases.flatMap(phase => phase.meta.jobs))];
    if (answer.rows) {
      const columns = {};
      for (const [name, one] of Object.entries(answer.rows.columns)) columns[name] = new ARRAYS[one.kind](await unzipped(fromBase64(one.zipped)));
      if (answer.rows.at_s.length) run.phases[here].append(answer.rows.at_s, columns);
    }
    this.result = answer.progress.result;
    const isNew = run.phases.length !== known || answer.version !== this.version;
    run.meta.happened = answer.happened;
    run.meta.users = answer.users;
    this.version = answer.version;
    await this.show(answer.progress, follows, isNew);
  }

  async show(progress, follows, isNew) {
    const { page, run } = this, now = run.phases[run.phases.length - 1];
    const words = [progress.clock, progress.phase && `${progress.phase}: ${Math.round(100 * progress.fraction)} %`, progress.note].filter(Boolean);
    run.meta.notes = [words.join("; ") + (progress.result ? `; the result: ${progress.result}` : "")];
    run.meta.verdict = { status: progress.verdict || "playing", reasons: progress.reasons, notes: [] };
    if (!now || !now.samples) { page.get("notes").textContent = run.meta.notes[0] || "waiting for the first phase"; return; }
    if (follows && !page.beside && !page.playing) this.followed = page.time = now.meta.ended_s;
    if (!this.began || isNew) page.fillControls();
    page.get("metric").value = page.metric.label;
    await page.resolve();
    if (!this.began || isNew) page.rebuild(); else { page.setHead(run.meta); page.showAxis(); page.render(); }
    this.began = true;
    document.body.dataset.state = "live";
    document.body.dataset.samples = run.phases.reduce((sum, phase) => sum + phase.samples, 0);
  }
}
