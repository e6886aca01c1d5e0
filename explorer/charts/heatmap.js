const views = new WeakMap();
const FONT_SIZE = 12;
const UNDEFINED = 65535;
const STEPS = 65534;

export default function heatmap({ data, parentElement, setTriggerValue }) {
  let view = views.get(parentElement);
  if (!view) {
    view = new View(parentElement);
    views.set(parentElement, view);
  }
  view.trigger = setTriggerValue;
  if (data) view.update(data);
  return () => {
    view.destroy();
    views.delete(parentElement);
  };
}

// ------------------------------------------------------------------ data

function unpack(bytes) {
  // A copy, because the message buffer does not keep the alignment that typed arrays need.
  const buffer = bytes.slice().buffer;
  const length = new DataView(buffer).getUint32(0, true);
  const base = 4 + length;
  return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)), (_, node) =>
    node && typeof node === "object" && "$offset" in node
      ? new Uint8Array(buffer, base + node.$offset, node.$length)
      : node,
  );
}

function typed(panel) {
  const { buffer, byteOffset, byteLength } = panel.data;
  return panel.encoding === "f32"
    ? new Float32Array(buffer, byteOffset, byteLength / 4)
    : new Uint16Array(buffer, byteOffset, byteLength / 2);
}

function cellValue(panel, row, col) {
  const code = panel.cells[row * panel.cols + col];
  if (panel.encoding === "f32") return code;
  if (code === UNDEFINED) return NaN;
  const u = code / STEPS;
  return panel.lo * (1 - u) + panel.hi * u;
}

function valueText(panel, value) {
  if (Number.isNaN(value)) return panel.undefinedLabel;
  const unit = panel.value.unit ? ` ${panel.value.unit}` : "";
  if (panel.decimals === null) return String(Number(value.toPrecision(6))) + unit;
  const d = panel.decimals;
  const rounded = d >= 0 && d <= 100 ? Number(value.toFixed(d)) : Math.round(value * 10 ** d) / 10 ** d;
  const exact = String(Number(rounded.toPrecision(6)));
  return `≈ ${exact === "-0" ? "0" : exact}${unit}`;
}

function plain(number) {
  return String(Number(number.toPrecision(12)));
}

function coordinateText(axis, i) {
  const at = plain(axis.start + axis.step * i);
  if (axis.labels) return `${axis.title}: ${axis.labels[i]} (${at})`;
  return `${axis.title}: ${at}${axis.unit ? ` ${axis.unit}` : ""}`;
}

function fullTitle({ title, unit }) {
  return unit ? `${title} (${unit})` : title;
}

// ------------------------------------------------------------------ colours

function packedLut(bytes) {
  const out = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    out[i] = (0xff000000 | (bytes[3 * i + 2] << 16) | (bytes[3 * i + 1] << 8) | bytes[3 * i]) >>> 0;
  }
  return out;
}

function colourIndex(panel, value) {
  const [lo, hi] = panel.value.domain;
  let u = (value - lo) / (hi - lo);
  if (panel.palette === "cyclic") u -= Math.floor(u);
  return u <= 0 ? 0 : u >= 1 ? 255 : Math.min(255, Math.floor(256 * u));
}

// One packed colour a cell; 0 (transparent) where undefined, so that the hatching behind shows.
function cellColours(panel, lut) {
  const { cells } = panel;
  const out = new Uint32Array(cells.length);
  if (panel.encoding === "u16") {
    const table = new Uint32Array(65536);
    const span = panel.hi - panel.lo;
    for (let i = 0; i <= STEPS; i++) table[i] = lut[colourIndex(panel, panel.lo + (span * i) / STEPS)];
    for (let i = 0; i < cells.length; i++) out[i] = table[cells[i]];
  } else {
    for (let i = 0; i < cells.length; i++) out[i] = cells[i] === cells[i] ? lut[colourIndex(panel, cells[i])] : 0;
  }
  return out;
}

