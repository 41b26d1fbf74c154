"use strict";
// The topology on a canvas: each half of a link has the colour of what its near end sends.

const MARGIN = { left: 26, right: 26, top: 22, bottom: 66 };

class FabricMap {
  constructor(figure, page) {
    Object.assign(this, { figure, page, canvas: figure.querySelector("canvas"), caption: figure.querySelector("figcaption") });
    Object.assign(this, { run: null, focus: null, scene: null, zoom: 1, shift: [0, 0], values: null, hover: null });
    this.listen();
  }

  show(run, focus) {
    if (run === this.run && focus === this.focus) return;
    Object.assign(this, { run, focus, zoom: 1, shift: [0, 0] });
    this.scene = focus ? sceneOfNode(run, focus) : sceneOfFabric(run);
    this.values = new Float64Array(run.fabric.ports.length);
  }

  // World to screen: the whole scene fits, times the user's zoom.
  project() {
    const { width, height } = this.size(), [x0, y0, x1, y1] = this.scene.bounds;
    const sx = this.zoom * (width - MARGIN.left - MARGIN.right) / Math.max(x1 - x0, 1e-9);
    const sy = this.zoom * (height - MARGIN.top - MARGIN.bottom) / Math.max(y1 - y0, 1e-9);
    const [dx, dy] = this.shift;
    return { x: x => MARGIN.left + (x - x0) * sx + dx, y: y => MARGIN.top + (y1 - y) * sy + dy, sx };
  }

  size() { return { width: this.canvas.clientWidth, height: this.canvas.clientHeight }; }

