"use strict";
// The data of the page: runs, their phases, and what was sampled in them as typed arrays.

const ARRAYS = { u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };

async function unzipped(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function read(described) {
  const holder = document.getElementById("blob-" + described.blob);
  let buffer;
  if (holder) {
    buffer = await unzipped(fromBase64(holder.textContent.trim()));
  } else {
    const answer = await fetch("data/" + encodeURIComponent(described.blob));
    if (!answer.ok) throw new Error(`${described.blob}: the server answers ${answer.status}`);
    buffer = await answer.arrayBuffer();
  }
  return new ARRAYS[described.kind](buffer);
}

const SIZES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], RATES = [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];

// How a value is shown, by its unit: as text, on the axis of a chart, and joined over the lanes of a port.
const FORMS = {
  "bit/s": { text: formatRate, axis: "", scales: RATES, joins: "sum" },
  bytes: { text: formatSize, axis: "", scales: SIZES, joins: "sum" },
  fraction: { text: formatPercent, axis: ", %", scales: [[0.01, ""]], joins: "max" },
  "packets/s": { text: formatPerSecond, axis: " per s", scales: [[1, ""]], joins: "sum" },
  "1/s": { text: formatPerSecond, axis: " per s", scales: [[1, ""]], joins: "sum" },
};
const OTHER_FORM = { text: formatCount, axis: "", scales: [[1, ""]], joins: "sum" };

const DATA = JSON.parse(document.getElementById("view").textContent);
// What can be shown of a lane, of which column of samples. Columns have either `values` or, if they count, their `growth`.
const METRICS = DATA.metrics.map(metric => ({ ...metric, ...(FORMS[metric.unit] || OTHER_FORM) }));

class Phase {
  constructor(run, meta, number) {
    Object.assign(this, { run, meta, number, columns: {}, most: {}, arrays: null, loading: null });
  }

  get isLoaded() { return this.arrays !== null; }

  // All that is sampled, once; further calls wait for the first.
  load() {
    this.loading ??= this.loadAll();
    return this.loading;
  }

  async loadAll() {
    const meta = this.meta;
    const [at, ports, lanes] = await Promise.all([read(meta.at_s), read(meta.keys.ports), read(meta.keys.lanes)]);
    for (const [name, parts] of Object.entries(meta.columns)) {
      const column = {};
      for (const [part, described] of Object.entries(parts)) column[part] = await read(described);
      this.columns[name] = column;
    }
    this.flows = await this.loadFlows(meta.flows);
    this.trees = meta.trees ? { heads: await read(meta.trees.heads), members: await read(meta.trees.members), kinds: meta.trees.kinds } : null;
    if (this.trees) this.indexTrees(at.length);
    this.arrays = { at, ports, lanes };
    this.indexKeys();
  }

  async loadFlows(meta) {
    const [table, begins, ports] = await Promise.all([read(meta.table), read(meta.begins), read(meta.ports)]);
    return { ...meta, table, begins, ports, count: table.length / 5 };
  }

  indexTrees(samples) {
    const heads = this.trees.heads, begins = new Int32Array(samples + 1);
    for (let i = 0; i < heads.length; i += 5) begins[heads[i] + 1]++;
    for (let s = 0; s < samples; s++) begins[s + 1] += begins[s];
    this.trees.begins = begins;  // Trees of sample s: from begins[s] to begins[s + 1].
  }

  indexKeys() {
    const { ports, lanes } = this.arrays;
    this.keysOf = new Map();
    for (let k = 0; k < ports.length; k++) {
      if (!this.keysOf.has(ports[k])) this.keysOf.set(ports[k], []);
      this.keysOf.get(ports[k]).push(k);
    }
    this.lanesUsed = [...new Set(lanes)].sort((a, b) => a - b);
  }

  get samples() { return this.arrays.at.length; }