// Canvas smoothing skips cells when it shrinks a lot along one axis only, so shrinking averages here, exactly.
function raster(panel, lut, maxWidth, maxHeight) {
  const { rows, cols } = panel;
  const width = Math.min(cols, maxWidth);
  const height = Math.min(rows, maxHeight);
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = cellColours(panel, lut);
  if (width === cols && height === rows) {
    pixels.set(colours);
  } else {
    const target = new Uint32Array(cols);
    for (let x = 0; x < width; x++) {
      target.fill(x, Math.floor((x * cols) / width), Math.floor(((x + 1) * cols) / width));
    }
    const r = new Uint32Array(width);
    const g = new Uint32Array(width);
    const b = new Uint32Array(width);
    const defined = new Uint32Array(width);
    const total = new Uint32Array(width);
    for (let y = 0; y < height; y++) {
      for (const sum of [r, g, b, defined, total]) sum.fill(0);
      const end = Math.floor(((y + 1) * rows) / height);
      for (let row = Math.floor((y * rows) / height); row < end; row++) {
        const from = row * cols;
        for (let col = 0; col < cols; col++) {
          const x = target[col];
          const colour = colours[from + col];
          total[x]++;
          if (colour !== 0) {
            defined[x]++;
            r[x] += colour & 255;
            g[x] += (colour >> 8) & 255;
            b[x] += (colour >> 16) & 255;
          }
        }
      }
      for (let x = 0; x < width; x++) {
        const n = defined[x];
        if (n === 0) continue;
        const alpha = Math.round((255 * n) / total[x]);
        pixels[y * width + x] =
          ((alpha << 24) | (Math.round(b[x] / n) << 16) | (Math.round(g[x] / n) << 8) | Math.round(r[x] / n)) >>> 0;
      }
    }
  }
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function readTheme(root) {
  const style = getComputedStyle(root);
  const probe = document.createElement("canvas").getContext("2d");
  const colour = (name, fallback) => {
    probe.fillStyle = fallback;
    probe.fillStyle = style.getPropertyValue(name).trim() || fallback;
    return probe.fillStyle;
  };
  const background = colour("--st-background-color", "#ffffff");
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(background.slice(i, i + 2), 16) || 0);
  const dark = 0.299 * r + 0.587 * g + 0.114 * b < 128;
  return {
    dark,
    background,
    text: colour("--st-text-color", dark ? "#fafafa" : "#31333f"),
    font: style.getPropertyValue("--st-font").trim() || "sans-serif",
    frame: "#7d828c",
    hatchLine: dark ? "#787c84" : "#9699a0",
    hatchFill: dark ? "#20242c" : "#f0f1f3",
    ring: dark ? "#56b4e9" : "#0072b2",
  };
}

// ------------------------------------------------------------------ drawing helpers

function niceStep(raw, whole) {
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw * (1 - 1e-9)) * power;
  return whole ? Math.max(1, Math.round(step)) : step;
}

function ticks(axis, n, room, each) {
  const lo = axis.start;
  const hi = axis.start + axis.step * (n - 1);
  if (n === 1) return [lo];
  const count = Math.max(1, Math.min(10, Math.floor(room / each)));
  const whole = Number.isInteger(axis.start) && Number.isInteger(axis.step);
  const step = niceStep((hi - lo) / count, whole);
  const out = [];
  for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9; k++) out.push(k * step);
  return out.length ? out : [lo];
}

function fit(ctx, text, room) {
  if (ctx.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && ctx.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}

function hatch(ctx, theme, dpr, x, y, width, height) {
  const size = Math.round(7 * dpr);
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const t = tile.getContext("2d");
  t.fillStyle = theme.hatchFill;
  t.fillRect(0, 0, size, size);
  t.strokeStyle = theme.hatchLine;
  t.lineWidth = 1.4 * dpr;
  t.beginPath();
  for (const shift of [-size, 0, size]) {
    t.moveTo(shift - 1, size + 1);
    t.lineTo(shift + size + 1, -1);
  }
  t.stroke();
  const pattern = ctx.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / dpr));
  ctx.fillStyle = pattern;
  ctx.fillRect(x, y, width, height);
}