  prepared() {
    const { width, height } = this.size(), ratio = window.devicePixelRatio || 1, canvas = this.canvas;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const brush = canvas.getContext("2d");
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, width, height);
    return brush;
  }

  // Draw a sample of a phase. `lit`: directions to show among the others, null: all; `tree`: roots and branches; `cuts`:
  // directions of links that have failed.
  draw(colour, lit, tree, cuts) {
    const brush = this.prepared(), at = this.project(), theme = this.page.theme;
    this.placed = placed(this.scene, at);
    const dense = this.scene.halves.length > 900;
    const widths = dense ? [0.7, 1.8] : [1.6, 4.2];
    this.drawHalves(brush, colour, lit, widths);
    if (cuts.size) this.drawCuts(brush, cuts);
    if (tree) this.drawTree(brush, tree);
    this.drawBlocks(brush, colour, lit, at, tree);
    this.drawNodes(brush, at, theme, lit, tree);
    this.drawNames(brush, at, theme);
    if (this.page.chosenPort !== null) this.drawChosen(brush, theme);
  }

  // Lines of like colour in one path each: thousands of links are drawn in milliseconds.
  drawHalves(brush, colour, lit, [thin, thick]) {
    const buckets = new Map(), { xs, ys, xe, ye } = this.placed, halves = this.scene.halves;
    for (let i = 0; i < halves.length; i++) {
      const share = colour(joined(halves[i].ports, this.values));
      const isLit = lit === null || halves[i].ports.some(port => lit.has(port));
      const bucket = (isLit ? 1000 : 0) + (Number.isNaN(share) || !isLit ? 0 : 1 + Math.round(63 * Math.min(Math.max(share, 0), 1)));
      if (!buckets.has(bucket)) buckets.set(bucket, []);
      buckets.get(bucket).push(i);
    }
    const theme = this.page.theme;
    for (const bucket of [...buckets.keys()].sort((a, b) => a - b)) {
      const isLit = bucket >= 1000, step = bucket % 1000;
      brush.beginPath();
      for (const i of buckets.get(bucket)) this.trace(brush, i);
      brush.strokeStyle = step === 0 || !isLit ? theme.grid : theme.heat[Math.round((step - 1) * 255 / 63)];
      brush.globalAlpha = isLit ? 1 : theme.dim;
      brush.lineWidth = (thin + (thick - thin) * Math.max(step - 1, 0) / 63) * (isLit && lit !== null ? 1.5 : 1);
      brush.stroke();
    }
    brush.globalAlpha = 1;
  }

  // Add a half of a link to a path: a line, or a part of a bow between nodes of one row.
  trace(brush, i) {
    const { xs, ys, xe, ye, xc, yc } = this.placed;
    brush.moveTo(xs[i], ys[i]);
    if (this.scene.halves[i].bow) brush.quadraticCurveTo(xc[i], yc[i], xe[i], ye[i]); else brush.lineTo(xe[i], ye[i]);
  }

  // How far a place is from a half of a link; bows as polygons.
  distance(x, y, i) {
    const { xs, ys, xe, ye, xc, yc } = this.placed, steps = this.scene.halves[i].bow ? 8 : 1;
    let best = Infinity, before = [xs[i], ys[i]];
    for (let step = 1; step <= steps; step++) {
      const t = step / steps, u = 1 - t;
      const on = steps === 1 ? [xe[i], ye[i]] : [u * u * xs[i] + 2 * u * t * xc[i] + t * t * xe[i], u * u * ys[i] + 2 * u * t * yc[i] + t * t * ye[i]];
      best = Math.min(best, toSegment(x, y, ...before, ...on));
      before = on;
    }
    return best;
  }

  drawCuts(brush, cuts) {
    const { xe, ye } = this.placed, theme = this.page.theme;
    brush.strokeStyle = theme.cut;
    this.scene.halves.forEach((half, i) => {
      if (!half.ports.some(port => cuts.has(port))) return;
      brush.beginPath();
      brush.lineWidth = 4;
      brush.setLineDash([3, 5]);
      this.trace(brush, i);
      brush.stroke();
      brush.setLineDash([]);
      brush.beginPath();
      brush.lineWidth = 3;
      for (const side of [-6, 6]) { brush.moveTo(xe[i] - 6, ye[i] - side); brush.lineTo(xe[i] + 6, ye[i] + side); }
      brush.stroke();
    });
  }

  drawTree(brush, tree) {
    const { xe, ye, xc, yc } = this.placed, halves = this.scene.halves, theme = this.page.theme;
    for (let i = 0; i < halves.length; i++) {
      const isRoot = halves[i].ports.some(port => tree.roots.has(port));
      if (!isRoot && !halves[i].ports.some(port => tree.members.has(port))) continue;
      brush.beginPath();
      this.trace(brush, i);
      brush.lineWidth = isRoot ? 6 : 3;
      brush.strokeStyle = isRoot ? theme.root : theme.text;
      if (!isRoot) brush.setLineDash([5, 3]);
      brush.stroke();
      brush.setLineDash([]);
      arrow(brush, xc[i], yc[i], xe[i], ye[i], brush.strokeStyle);
    }
  }

  // Hosts of a leaf as two cells: what they send, and what is sent to them, each as its busiest port.
  drawBlocks(brush, colour, lit, at, tree) {
    const theme = this.page.theme;
    for (const block of this.scene.blocks) {
      const x = at.x(block.x), y = at.y(block.y), width = Math.max(3, Math.min(26, 0.8 * at.sx)), height = 14;
      [block.sent, block.received].forEach((ports, side) => {
        const share = colour(joined(ports, this.values));
        const isLit = lit === null || ports.some(port => lit.has(port));
        brush.globalAlpha = isLit ? 1 : theme.dim;
        brush.fillStyle = Number.isNaN(share) ? theme.grid : theme.heat[Math.round(255 * Math.min(Math.max(share, 0), 1))];
        brush.fillRect(x - width / 2 + side * width / 2, y, width / 2, height);
      });
      brush.globalAlpha = 1;
      const inside = tree ? [...block.sent, ...block.received] : [], isRoot = inside.some(port => tree.roots.has(port));
      const isMarked = isRoot || inside.some(port => tree.members.has(port));
      brush.strokeStyle = isRoot ? theme.root : isMarked ? theme.text : theme.grid;
      brush.lineWidth = isRoot ? 2.5 : isMarked ? 1.5 : 0.6;
      brush.strokeRect(x - width / 2, y, width, height);
      block.box = [x - width / 2, y, width, height];
    }
  }

  drawNodes(brush, at, theme, lit, tree) {
    const small = this.scene.nodes.length > 150;
    for (const node of this.scene.nodes) {
      const x = at.x(node.x), y = at.y(node.y), size = node.isHost ? (small ? 2.5 : 4) : small ? 2.5 : 5.5;
      brush.fillStyle = node.isHost ? theme[node.role] || theme.compute : theme.node;
      brush.globalAlpha = lit === null || this.run.portsOf.get(node.name).some(port => lit.has(port) || lit.has(this.run.fabric.peers[port])) ? 1 : 0.35;
      brush.beginPath();
      if (node.isHost) brush.arc(x, y, size, 0, 7); else brush.rect(x - size, y - size, 2 * size, 2 * size);
      brush.fill();
      brush.globalAlpha = 1;
      if (tree && tree.hosts.has(node.name)) {
        brush.beginPath();
        brush.arc(x, y, 8, 0, 7);
        brush.strokeStyle = theme.root;
        brush.lineWidth = 1.5;
        brush.stroke();
      }
      if (node.name === this.page.chosenNode) {
        brush.strokeStyle = theme.accent;
        brush.lineWidth = 2;
        brush.strokeRect(x - size - 4, y - size - 4, 2 * size + 8, 2 * size + 8);
      }
      node.screen = [x, y];
    }
  }

  drawNames(brush, at, theme) {
    const scene = this.scene;
    brush.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    brush.textAlign = "center";
    for (const node of scene.nodes) {
      const room = at.sx * scene.room(node);
      const text = node.label || node.name;
      if (room < 7) continue;
      const [x, y] = node.screen, upright = room < 8 + 6.4 * text.length && (node.isHost || scene.isFocus);
      if (!upright && !node.isHost && room < 4 + 6 * text.length && !scene.isFocus) continue;
      brush.save();
      brush.translate(x, node.isHost || (scene.isFocus && node.isBelow) ? y + 8 : y - 9);
      brush.lineWidth = 3;
      brush.strokeStyle = theme.bg;
      brush.fillStyle = theme.text;
      if (upright) {
        const below = node.isHost || node.isBelow;
        brush.rotate(below ? Math.PI / 2 : -Math.PI / 2);
        brush.textAlign = "left";
        brush.strokeText(text, 0, 4);
        brush.fillText(text, 0, 4);
      } else {
        const down = node.isHost || (scene.isFocus && node.isBelow) ? 9 : 0;
        const wide = brush.measureText(text).width;
        if (!node.isHost) { brush.fillStyle = theme.bg; brush.fillRect(-wide / 2 - 2, down - 10, wide + 4, 13); brush.fillStyle = theme.text; }
        brush.strokeText(text, 0, down);
        brush.fillText(text, 0, down);
      }
      brush.restore();
    }
    brush.fillStyle = theme.soft;
    for (const [text, x, y] of scene.words) brush.fillText(text, at.x(x), at.y(y) + 60);
  }

  drawChosen(brush, theme) {
    const { xe, ye, xc, yc } = this.placed, port = this.page.chosenPort;
    this.scene.halves.forEach((half, i) => {
      if (!half.ports.includes(port)) return;
      brush.beginPath();
      this.trace(brush, i);
      brush.strokeStyle = theme.accent;
      brush.lineWidth = 9;
      brush.globalAlpha = 0.35;
      brush.stroke();
      brush.globalAlpha = 1;
      arrow(brush, xc[i], yc[i], xe[i], ye[i], theme.accent);
    });
  }

  // What is at a place: a node, a block of hosts, or the half of a link that is nearest.
  hit(x, y) {
    if (!this.placed) return null;
    for (const node of this.scene.nodes) {
      if (node.screen && Math.abs(node.screen[0] - x) < 8 && Math.abs(node.screen[1] - y) < 8) return { node: node.name };
    }
    for (const block of this.scene.blocks) {
      const [left, top, width, height] = block.box || [0, 0, 0, 0];
      if (x >= left - 1 && x <= left + width + 1 && y >= top && y <= top + height) return { block };
    }
    let best = 7, found = null;
    for (let i = 0; i < this.scene.halves.length; i++) {
      const distance = this.distance(x, y, i);
      if (distance < best) { best = distance; found = { half: this.scene.halves[i] }; }
    }
    return found;
  }

  listen() {
    let from = null, moved = false;
    const place = event => { const box = this.canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    this.canvas.addEventListener("pointerdown", event => { from = place(event); moved = false; });
    this.canvas.addEventListener("pointermove", event => {
      const [x, y] = place(event);
      if (from && event.buttons) {
        if (moved || Math.hypot(x - from[0], y - from[1]) > 4) {
          moved = true;
          this.shift = [this.shift[0] + x - from[0], this.shift[1] + y - from[1]];
          from = [x, y];
          this.page.render();
        }
      } else this.page.pointed(this, this.hit(x, y), event);
    });
    this.canvas.addEventListener("pointerleave", () => this.page.pointed(this, null, null));
    this.canvas.addEventListener("click", event => { if (!moved) this.page.clicked(this, this.hit(...place(event))); from = null; });
    this.canvas.addEventListener("dblclick", event => this.page.opened(this, this.hit(...place(event))));
    this.canvas.addEventListener("wheel", event => { event.preventDefault(); this.zoomAt(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...place(event)); }, { passive: false });
  }

  zoomAt(factor, x, y) {
    const zoom = Math.min(Math.max(this.zoom * factor, 1), 40), by = zoom / this.zoom;
    this.shift = zoom === 1 ? [0, 0] : [x - MARGIN.left - (x - MARGIN.left - this.shift[0]) * by, y - MARGIN.top - (y - MARGIN.top - this.shift[1]) * by];
    this.zoom = zoom;
    this.page.render();
  }
}

