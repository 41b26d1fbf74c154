"use strict";
// The charts of a port over a phase: what its lanes sent beside the link's rate and their shares, and what waited.

const MOST_POINTS = 60;  // As many as the width of the panel tells apart.

// Draw into `box`, under a cursor, and return the plot; null if nothing is to be drawn.
async function drawPortCharts(library, box, cursor, page, phase, port) {
  const rate = page.first.run.fabric.rates_bps[port], shares = sharesIn(phase), spans = spansOf(phase.arrays.at);
  const all = METRICS.filter(metric => phase.has(metric) && metric.column !== "buffered_bytes").map(metric => ({ metric, lanes: lanesOf(page, phase, port, metric, spans) }));
  const shown = all.filter(one => one.lanes.some(lane => lane.most > 0) || one.metric.column === "sent_bytes");
  const used = new Set(shown.flatMap(one => one.lanes.filter(lane => lane.most > 0).map(lane => lane.name)));
  const idle = all[0].lanes.map(lane => lane.name).filter(name => !used.has(name));
  const flat = all.filter(one => !shown.includes(one)).map(one => one.metric.label);
  const words = [
    shares ? "dashed: the link's rate; dotted: what each lane is promised" : "dashed: the link's rate",
    spans.every > 1 ? `each point is ${formatTime(spans.width_s)}: the mean, of a backlog the most` : "",
    flat.length ? `none in this phase: ${flat.join(", ")}` : "", idle.length ? `sent nothing: ${idle.join(", ")}` : "",
  ].filter(Boolean);
  const legend = h("p", { class: "lanes" }, [...used].map(name => h("span", {}, h("span", { class: "dot", style: `background:${page.laneColour(name)}` }), name)));
  const plot = h("div");
  box.replaceChildren(legend, h("div", { class: "plot" }, plot, cursor), h("p", { class: "soft" }, `${words.join("; ")}.`));
  const traces = [], layout = chartLayout(page.theme, shown.length);
  shown.forEach(({ metric, lanes }, row) => {
    const axis = row ? `y${row + 1}` : "y", most = Math.max(metric.unit === "bit/s" ? rate : 0, ...lanes.map(lane => lane.most));
    const [factor, unit] = scaleOf(metric, most), axisOf = `${metric.label}${metric.axis}`;
    for (const { name, y } of lanes.filter(lane => used.has(lane.name))) traces.push({ x: spans.x, y: y.map(value => value / factor), name, yaxis: axis, type: "scatter", mode: "lines", showlegend: false, line: { color: page.laneColour(name), width: 1.5, shape: phase.grows(metric) && spans.every === 1 ? "vh" : "linear" } });
    layout[row ? `yaxis${row + 1}` : "yaxis"] = { domain: [1 - (row + 0.9) / shown.length, 1 - row / shown.length], range: [0, 1.06 * most / factor], title: { text: unit ? `${axisOf}, ${unit}` : axisOf, standoff: 4 }, nticks: 5, gridcolor: page.theme.line, zerolinecolor: page.theme.line };
    if (metric.column === "sent_bytes") layout.shapes = limitLines(page, rate / factor, shares, used, axis);
  });
  await library.newPlot(plot, traces, layout, { displayModeBar: false, responsive: true });
  return plot;
}

function chartLayout(theme, rows) {
  return {
    height: 44 + 125 * rows, margin: { l: 56, r: 10, t: 6, b: 38 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: theme.text, size: 11 }, hovermode: "x", hoverlabel: { namelength: -1 },
    xaxis: { title: { text: "time in the run, s", standoff: 4 }, gridcolor: theme.line, anchor: rows > 1 ? `y${rows}` : "y", nticks: 7 },
  };
}

// The link's rate, and the promised share of each lane that is drawn.
function limitLines(page, most, shares, used, axis) {
  const line = (y, color, dash, width) => ({ type: "line", xref: "paper", x0: 0, x1: 1, yref: axis, y0: y, y1: y, line: { color, dash, width } });
  const own = Object.entries(shares || {}).filter(([name]) => used.has(name)).map(([name, share]) => line(share * most, page.laneColour(name), "dot", 1.2));
  return [line(most, page.theme.soft, "dash", 1.4), ...own];
}

// What each lane is promised, in phases that have lanes; null in others.
function sharesIn(phase) {
  const shares = phase.run.meta.shares || {};
  return ["lanes", "lossless_lanes"].includes(phase.meta.queueing) && Object.keys(shares).length ? shares : null;
}

// How samples become points: each, or several together.
function spansOf(at) {
  const every = Math.ceil(at.length / MOST_POINTS), x = [], begins = [];
  for (let i = 0; i < at.length; i += every) {
    begins.push(i);
    x.push(every === 1 ? at[i] : (at[i] + at[Math.min(i + every, at.length) - 1]) / 2);
  }
  return { every, x, begins, width_s: at.length > 1 ? every * (at[at.length - 1] - at[0]) / (at.length - 1) : 0 };
}

function lanesOf(page, phase, port, metric, spans) {
  return (phase.keysOf.get(port) || []).map(key => {
    const series = phase.series(metric, key), joins = phase.grows(metric) ? meanIn : mostIn;
    const y = spans.begins.map(begin => joins(series.subarray(begin, begin + spans.every)));
    return { name: page.laneName(phase.run, phase.arrays.lanes[key]), y, most: y.reduce((most, value) => (value > most ? value : most), 0) };
  });
}

function mostIn(values) { return values.reduce((most, value) => (value > most ? value : most), 0); }
function meanIn(values) {
  const known = values.filter(value => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

function scaleOf({ scales }, most) { return scales.find(([factor]) => most >= factor) || scales[scales.length - 1]; }
