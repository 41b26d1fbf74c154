"use strict";
// The time axis: rows of what happened, under the slider and as wide as it.

const ROWS = { event: 9, phase: 18, job: 9, queue: 12, held: 10, cut: 9, failure: 9, blackout: 7, restart: 7, repair: 9, step: 9, stream: 9 };
const FAULTS = ["cut", "failure", "blackout", "restart"];
const ROW_NAMES = { cut: "links cut or slow", failure: "programs, disks", blackout: "blackouts", restart: "restarts", repair: "rules installed", step: "steps" };
const MOST_JOB_ROWS = 6, MOST_STREAM_ROWS = 12, MOST_FAULT_ROWS = 8;

const LOOKS = { wait: true, life: true, notice: true, out: true };

class Axis {
  constructor(canvas, legend, page) {
    Object.assign(this, { canvas, legend, page, spans: [], instants: [], range: [0, 1], boxes: [], numbers: null });
    canvas.addEventListener("pointermove", event => this.point(event));
    canvas.addEventListener("pointerleave", () => page.tell(null));
    canvas.addEventListener("click", event => this.clicked(event));
  }

  // Show what happened from a time to another; `steps` are [job, number, start, end] of the chosen job, `streams` the
  // tracks of its ranks.
  show(run, range, origin, steps, streams) {
    Object.assign(this, { run, range, origin, steps, streams });
    this.spans = run.meta.happened.spans.filter(one => one.end_s >= range[0] && one.begin_s <= range[1]);
    this.instants = run.meta.happened.instants.filter(one => one.at_s >= range[0] && one.at_s <= range[1]);
    this.draw();
  }

  // The slider's thumb does not reach its ends: half of it stays free on either side.
  x(time) { const width = this.canvas.clientWidth - 16; return 8 + width * (time - this.range[0]) / (this.range[1] - this.range[0] || 1); }

  timeAt(x) { const width = this.canvas.clientWidth - 16; return this.range[0] + (x - 8) / width * (this.range[1] - this.range[0]); }

  draw() {
    const rows = this.rows(), height = rows.reduce((sum, row) => sum + row.height + 2, 16);
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(height * ratio);
    const brush = canvas.getContext("2d");
    brush.scale(ratio, ratio);
    brush.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    this.boxes = [];
    this.numberPhases(brush);
    const tops = [];
    let y = 0;
    for (const row of rows) {
      for (const one of row.items) this.drawOne(brush, one, y, row.height, one.kind && LOOKS[one.kind] ? one.kind : row.kind);
      tops.push(y);
      y += row.height + 2;
    }
    this.drawTicks(brush, y);
    this.nameRows(rows, tops);
  }

  // Beside a run's rows of users' jobs and nodes, each row has its name.
  nameRows(rows, tops) {
    const names = this.page.get("rownames"), isNamed = this.page.users.of(this.run).length > 0;
    names.hidden = !isNamed;
    if (!isNamed) return;
    names.style.top = `${this.canvas.offsetTop}px`;
    names.replaceChildren(...rows.map((row, place) => h("div", { style: `top:${tops[place]}px;height:${row.height}px;line-height:${row.height}px`, title: [row.name, row.more].filter(Boolean).join(", ") }, h("b", {}, row.name || ROW_NAMES[row.kind] || ""), row.more ? ` ${row.more}` : "")));
  }

  // Where not every phase has room for its title, all have numbers, and a legend below says whose they are.
  numberPhases(brush) {
    const phases = this.spans.filter(one => one.kind === "phase");
    const fits = phases.every(one => brush.measureText(one.label).width <= this.x(one.end_s) - this.x(one.begin_s) - 8);
    this.numbers = fits ? null : new Map(this.run.meta.happened.spans.filter(one => one.kind === "phase").map((one, place) => [one, place + 1]));
    this.legend.hidden = fits;
    this.legend.replaceChildren(...(fits ? [] : phases).map(one => h("button", { title: `${one.label} ${one.detail || ""}`, "data-begin": one.begin_s, onclick: () => this.page.moveTo(one.begin_s) }, h("b", {}, `${this.numbers.get(one)}`), ` ${one.label}`)));
    if (this.page.first) this.mark(this.page.first.phase.meta);
  }