function arrow(brush, x1, y1, x2, y2, colour) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 14) return;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  brush.beginPath();
  brush.moveTo(x2, y2);
  brush.lineTo(x2 - 9 * ux + 4.5 * uy, y2 - 9 * uy - 4.5 * ux);
  brush.lineTo(x2 - 9 * ux - 4.5 * uy, y2 - 9 * uy + 4.5 * ux);
  brush.fillStyle = colour;
  brush.fill();
}

function toSegment(x, y, x1, y1, x2, y2) {
  const dx = x2 - x1, dy = y2 - y1;
  const along = Math.min(Math.max(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1), 0), 1);
  return Math.hypot(x - x1 - along * dx, y - y1 - along * dy);
}

// What several directions that are drawn as one show: the most of them.
function joined(ports, values) {
  if (ports.length === 1) return values[ports[0]] === undefined ? NaN : { port: ports[0], value: values[ports[0]] };
  let best = NaN;
  for (const port of ports) if (!Number.isNaN(values[port]) && (Number.isNaN(best) || typeof best === "number" || values[port] > best.value)) best = { port, value: values[port] };
  return best;
}

// Screen coordinates of all halves; links between the same two nodes are drawn side by side, those within a row as bows:
// from each end (xs, ys) to the middle (xe, ye), by a point (xc, yc) that the curve turns to.
function placed(scene, at) {
  const count = scene.halves.length, out = {};
  for (const name of ["xs", "ys", "xe", "ye", "xc", "yc"]) out[name] = new Float32Array(count);
  scene.halves.forEach((half, i) => {
    let x1 = at.x(half.x1), y1 = at.y(half.y1), x2 = at.x(half.x2), y2 = at.y(half.y2);
    if (half.aside && !half.bow) {
      const length = Math.hypot(x2 - x1, y2 - y1) || 1, sign = half.turned ? -1 : 1;
      const ox = sign * half.aside * (y2 - y1) / length, oy = -sign * half.aside * (x2 - x1) / length;
      x1 += ox; x2 += ox; y1 += oy; y2 += oy;
    }
    const high = half.bow ? Math.min(18 + 0.16 * Math.abs(x2 - x1), 90) + half.aside : 0;
    out.xs[i] = x1; out.ys[i] = y1; out.xe[i] = x2; out.ye[i] = y2 - high;
    out.xc[i] = (x1 + x2) / 2; out.yc[i] = half.bow ? y1 - high : (y1 + y2) / 2;
  });
  return out;
}