  // The last sample at or before a time; the first if there is none.
  sampleAt(time) {
    const at = this.arrays.at;
    let low = 0, high = at.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (at[middle] <= time + 1e-9) low = middle; else high = middle - 1;
    }
    return low;
  }

  interval(sample) { return sample > 0 ? this.arrays.at[sample] - this.arrays.at[sample - 1] : NaN; }

  has(metric) { return metric.column in this.columns; }

  // Whether a metric is the growth of a counter between two samples.
  grows(metric) { return Boolean(this.columns[metric.column]?.growth); }

  // What a column held at a sample, as the run's table has it.
  raw(name, sample, key) {
    const column = this.columns[name], keys = this.arrays.ports.length;
    if (column.values) return column.values[sample * keys + key];
    let sum = column.base[key];
    for (let s = 0; s < sample; s++) sum += column.growth[s * keys + key];
    return sum;
  }

  // What a metric is for a lane in the interval that ended at a sample; NaN if there was none.
  value(metric, sample, key) {
    const column = this.columns[metric.column], keys = this.arrays.ports.length;
    if (!column) return NaN;
    if (column.values) return column.values[sample * keys + key];
    if (sample === 0) return NaN;
    let grown = column.growth[(sample - 1) * keys + key];
    if (grown < 0) grown = this.raw(metric.column, sample, key);  // The counter began anew.
    return metric.factor * grown / this.interval(sample);
  }

  // Fill `out`, one value per direction of a link, for the chosen lane (-1: all); what was not sampled is NaN.
  fill(metric, sample, lane, out) {
    out.fill(NaN);
    const { ports, lanes } = this.arrays, column = this.columns[metric.column];
    if (!column || (column.growth && sample === 0)) return;
    const keys = ports.length, scale = column.growth ? metric.factor / this.interval(sample) : 1;
    const from = column.growth || column.values, begin = (column.growth ? sample - 1 : sample) * keys;
    const joinsMost = metric.joins === "max";
    for (let k = 0; k < keys; k++) {
      if (lane >= 0 && lanes[k] !== lane) continue;
      let value = from[begin + k] * scale;
      if (value < 0) value = this.value(metric, sample, k);
      const old = out[ports[k]];
      out[ports[k]] = Number.isNaN(old) ? value : joinsMost ? Math.max(old, value) : old + value;
    }
  }

  // The most that a metric is in this phase, of a single lane: where its scale of colours ends.
  mostOf(metric) {
    if (!(metric.column in this.most)) {
      const column = this.columns[metric.column], keys = this.arrays.ports.length;
      let most = 0;
      if (column?.values) for (const value of column.values) if (value > most) most = value;
      if (column?.growth) {
        for (let s = 1; s < this.samples; s++) {
          const scale = metric.factor / this.interval(s);
          for (let i = (s - 1) * keys; i < s * keys; i++) if (column.growth[i] * scale > most) most = column.growth[i] * scale;
        }
      }
      this.most[metric.column] = most;
    }
    return this.most[metric.column];
  }

  series(metric, key) {
    const out = new Float64Array(this.samples);
    for (let s = 0; s < this.samples; s++) out[s] = this.value(metric, s, key);
    return out;
  }

  flow(number) {
    const { table, begins, ports, jobs, levels, hosts, stalls } = this.flows, at = number * 5;
    return {
      number, job: jobs[table[at]], level: levels[table[at + 1]], host: hosts[table[at + 2]], peer: hosts[table[at + 3]],
      ways: table[at + 4], ports: ports.subarray(begins[number], begins[number + 1]), stall: stalls[number] || null,
    };
  }

  flowsWhere(test) {
    const found = [];
    for (let i = 0; i < this.flows.count; i++) {
      const flow = this.flow(i);
      if (test(flow)) found.push(flow);
    }
    return found;
  }

  // The trees of the interval that ended at a sample, the largest first.
  treesAt(sample) {
    if (!this.trees) return [];
    const { heads, members, kinds, begins } = this.trees, found = [];
    for (let i = begins[sample]; i < begins[sample + 1]; i++) {
      const end = 5 * (i + 1) < heads.length ? heads[5 * (i + 1) + 4] : members.length / 4;
      found.push({ port: heads[5 * i + 1], lane: heads[5 * i + 2], bytes: heads[5 * i + 3], kind: kinds[i],
        members: members.subarray(4 * heads[5 * i + 4], 4 * end) });
    }
    return found;
  }
}

class Run {
  constructor(meta, number) {
    Object.assign(this, { meta, number, fabric: meta.fabric });
    this.phases = meta.phases.map((phase, place) => new Phase(this, phase, place));
    this.portOf = new Map(meta.fabric.ports.map((name, place) => [name, place]));
    this.nodeOf = new Map(meta.fabric.nodes.map(node => [node.name, node]));
    this.portsOf = new Map(meta.fabric.nodes.map(node => [node.name, []]));
    meta.fabric.owners.forEach((owner, place) => this.portsOf.get(owner).push(place));
    const played = meta.happened.spans.filter(one => one.kind === "job").map(one => one.label);
    this.jobs = [...new Set([...meta.phases.flatMap(phase => phase.flows.jobs), ...meta.steps.map(step => step[1]), ...played])];  // Of a run that plays: as they come.
  }

  // The phase that is shown at a time: the last one that has begun.
  phaseAt(time) {
    const sampled = this.phases.filter(phase => !phase.isLoaded || phase.samples);
    let found = sampled[0];
    for (const phase of sampled) if (phase.meta.started_s <= time + 1e-3) found = phase;
    return found;
  }
}

function scaled(value, units) {
  const [factor, unit] = units.find(([factor]) => Math.abs(value) >= factor) || units[units.length - 1];
  const number = value / factor;
  return `${Math.abs(number) < 999.5 ? Number(number.toPrecision(3)) : Math.round(number)} ${unit}`;
}
function formatRate(value) { return scaled(value, RATES); }
function formatSize(value) { return scaled(value, SIZES); }
function formatTime(value) { return scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "us"]]); }
function formatPerSecond(value) { return `${scaled(value, [[1e6, "M"], [1e3, "k"], [1, ""]])}/s`; }
function formatPercent(value) { return `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`; }
function formatCount(value) { return Number.isNaN(value) ? "-" : value.toLocaleString("en-GB"); }

// An element with attributes and children; texts are never read as HTML.
function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined));
  return made;
}