  // Mark in the legend the phase that is shown.
  mark(phase) {
    const shown = [...this.legend.children].find(button => Math.abs(button.dataset.begin - phase.started_s) < 1e-6);
    if (!shown || shown.classList.contains("shown")) return;
    for (const button of this.legend.children) button.classList.toggle("shown", button === shown);
    this.legend.scrollTop = shown.offsetTop - this.legend.offsetTop - 20;  // Where not all have room, it is in sight.
  }

  rows() {
    const of = kind => this.spans.filter(one => one.kind === kind), found = [{ kind: "phase", items: of("phase") }];
    const { users } = this.page, jobs = new Map(), overlaps = one => (one.end_s ?? one.at_s) >= this.range[0] && (one.begin_s ?? one.at_s) <= this.range[1];
    if (users.wants("traffic")) {
      for (const one of of("job")) jobs.set(one.label, [...(jobs.get(one.label) || []), one]);
      for (const [name, items] of [...jobs].slice(0, MOST_JOB_ROWS)) found.push({ kind: "job", name, items });
    }
    for (const row of users.axisRows(this.run)) found.push({ ...row, items: row.items.filter(overlaps) });
    if (this.steps.length) found.push({ kind: "step", items: this.steps.map(([job, step, begin_s, end_s]) => ({ kind: "step", label: `${job}, step ${step}`, begin_s, end_s, detail: formatTime(end_s - begin_s) })) });
    for (const track of this.streams.slice(0, MOST_STREAM_ROWS)) found.push({ kind: "stream", name: track.name, items: this.played(track) });
    if (users.wants("faults")) {
      for (const kind of FAULTS) found.push(...this.faultRows(kind, of(kind)));
      if (this.instants.length) found.push({ kind: "repair", items: this.instants });
    }
    const least = users.of(this.run).length ? 11 : 0;  // Names need so much.
    return found.map(row => ({ ...row, height: Math.max(ROWS[row.kind], least) }));
  }

  // Where rows have names, few things that fail have a row each: those of one kind may fail at once.
  faultRows(kind, items) {
    if (!items.length) return [];
    const names = [...new Set(items.map(one => one.label))];
    if (!this.page.users.of(this.run).length || names.length > MOST_FAULT_ROWS) return [{ kind, items }];
    return names.map(name => ({ kind, name, items: items.filter(one => one.label === name) }));
  }

  // The operations of a stream, and before each the time for which it waited for the stream.
  played(track) {
    const within = track.played.filter(([, , ready, , end]) => end >= this.range[0] && ready <= this.range[1]);
    return within.map(([label, kind, ready_s, begin_s, end_s]) => ({ kind: "stream", of: kind, label: `${track.name}, ${label}`, begin_s, end_s, detail: begin_s > ready_s ? `waited ${formatTime(begin_s - ready_s)} for its stream` : "" }));
  }

  // Computing has a colour of its own; what communicates has its job's.
  streamColour(one) { return one.of === "compute" ? this.page.theme.soft : this.page.jobColour(this.page.chosenJob); }

  drawOne(brush, one, y, height, kind) {
    if (LOOKS[kind]) return this.drawUsers(brush, one, y, height, kind);
    const theme = this.page.theme, begin = this.x(one.begin_s ?? one.at_s), end = this.x(one.end_s ?? one.at_s);
    const width = Math.max(end - begin, kind === "repair" || kind === "event" ? 2 : 1.5);
    brush.fillStyle = { phase: theme.band, job: this.page.jobColour(one.label), cut: theme.cut, failure: theme.cut, blackout: theme.text, restart: theme.root, repair: theme.accent, event: theme.text, step: this.page.jobColour(this.page.chosenJob), stream: this.streamColour(one) }[kind];
    if (kind === "job") brush.globalAlpha = 0.75;
    if (kind === "step" || kind === "stream") brush.globalAlpha = this.boxes.length % 2 ? 0.45 : 0.85;
    brush.fillRect(begin, y, width - (kind === "phase" ? 1 : 0), height);
    brush.globalAlpha = 1;
    if (kind === "phase" && !this.numbers) this.drawText(brush, one.label, begin + 4, y + 13, width - 8, theme.text);
    if (kind === "phase" && this.numbers && width >= 6) this.drawNumber(brush, `${this.numbers.get(one)}`, begin, y + 13, width);
    this.boxes.push({ one, left: begin - 2, right: begin + width + 2, top: y, bottom: y + height });
  }