// The whole fabric. Where there are too many hosts to show each, a leaf's are a block below it.
function sceneOfFabric(run) {
  const fabric = run.fabric, halves = [], blocks = new Map(), seen = new Map();
  const isHost = name => run.nodeOf.get(name).level === 0;
  fabric.ports.forEach((_, port) => {
    const peer = fabric.peers[port], owner = fabric.owners[port], other = fabric.owners[peer];
    if (fabric.grouped && (isHost(owner) !== isHost(other))) {
      const leaf = isHost(owner) ? other : owner, [x, y] = fabric.switches[leaf];
      if (!blocks.has(leaf)) blocks.set(leaf, { leaf, x, y: y - 0.35, sent: [], received: [] });
      blocks.get(leaf)[isHost(owner) ? "sent" : "received"].push(port);
      return;
    }
    const [x1, y1] = fabric.points[port], [x2, y2] = fabric.points[peer];
    const bow = y1 === y2 && x1 !== x2;  // A straight one would lie on others of its row, and on the nodes between.
    halves.push({ ports: [port], x1, y1, x2: (x1 + x2) / 2, y2: (y1 + y2) / 2, bow, ...aside(seen, owner, other, port, peer) });
  });
  spread(halves, seen);
  const nodes = [];
  for (const [name, [x, y]] of Object.entries(fabric.switches)) nodes.push({ name, x, y, role: run.nodeOf.get(name).role, isHost: false });
  if (!fabric.grouped) {
    fabric.ports.forEach((_, port) => {
      const owner = fabric.owners[port];
      if (isHost(owner) && !isHost(fabric.owners[fabric.peers[port]])) {
        const [x, y] = fabric.points[port];
        nodes.push({ name: owner, x, y, role: run.nodeOf.get(owner).role, isHost: true });
      }
    });
  }
  const words = Object.entries(fabric.zones).filter(() => Object.keys(fabric.zones).length > 1)
    .map(([zone, [left, right]]) => [`zone ${zone}`, (left + right) / 2, fabric.grouped ? 0.62 : 0]);
  const rows = new Map();
  for (const node of nodes) rows.set(node.y, (rows.get(node.y) || 0) + 1);
  const bounds = boundsOf(nodes, blocks.size ? 0.5 : 0);
  if (halves.some(half => half.bow && half.y1 >= bounds[3])) bounds[3] += 0.6;  // Room for bows of the highest row.
  const room = node => (bounds[2] - bounds[0]) / rows.get(node.y);
  return { halves, nodes, blocks: [...blocks.values()], words, bounds, room, isFocus: false };
}