function crispLine(ctx, x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

function sized(canvas, width, height, dpr) {
  const w = Math.round(width * dpr);
  const h = Math.round(height * dpr);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.clearRect(0, 0, width, height);
  ctx.textBaseline = "middle";
  return ctx;
}

function colourBar(ctx, view, panel, box, vertical) {
  const { theme } = view;
  const lut = view.lut(panel.palette);
  const [lo, hi] = panel.value.domain;
  const clipped = panel.palette === "cyclic" ? [false, false] : [panel.lo < lo, panel.hi > hi];
  const strip = document.createElement("canvas");
  strip.width = vertical ? 1 : 256;
  strip.height = vertical ? 256 : 1;
  const image = new ImageData(strip.width, strip.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < 256; i++) pixels[vertical ? 255 - i : i] = lut[i];
  strip.getContext("2d").putImageData(image, 0, 0);
  ctx.imageSmoothingEnabled = false;
  const { x, y, width, height } = box;
  ctx.drawImage(strip, x, y, width, height);
  ctx.strokeStyle = theme.frame;
  ctx.lineWidth = 1;
  ctx.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  // An arrow head at an end: the data go beyond it.
  const css = (i) => `rgb(${lut[i] & 255} ${(lut[i] >> 8) & 255} ${(lut[i] >> 16) & 255})`;
  const head = (points, fill) => {
    ctx.beginPath();
    points.forEach(([px, py], i) => (i ? ctx.lineTo(px, py) : ctx.moveTo(px, py)));
    ctx.closePath();
    ctx.fillStyle = fill;
    ctx.fill();
    ctx.stroke();
  };
  const [right, bottom] = [x + width, y + height];
  if (vertical) {
    if (clipped[0]) head([[x + 0.5, bottom], [right - 0.5, bottom], [x + width / 2, bottom + 7]], css(0));
    if (clipped[1]) head([[x + 0.5, y], [right - 0.5, y], [x + width / 2, y - 7]], css(255));
  } else {
    if (clipped[0]) head([[x, y + 0.5], [x, bottom - 0.5], [x - 7, y + height / 2]], css(0));
    if (clipped[1]) head([[right, y + 0.5], [right, bottom - 0.5], [right + 7, y + height / 2]], css(255));
  }
  ctx.fillStyle = theme.text;
  ctx.strokeStyle = theme.text;
  ctx.textAlign = vertical ? "left" : "center";
  let last = -Infinity;
  for (const [value, label] of panel.value.ticks) {
    const u = (value - lo) / (hi - lo);
    if (vertical) {
      const at = bottom - u * height;
      crispLine(ctx, right, Math.round(at) + 0.5, right + 4, Math.round(at) + 0.5);
      ctx.fillText(label, right + 7, at);
    } else {
      const half = ctx.measureText(label).width / 2;
      const at = x + u * width;
      if (at - half < last + 6) continue;
      last = at + half;
      crispLine(ctx, Math.round(at) + 0.5, bottom, Math.round(at) + 0.5, bottom + 4);
      ctx.fillText(label, at, bottom + 11);
    }
  }
}

// ------------------------------------------------------------------ the view

class View {
  constructor(parent) {
    this.root = document.createElement("div");
    this.root.className = "heatmap";
    this.root.dataset.testid = "heatmap";
    this.grid = this.child(this.root, "panels");
    this.foot = this.child(this.root, "foot");
    this.barCanvas = document.createElement("canvas");
    this.cell = this.child(this.root, "cell");
    this.tip = this.child(this.root, "tip");
    this.live = this.child(this.root, "live");
    this.live.setAttribute("aria-live", "polite");
    this.panels = [];
    this.cursor = null;
    this.paints = 0;
    this.width = 0;
    parent.appendChild(this.root);
    this.observer = new ResizeObserver(() => {
      if (Math.abs(this.root.clientWidth - this.width) >= 1) this.paint();
    });
    this.observer.observe(this.root);
    // The text is measured with the app's font, which may arrive after the first paint.
    if (document.fonts.status === "loading") document.fonts.ready.then(() => this.root.isConnected && this.paint());
  }

  child(parent, className) {
    const element = document.createElement("div");
    element.className = className;
    parent.appendChild(element);
    return element;
  }

  destroy() {
    this.observer.disconnect();
    this.root.remove();
  }

  update(bytes) {
    if (bytes !== this.bytes) {
      this.bytes = bytes;
      this.data = unpack(bytes);
      for (const panel of this.data.panels) panel.cells = typed(panel);
      this.luts = {};
      this.rebuild();
    }
    this.paint();
  }

  lut(name) {
    const key = `${name}-${this.theme.dark}`;
    this.luts[key] ??= packedLut(this.data.luts[name][this.theme.dark ? "dark" : "light"]);
    return this.luts[key];
  }

  rebuild() {
    const { panels, alt, selected, clickable } = this.data;
    const many = panels.length > 1;
    this.grid.classList.toggle("grid", many);
    this.grid.classList.toggle("clickable", clickable);
    while (this.panels.length > panels.length) this.panels.pop().element.remove();
    while (this.panels.length < panels.length) this.addPanel();
    this.panels.forEach((slot, i) => {
      const panel = panels[i];
      slot.data = panel;
      const { element } = slot;
      const button = many && clickable;
      element.setAttribute("role", button ? "button" : "application");
      if (button) element.removeAttribute("aria-roledescription");
      else element.setAttribute("aria-roledescription", "heatmap, arrow keys move between cells");
      if (button) element.setAttribute("aria-pressed", String(i === selected));
      else element.removeAttribute("aria-pressed");
      element.setAttribute("aria-label", many ? `${panel.title || `Panel ${i + 1}`}. ${alt}` : alt || panel.title);
      slot.caption.style.display = many ? "" : "none";
      slot.caption.textContent = panel.title;
      slot.caption.title = panel.title;
    });
    if (this.cursor) {
      const panel = panels[this.cursor.panel];
      if (!panel || this.cursor.row >= panel.rows || this.cursor.col >= panel.cols) this.cursor = null;
    }
  }

  addPanel() {
    const index = this.panels.length;
    const element = this.child(this.grid, "panel");
    element.tabIndex = 0;
    const caption = this.child(element, "caption");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("aria-hidden", "true");
    element.appendChild(canvas);
    this.panels.push({ element, caption, canvas });
    const hover = (event) => {
      const place = this.locate(index, event);
      if (place) this.show({ ...place, x: event.clientX, y: event.clientY, touch: event.pointerType === "touch" });
      else if (event.type === "pointermove") this.hide();
    };
    element.addEventListener("pointermove", hover);
    element.addEventListener("pointerdown", hover);
    element.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && this.hide());
    element.addEventListener("blur", () => this.hide());
    element.addEventListener("click", (event) => {
      const place = this.locate(index, event);
      if (place || this.panels.length > 1) this.click(place ?? { panel: index, row: 0, col: 0 });
    });
    element.addEventListener("focus", () => {
      if (!element.matches(":focus-visible")) return;
      const kept = this.panels[index].place ?? { row: 0, col: 0 };
      this.show({ panel: index, ...this.clamp(index, kept), keyboard: true });
    });
    element.addEventListener("keydown", (event) => this.key(index, event));
  }

  clamp(index, { row, col }) {
    const { rows, cols } = this.panels[index].data;
    return { row: Math.max(0, Math.min(rows - 1, row)), col: Math.max(0, Math.min(cols - 1, col)) };
  }

  key(index, event) {
    const { rows, cols } = this.panels[index].data;
    const now = this.cursor?.panel === index ? this.cursor : (this.panels[index].place ?? { row: 0, col: 0 });
    const jump = event.shiftKey ? 10 : 1;
    const page = Math.max(1, Math.round(rows / 10));
    const moves = {
      ArrowLeft: [0, -jump],
      ArrowRight: [0, jump],
      ArrowUp: [-jump, 0],
      ArrowDown: [jump, 0],
      PageUp: [-page, 0],
      PageDown: [page, 0],
      Home: [0, -cols],
      End: [0, cols],
    };
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      this.hide();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.click({ panel: index, row: now.row, col: now.col });
    } else if (event.key in moves) {
      event.preventDefault();
      const [dr, dc] = moves[event.key];
      this.show({ panel: index, ...this.clamp(index, { row: now.row + dr, col: now.col + dc }), keyboard: true });
    }
  }

  click({ panel, row, col }) {
    if (this.data.clickable) this.trigger("click", { panel, row, col });
  }

  locate(index, event) {
    const { canvas, plot, data } = this.panels[index];
    if (!plot) return null;
    const box = canvas.getBoundingClientRect();
    const fx = (event.clientX - box.left - plot.x) / plot.width;
    const fy = (event.clientY - box.top - plot.y) / plot.height;
    if (!(fx >= 0 && fx < 1 && fy >= 0 && fy < 1)) return null;
    return { panel: index, row: Math.floor(fy * data.rows), col: Math.floor(fx * data.cols) };
  }

  hide() {
    this.cursor = null;
    this.tip.style.display = "none";
    this.cell.style.display = "none";
  }

  show(cursor) {
    this.cursor = cursor;
    const { panel: index, row, col } = cursor;
    const { canvas, plot, data } = this.panels[index];
    this.panels[index].place = { row, col };
    if (!plot) return;
    const value = cellValue(data, row, col);
    const lines = [
      coordinateText(data.y, row),
      coordinateText(data.x, col),
      `${data.value.title}: ${valueText(data, value)}`,
    ];
    if (this.panels.length > 1 && data.title) lines.unshift(data.title);
    this.tip.replaceChildren(
      ...lines.map((text, i) => {
        const line = document.createElement("div");
        line.textContent = text;
        if (i === lines.length - 1) line.className = "value";
        return line;
      }),
    );
    Object.assign(this.tip.dataset, { row, col, value: valueText(data, value) });
    if (cursor.keyboard) this.live.textContent = lines.join(", ");

    const root = this.root.getBoundingClientRect();
    const box = canvas.getBoundingClientRect();
    const left = box.left - root.left + plot.x;
    const top = box.top - root.top + plot.y;
    const width = Math.max(3, plot.width / data.cols);
    const height = Math.max(3, plot.height / data.rows);
    const cx = left + ((col + 0.5) * plot.width) / data.cols;
    const cy = top + ((row + 0.5) * plot.height) / data.rows;
    Object.assign(this.cell.style, {
      display: "block",
      left: `${cx - width / 2}px`,
      top: `${cy - height / 2}px`,
      width: `${width}px`,
      height: `${height}px`,
    });
    const px = cursor.x === undefined ? cx : cursor.x - root.left;
    const py = cursor.y === undefined ? cy : cursor.y - root.top;
    this.tip.style.display = "block";
    const { offsetWidth: tw, offsetHeight: th } = this.tip;
    const gap = 14;
    let tx = px + gap;
    if (tx + tw > root.width) tx = px - gap - tw;
    let ty = cursor.touch ? py - th - 28 : py + gap;
    if (!cursor.touch && ty + th > root.height) ty = py - gap - th;
    this.tip.style.left = `${Math.max(0, Math.min(tx, root.width - tw))}px`;
    this.tip.style.top = `${ty}px`;
  }

  // ---------------------------------------------------------------- painting

  paint() {
    if (!this.data) return;
    this.width = this.root.clientWidth;
    if (this.width < 40) return;
    this.theme = readTheme(this.root);
    this.dpr = window.devicePixelRatio || 1;
    const style = this.root.style;
    style.setProperty("--frame", this.theme.frame);
    style.setProperty("--ring", this.theme.ring);
    style.setProperty("--hatch-line", this.theme.hatchLine);
    style.setProperty("--hatch-fill", this.theme.hatchFill);
    if (this.panels.length > 1) this.paintGrid();
    else this.paintSingle();
    if (this.cursor) this.show(this.cursor);
    this.paints++;
    this.root.dataset.paints = this.paints;
    this.root.dataset.painted = this.data.version;
  }

  note(parts) {
    const key = JSON.stringify(parts);
    if (key === this.noteKey) return;
    this.noteKey = key;
    this.foot.replaceChildren(
      ...parts.map(([text, swatch]) => {
        const item = document.createElement("span");
        if (swatch) {
          const box = document.createElement("span");
          box.className = "swatch";
          item.append(box);
        }
        item.append(text);
        return item;
      }),
    );
  }

  drawCells(ctx, panel, plot) {
    const { theme, dpr } = this;
    if (panel.undefined) hatch(ctx, theme, dpr, plot.x, plot.y, plot.width, plot.height);
    const image = raster(panel, this.lut(panel.palette), Math.round(plot.width * dpr), Math.round(plot.height * dpr));
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(image, plot.x, plot.y, plot.width, plot.height);
    ctx.strokeStyle = theme.frame;
    ctx.lineWidth = 1;
    ctx.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.width + 1, plot.height + 1);
  }

  drawGuides(ctx, panel, plot, named) {
    const { theme } = this;
    const inside = [];
    for (const guide of panel.guides) {
      const across = guide.axis === "x";
      const axis = panel[guide.axis];
      const n = across ? panel.cols : panel.rows;
      const u = ((guide.value - axis.start) / axis.step + 0.5) / n;
      if (u >= 0 && u <= 1) {
        inside.push({ guide, across, at: across ? plot.x + u * plot.width : plot.y + u * plot.height });
      }
    }
    for (const { guide, across, at } of inside) {
      for (const [colour, width] of [[theme.background, 3.5], [guide.colour, 1.75]]) {
        ctx.strokeStyle = colour;
        ctx.lineWidth = width;
        if (across) crispLine(ctx, at, plot.y, at, plot.y + plot.height);
        else crispLine(ctx, plot.x, at, plot.x + plot.width, at);
      }
    }
    if (!named) return;
    ctx.font = `11px ${theme.font}`;
    ctx.textAlign = "left";
    const taken = [];
    for (const { guide, across, at } of inside) {
      if (!guide.label) continue;
      const text = fit(ctx, guide.label, plot.width - 16);
      const width = ctx.measureText(text).width + 12;
      const height = 16;
      const right = plot.x + plot.width - 3;
      let x = across ? (at + 4 + width > right ? at - 4 - width : at + 4) : right - width;
      let y = across ? plot.y + 3 : at - 4 - height < plot.y ? at + 4 : at - 4 - height;
      const clash = () =>
        taken.find((b) => x < b.x + b.width + 2 && b.x < x + width + 2 && y < b.y + height + 1 && b.y < y + height + 1);
      for (let hit = clash(), tries = 0; hit && tries < 20; hit = clash(), tries++) {
        if (across) y = hit.y + height + 2;
        else x = hit.x - width - 4;
      }
      x = Math.max(plot.x + 2, x);
      if (clash() || y + height > plot.y + plot.height) continue;
      taken.push({ x, y, width });
      ctx.globalAlpha = 0.9;
      ctx.fillStyle = theme.background;
      ctx.fillRect(x, y, width, height);
      ctx.globalAlpha = 1;
      ctx.fillStyle = guide.colour;
      ctx.fillRect(x, y, 3, height);
      ctx.fillStyle = theme.text;
      ctx.fillText(text, x + 7, y + height / 2 + 0.5);
    }
  }

  paintSingle(nameRows = true) {
    const { theme, dpr, data, width } = this;
    const slot = this.panels[0];
    const panel = slot.data;
    this.grid.style.gridTemplateColumns = "minmax(0, 1fr)";
    this.barCanvas.remove();
    this.note(panel.undefined ? [[panel.undefinedLabel, true]] : []);
    const height = data.height - (panel.undefined ? 20 : 0);
    const ctx = sized(slot.canvas, width, height, dpr);
    const font = `${FONT_SIZE}px ${theme.font}`;
    const bold = `600 ${FONT_SIZE}px ${theme.font}`;
    ctx.font = font;
    const measure = (text) => ctx.measureText(text).width;
    const widest = (texts) => texts.reduce((most, text) => Math.max(most, measure(text)), 0);

    const beside = width >= 520;
    const barText = widest(panel.value.ticks.map(([, label]) => label));
    const top = panel.title ? 26 : 8;
    const right = beside ? 14 + 12 + 7 + barText + 8 + 16 : 14;
    const maxLabel = Math.min(110, width * 0.24);
    const below = beside ? 0 : 54;

    let bottom = 8 + 14 + 6 + 16 + below;
    let plotHeight = height - top - bottom;
    const namedY = nameRows && panel.y.labels && plotHeight / panel.rows >= 9;
    const yTicks = namedY
      ? panel.y.labels.map((label, i) => [i, fit(ctx, label, maxLabel)])
      : ticks(panel.y, panel.rows, plotHeight, 34).map((v) => [(v - panel.y.start) / panel.y.step, plain(v)]);
    const left = 20 + Math.ceil(widest(yTicks.map(([, label]) => label))) + 8;
    const plotWidth = Math.max(20, Math.floor(width - left - right));

    const namedX = panel.x.labels && plotWidth / panel.cols >= 9;
    let turned = false;
    let xTicks;
    if (namedX) {
      const cell = plotWidth / panel.cols;
      turned = widest(panel.x.labels) > cell - 6;
      xTicks = panel.x.labels.map((label, i) => [i, turned ? fit(ctx, label, 80) : label]);
      if (turned) bottom += Math.ceil(widest(xTicks.map(([, label]) => label))) - 12;
    } else {
      xTicks = ticks(panel.x, panel.cols, plotWidth, 52).map((v) => [(v - panel.x.start) / panel.x.step, plain(v)]);
    }
    plotHeight = Math.max(20, Math.floor(height - top - bottom));
    // Turned column labels may have taken the room that the row labels counted on.
    if (namedY && plotHeight / panel.rows < 9) return this.paintSingle(false);
    const plot = { x: left, y: top, width: plotWidth, height: plotHeight };
    slot.plot = plot;

    this.drawCells(ctx, panel, plot);
    this.drawGuides(ctx, panel, plot, true);

    ctx.font = font;
    ctx.fillStyle = theme.text;
    ctx.strokeStyle = theme.frame;
    ctx.lineWidth = 1;
    const yCell = plot.height / panel.rows;
    const xCell = plot.width / panel.cols;
    if (namedY && yCell < 13) ctx.font = `${Math.max(9, Math.floor(yCell))}px ${theme.font}`;
    ctx.textAlign = "right";
    for (const [i, label] of yTicks) {
      const at = plot.y + (i + 0.5) * yCell;
      crispLine(ctx, plot.x - 5, Math.floor(at) + 0.5, plot.x - 1, Math.floor(at) + 0.5);
      ctx.fillText(label, plot.x - 8, at + 0.5);
    }
    ctx.font = namedX && turned && xCell < 13 ? `${Math.max(9, Math.floor(xCell))}px ${theme.font}` : font;
    const base = plot.y + plot.height;
    let last = -Infinity;
    for (const [i, label] of xTicks) {
      const at = plot.x + (i + 0.5) * xCell;
      crispLine(ctx, Math.floor(at) + 0.5, base + 1, Math.floor(at) + 0.5, base + 5);
      if (turned) {
        ctx.save();
        ctx.translate(at, base + 8);
        ctx.rotate(-Math.PI / 2);
        ctx.textAlign = "right";
        ctx.fillText(label, 0, 0.5);
        ctx.restore();
      } else {
        const half = measure(label) / 2;
        const x = Math.min(at, width - half - 1);
        if (x - half < last + 4) continue;
        last = x + half;
        ctx.textAlign = "center";
        ctx.fillText(label, x, base + 14);
      }
    }

    ctx.font = bold;
    ctx.textAlign = "center";
    const titleY = height - below - 9;
    ctx.fillText(fit(ctx, fullTitle(panel.x), plot.width), plot.x + plot.width / 2, titleY);
    const sideways = (text, x) => {
      ctx.save();
      ctx.translate(x, plot.y + plot.height / 2);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(fit(ctx, text, plot.height), 0, 0);
      ctx.restore();
    };
    sideways(fullTitle(panel.y), 9);
    if (panel.title) {
      ctx.textAlign = "left";
      ctx.font = `600 14px ${theme.font}`;
      ctx.fillText(fit(ctx, panel.title, width - 4), 2, 11);
    }

    ctx.font = font;
    const barTitle = fullTitle(panel.value);
    if (beside) {
      const box = { x: plot.x + plot.width + 14, y: plot.y + 8, width: 12, height: plot.height - 16 };
      colourBar(ctx, this, panel, box, true);
      ctx.font = bold;
      ctx.textAlign = "center";
      sideways(barTitle, width - 9);
    } else {
      const box = { x: plot.x + 8, y: height - 31, width: plot.width - 16, height: 11 };
      colourBar(ctx, this, panel, box, false);
      ctx.font = bold;
      ctx.textAlign = "center";
      ctx.fillText(fit(ctx, barTitle, width - 8), Math.max(plot.x + plot.width / 2, width / 2), height - 42);
    }
  }

  paintGrid() {
    const { theme, dpr, data, width } = this;
    const n = this.panels.length;
    const most = Math.max(1, Math.floor((width + 12) / (data.columns ? 112 : 150)));
    let columns = Math.min(n, most, data.columns ?? Infinity);
    if (!data.columns || columns < data.columns) columns = Math.ceil(n / Math.ceil(n / columns));
    this.grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    // The padding and border of a thumbnail take 10 px.
    const inner = Math.floor((width - 12 * (columns - 1)) / columns) - 10;
    for (const slot of this.panels) {
      const panel = slot.data;
      const shape = Math.max(0.5, Math.min(1.2, panel.rows / panel.cols));
      const plotHeight = Math.max(24, Math.min(data.height, Math.round((inner - 2) * shape)));
      const ctx = sized(slot.canvas, inner, plotHeight + 2, dpr);
      slot.plot = { x: 1, y: 1, width: inner - 2, height: plotHeight };
      this.drawCells(ctx, panel, slot.plot);
      this.drawGuides(ctx, panel, slot.plot, false);
    }

    const all = data.panels;
    const same = (get) => all.every((panel) => JSON.stringify(get(panel)) === JSON.stringify(get(all[0])));
    const parts = [];
    if (same((p) => [p.x.title, p.x.unit, p.y.title, p.y.unit])) {
      parts.push([`→ ${fullTitle(all[0].x)}`], [`↓ ${fullTitle(all[0].y)}`]);
    }
    const gap = all.find((panel) => panel.undefined);
    if (gap) parts.push([gap.undefinedLabel, true]);
    this.note(parts);

    if (!same((p) => [p.palette, p.value])) {
      this.barCanvas.remove();
      return;
    }
    if (!this.barCanvas.isConnected) this.root.insertBefore(this.barCanvas, this.foot);
    const barWidth = Math.min(width, 420);
    const ctx = sized(this.barCanvas, width, 62, dpr);
    const merged = {
      ...all[0],
      lo: Math.min(...all.map((panel) => panel.lo)),
      hi: Math.max(...all.map((panel) => panel.hi)),
    };
    ctx.font = `${FONT_SIZE}px ${theme.font}`;
    colourBar(ctx, this, merged, { x: width - barWidth + 14, y: 28, width: barWidth - 34, height: 11 }, false);
    ctx.font = `600 ${FONT_SIZE}px ${theme.font}`;
    ctx.textAlign = "center";
    ctx.fillText(fit(ctx, fullTitle(all[0].value), barWidth), width - barWidth / 2 - 3, 17);
  }
}