  // Of users' jobs: who waits is hatched, who runs full, who was told to end dark; a node that is out is grey.
  drawUsers(brush, one, y, height, kind) {
    const theme = this.page.theme, begin = Math.max(this.x(one.begin_s), 0), end = this.x(one.end_s), width = Math.max(end - begin, 1.5);
    if (kind === "wait") {
      brush.strokeStyle = one.colour;
      brush.strokeRect(begin + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1);
      brush.save();
      brush.beginPath();
      brush.rect(begin, y, width, height);
      brush.clip();
      brush.beginPath();
      for (let x = begin - height; x < end; x += 6) { brush.moveTo(x, y + height); brush.lineTo(x + height, y); }
      brush.stroke();
      brush.restore();
    } else {
      brush.fillStyle = { life: one.colour, notice: theme.text, out: theme.grid }[kind];
      brush.fillRect(begin, y, width - 0.5, height);
      if (kind === "life" && height >= 10) { brush.font = "9px system-ui, 'DejaVu Sans', sans-serif"; this.drawText(brush, one.label, begin + 3, y + height - 2.5, width - 6, theme.bg); brush.font = "11px system-ui, 'DejaVu Sans', sans-serif"; }
    }
    this.boxes.push({ one, left: begin - 1, right: begin + width + 1, top: y, bottom: y + height });
  }

  drawText(brush, text, x, y, room, colour) {
    let shown = text;
    while (shown.length > 2 && brush.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
    brush.fillStyle = colour;
    if (shown.length > 2) brush.fillText(shown, x, y);
  }

  drawNumber(brush, text, x, y, width) {
    if (brush.measureText(text).width > width) return;
    brush.fillStyle = this.page.theme.text;
    brush.textAlign = "center";
    brush.fillText(text, x + width / 2, y);
    brush.textAlign = "left";
  }

  drawTicks(brush, y) {
    const [from, to] = this.range, theme = this.page.theme, step = niceStep((to - from) / Math.max(this.canvas.clientWidth / 110, 2));
    brush.fillStyle = theme.soft;
    brush.strokeStyle = theme.grid;
    brush.textAlign = "center";
    const first = Math.ceil((from - this.origin) / step) * step;
    for (let shown = first; shown <= to - this.origin + 1e-9; shown += step) {
      const x = this.x(shown + this.origin);
      brush.fillRect(x, y, 1, 4);
      brush.fillText(`${Number(shown.toPrecision(10))} s`, Math.min(Math.max(x, 14), this.canvas.clientWidth - 16), y + 14);
    }
    brush.textAlign = "left";
  }

  at({ offsetX: x, offsetY: y }) { return this.boxes.filter(box => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom).map(box => box.one); }

  // A click goes to its time; on a user's job or a node of a platform, it chooses that, too.
  async clicked(event) {
    const choice = this.at(event).map(one => one.choice).find(Boolean), time = this.timeAt(event.offsetX);
    await this.page.moveTo(time);
    if (choice) this.page.choose(choice);
  }

  point(event) {
    const found = this.at(event);
    if (!found.length) return this.page.tell(null);
    const words = found.slice(0, 4).map(one => `${one.kind === "phase" ? "" : `${one.kind} `}${one.label}: ${one.at_s !== undefined ? `${one.at_s.toFixed(4)} s` : `${one.begin_s.toFixed(4)} to ${one.end_s.toFixed(4)} s (${formatTime(one.end_s - one.begin_s)})`}${one.detail ? `, ${one.detail}` : ""}`);
    return this.page.tell(words.join("\n"), event);
  }
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(factor => factor * power).find(step => step >= least - 1e-12);
}