function aside(seen, owner, other, port, peer) {
  const turned = owner > other, key = turned ? `${other}|${owner}` : `${owner}|${other}`, link = Math.min(port, peer);
  if (!seen.has(key)) seen.set(key, []);
  if (!seen.get(key).includes(link)) seen.get(key).push(link);
  return { key, link, turned };
}

function spread(halves, seen) {
  for (const half of halves) {
    const links = seen.get(half.key), step = Math.min(7, 24 / links.length);
    half.aside = links.length > 1 ? step * (links.indexOf(half.link) - (links.length - 1) / 2) : 0;
  }
}

function boundsOf(nodes, below) {
  const xs = nodes.map(node => node.x), ys = nodes.map(node => node.y);
  const least = values => values.reduce((a, b) => Math.min(a, b), Infinity), most = values => values.reduce((a, b) => Math.max(a, b), -Infinity);
  return [least(xs) - 0.25, least(ys) - below, most(xs) + 0.25, most(ys)];
}

// One node with all its ports: what is above it on the graph above, the others below.
function sceneOfNode(run, name) {
  const fabric = run.fabric, own = run.portsOf.get(name), level = run.nodeOf.get(name).level;
  const isUp = port => run.nodeOf.get(fabric.owners[fabric.peers[port]]).level > level;
  const rows = [own.filter(isUp), own.filter(port => !isUp(port))], halves = [];
  const widest = Math.max(rows[0].length, rows[1].length, 1);
  const nodes = [{ name, x: widest / 2, y: 1, role: run.nodeOf.get(name).role, isHost: level === 0 }];
  rows.forEach((ports, row) => ports.forEach((port, number) => {
    const peer = fabric.peers[port], other = fabric.owners[peer], x = widest * (number + 0.5) / ports.length, y = row ? 0 : 2;
    const node = run.nodeOf.get(other), middle = [(x + widest / 2) / 2, (y + 1) / 2];
    nodes.push({ name: other, label: `${other} (${fabric.ports[port].split(":").pop()})`, x, y, role: node.role, isHost: node.level === 0, isBelow: row === 1 });
    halves.push({ ports: [port], x1: widest / 2, y1: 1, x2: middle[0], y2: middle[1] }, { ports: [peer], x1: x, y1: y, x2: middle[0], y2: middle[1] });
  }));
  const room = node => node.y === 1 ? widest : widest / Math.max(rows[node.isBelow ? 1 : 0].length, 1);
  return { halves, nodes, blocks: [], words: [], bounds: [-0.25, -0.45, widest + 0.25, 2.45], room, isFocus: true };
}
