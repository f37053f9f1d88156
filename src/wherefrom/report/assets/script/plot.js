// Plots of plain SVG that a pointer or the arrow keys can read.
import { h, hideTip, live, page, showTip, spoken, svg } from "./dom.js";
import { count, number, percent } from "./format.js";

export const plots = [];
let clips = 0;
let resizing;
addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => plots.forEach((draw) => draw()));
});

// ------------------------------------------------------------------ axes

function ticks([low, high], most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((one) => one >= rough * 0.999);
  const marks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) marks.push(Number((k * step).toPrecision(12)));
  return marks;
}
function logTicks([low, high]) {
  const marks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const m of high / low > 300 ? [1] : [1, 2, 5]) marks.push(m * 10 ** power);
  }
  return marks.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}
const sparse = (marks, most) => marks.filter((_, i) => i % Math.ceil(marks.length / most) === 0);
const isRound = (mark) => Math.abs(100 * mark - Math.round(100 * mark)) < 1e-6;
function formatOf(axis, marks) {
  if (axis.format) return axis.format;
  const digits = marks.every(isRound) ? 0 : 1;
  return axis.as === "percent" ? (value) => percent(value, digits) : number;
}
export function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low > high ? [0, 1] : [low, high];
}
export function padded([low, high], part = 0.04) {
  const room = (high - low || Math.abs(high) || 1) * part;
  return [low - room, high + room];
}
function scale([low, high], [from, to], log) {
  const f = log ? Math.log : (v) => v;
  return (value) => from + ((f(value) - f(low)) / (f(high) - f(low) || 1)) * (to - from);
}

// ------------------------------------------------------------------ marks

export const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
export const line = (kind, x1, y1, x2, y2) => svg("line", { class: kind, x1, x2, y1, y2 });
export const rect = (kind, x, y, width, height, rx) => svg("rect", { class: kind, x, y, width: Math.max(0, width), height: Math.max(0, height), rx });
// Misses have another shape, too: a diamond.
export const dot = (x, y, isMiss) => (isMiss
  ? svg("path", { class: "miss", d: `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z` })
  : svg("circle", { class: "dot", cx: x, cy: y, r: 3.4, opacity: 0.8 }));
const icon = (width, height, mark) => h("span", { class: "plot", vars: { margin: "0 6px 0 0", width: `${width}px`, "align-self": "center" } },
  svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, mark));
const listed = (...items) => h("ul", { class: "legend", vars: { margin: "0" } }, items.map((item) => h("li", null, item)));
export const dotLegend = ([hit, miss]) => listed([icon(12, 12, dot(6, 6, false)), hit], [icon(12, 12, dot(6, 6, true)), miss]);
export const lineLegend = (now, before) =>
  listed([icon(22, 10, line("line", 0, 5, 22, 5)), now], [icon(22, 10, line("line other dashed", 0, 5, 22, 5)), before]);

// ------------------------------------------------------------------ the plot itself

// about: label, x and y ({domain, label, format, as, log, ticks, whole}), height or square, draw(x, y, area) -> elements,
// points() -> [{x, y, title, lines, light}] in data units; by: "x" takes the nearest column, else the nearest point.
export function plot(about) {
  const holder = h("div", { class: "plot" });
  const draw = () => {
    const onPaper = holder.closest(".pair") ? 300 : 620;
    const width = page.opened ? onPaper : Math.max(240, holder.clientWidth || 320);
    const height = about.square ? Math.min(400, width) : about.height || 280;
    const marksX = about.x.ticks || (about.x.log ? sparse(logTicks(about.x.domain), width / 90) : ticks(about.x.domain, width / 80));
    let marksY = about.y.ticks || (about.y.log ? logTicks(about.y.domain) : ticks(about.y.domain, height / 55));
    if (about.y.whole) marksY = marksY.filter(Number.isInteger);
    const [formatX, formatY] = [formatOf(about.x, marksX), formatOf(about.y, marksY)];
    const left = 10 + Math.max(16, ...marksY.map((mark) => 7 * formatY(mark).length));
    const area = { left, right: width - 14, top: about.y.label ? 26 : 10, bottom: height - (about.x.label ? 42 : 24) };
    const x = scale(about.x.domain, [area.left, area.right], about.x.log);
    const y = scale(about.y.domain, [area.bottom, area.top], about.y.log);
    const points = about.points().map((point) => ({ ...point, px: x(point.x), py: y(point.y) }));
    const clip = `clip${(clips += 1)}`;
    const ring = svg("circle", { class: "ring", r: 6, visibility: "hidden" });
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "group", "aria-roledescription": "plot",
      "aria-label": `${about.label}. ${count(points.length, "value")}; the arrow keys go through them.` },
    marksY.map((mark) => [line("grid", area.left, y(mark), area.right, y(mark)),
      svg("text", { x: area.left - 8, y: y(mark) + 4, "text-anchor": "end" }, formatY(mark))]),
    marksX.map((mark) => svg("text", { x: x(mark), y: area.bottom + 18, "text-anchor": "middle" }, formatX(mark))),
    line("axis", area.left, area.bottom, area.right, area.bottom),
    about.y.label && svg("text", { x: 0, y: 12 }, about.y.label),
    about.x.label && svg("text", { x: area.right, y: height - 6, "text-anchor": "end" }, about.x.label),
    svg("clipPath", { id: clip }, rect(null, area.left - 8, area.top - 8, area.right - area.left + 16, area.bottom - area.top + 16)),
    svg("g", { "clip-path": `url(#${clip})` }, about.draw(x, y, area)),
    ring);
    read(picture, points, ring, about.by, width);
    holder.replaceChildren(picture);
  };
  plots.push(draw);
  return holder;
}

function read(picture, points, ring, by, width) {
  let lit = null, at = -1;
  const light = (selector) => {
    if (lit) lit.classList.remove("lit");
    lit = selector ? picture.querySelector(selector) : null;
    if (lit) lit.classList.add("lit");
  };
  const show = (index, aloud) => {
    at = index;
    const point = points[index];
    ring.setAttribute("cx", point.px);
    ring.setAttribute("cy", point.py);
    ring.setAttribute("visibility", "visible");
    light(point.light);
    showTip(() => {
      const box = picture.getBoundingClientRect(), zoom = box.width / width;
      return [box.x + point.px * zoom, box.y + point.py * zoom];
    }, point, aloud);
    if (aloud) live.textContent = spoken(point);
  };
  const hide = () => {
    ring.setAttribute("visibility", "hidden");
    light(null);
    hideTip();
  };
  const nearest = (event) => {
    const box = picture.getBoundingClientRect(), zoom = width / box.width;
    const [ex, ey] = [(event.clientX - box.x) * zoom, (event.clientY - box.y) * zoom];
    let best = -1, least = by === "x" ? Infinity : 45;
    points.forEach(({ px, py }, index) => {
      const away = by === "x" ? Math.abs(px - ex) + Math.abs(py - ey) * 1e-3 : Math.hypot(px - ex, py - ey);
      if (away < least) [least, best] = [away, index];
    });
    if (best < 0) hide();
    else show(best, false);
  };
  for (const name of ["pointermove", "pointerdown"]) picture.addEventListener(name, nearest);
  for (const name of ["pointerleave", "blur"]) picture.addEventListener(name, hide);
  picture.addEventListener("keydown", (event) => {
    const last = points.length - 1;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    show(Math.max(0, Math.min(last, to)), true);
  });
}
