// Plots by Observable Plot (assets/library), and what that leaves to us: reading them with a pointer, or with the keys.
import { h, hideTip, live, page, showTip, spoken, svg } from "./dom.js";
import { count, number, percent } from "./format.js";

export const plots = [];
let resizing;
addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => plots.forEach((draw) => draw()));
});

// ------------------------------------------------------------------ axes

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
// Where a value stands: a logarithmic axis has all that is smaller than its beginning there.
export const placed = (axis) => (value) => (axis.log_from ? Math.max(axis.log_from, value) : value);
// The axis with a domain for these values; of an axis that has a `least`, from zero to that at least.
export function spanning(axis, values) {
  const [low, high] = extent(values);
  if (axis.log_from) return { ...axis, domain: [axis.log_from, Math.max(high, 10 * axis.log_from) * 1.15], cuts: low < axis.log_from };
  if (axis.least === null || axis.least === undefined) return { ...axis, domain: padded([low, high]) };
  return { ...axis, domain: [Math.min(0, low), Math.max(axis.least, high) * 1.06 || 1] };
}
function logTicks([low, high], most) {
  const inside = (steps) => {
    const marks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) for (const step of steps) marks.push(Number(`${step}e${power}`));
    return marks.filter((mark) => mark > low * 1.9 && mark <= high);
  };
  let marks = inside([1, 2, 5]);
  if (marks.length > most) marks = inside([1]);
  const every = Math.max(1, Math.ceil(marks.length / most));
  return [low, ...marks.filter((_, i) => i % every === 0)];
}
const isRound = (mark) => Math.abs(100 * mark - Math.round(100 * mark)) < 1e-6;
function formatOf(axis, marks, length) {
  if (axis.format) return (value) => axis.format(value, length);
  if (axis.as === "percent") return (value) => percent(value, marks.every(isRound) ? 0 : 1);
  return (value) => (axis.cuts && value === axis.log_from ? `≤ ${number(value)}` : number(value));
}
// Ticks whose labels do not overlap: along an axis of this length, each takes what `size` says of its label.
function scaleOf(axis, length, spacing, size) {
  const most = length / spacing;
  let marks = axis.ticks || (axis.log_from ? logTicks(axis.domain, most) : Plot.ticks(...axis.domain, Math.max(2, Math.floor(most))));
  if (axis.whole) marks = marks.filter(Number.isInteger);
  const format = formatOf(axis, marks, length), along = axis.log_from ? Math.log : (value) => value;
  const [low, high] = axis.domain.map(along);
  let end = -Infinity;
  marks = marks.filter((mark) => {
    const [middle, half] = [((along(mark) - low) / (high - low)) * length, size(format(mark)) / 2];
    if (middle - half < end) return false;
    end = middle + half + 4;
    return true;
  });
  return { type: axis.log_from ? "log" : "linear", domain: axis.domain, marks, format };
}

// ------------------------------------------------------------------ legends

const diamond = (x, y) => svg("path", { class: "miss", d: `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z` });
const stroke = (kind) => svg("line", { class: kind, x1: 0, x2: 22, y1: 5, y2: 5 });
const icon = (width, height, mark) => h("span", { class: "icon" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, mark));
const listed = (...items) => h("ul", { class: "legend" }, items.map((item) => h("li", null, item)));
export const dotLegend = ([hit, miss]) => listed([icon(12, 12, svg("circle", { class: "hit", cx: 6, cy: 6, r: 3.4 })), hit], [icon(12, 12, diamond(6, 6)), miss]);
export const lineLegend = (now, before) => listed([icon(22, 10, stroke("now")), now], [icon(22, 10, stroke("before")), before]);

// ------------------------------------------------------------------ the plot itself

// about: label, x and y ({domain, label, format, as, log_from, ticks, whole}), height or square, marks() -> Plot's marks,
// points() -> [{x, y, title, lines, light}] in data units; by: "x" takes the nearest column, else the nearest point.
export function plot(about) {
  const holder = h("div", { class: "plot" });
  const draw = () => {
    const onPaper = holder.closest(".pair") ? 330 : 680;
    const width = page.isPaper ? onPaper : holder.clientWidth;
    if (!width || holder.closest("details:not([open])")) return; // folded away, and drawn when it is opened
    const height = page.isPaper ? 230 : about.square ? Math.min(340, Math.max(240, width * 0.8)) : about.height || 280;
    const [marginRight, marginTop, marginBottom] = [20, 12, 24];
    const y = scaleOf(about.y, height - marginTop - marginBottom, 48, () => 12);
    const marginLeft = 12 + Math.max(14, ...y.marks.map((mark) => 7 * y.format(mark).length));
    const x = scaleOf(about.x, width - marginLeft - marginRight, 80, (label) => 7.2 * label.length);
    const picture = Plot.plot({
      width, height, className: "picture", marginLeft, marginRight, marginTop, marginBottom,
      x: { type: x.type, domain: x.domain }, y: { type: y.type, domain: y.domain },
      marks: [
        Plot.gridY(y.marks, { stroke: "var(--grid)", strokeOpacity: 1 }), ...about.marks(width).flat(Infinity).filter(Boolean),
        Plot.axisX(x.marks, { text: x.format, label: null, fill: "var(--soft)", stroke: "var(--soft)" }),
        Plot.axisY(y.marks, { text: y.format, label: null, tickSize: 0, fill: "var(--soft)", stroke: "var(--soft)" }),
      ],
    });
    for (const part of picture.children) part.setAttribute("aria-hidden", "true");
    const [px, py] = [picture.scale("x"), picture.scale("y")];
    const points = about.points().map((point) => ({ ...point, px: px.apply(point.x), py: py.apply(point.y) }));
    picture.setAttribute("tabindex", "0");
    picture.setAttribute("role", "group");
    picture.setAttribute("aria-roledescription", "plot");
    picture.setAttribute("aria-label", `${about.label}. ${count(points.length, "value")}; the arrow keys go through them.`);
    const ring = svg("circle", { class: "ring", r: 6, visibility: "hidden" });
    picture.append(ring);
    read(picture, points, ring, about.by, width);
    // Labels are text of the page, which wraps where the plot is narrow.
    const named = (axis, kind) => (axis.label ? [h("p", { class: `axis ${kind}` }, axis.label)] : []);
    holder.replaceChildren(...named(about.y, "upright"), picture, ...named(about.x, "level"));
  };
  plots.push(draw);
  return holder;
}

function read(picture, points, ring, by, width) {
  let lit = null, at = -1;
  const light = (find) => {
    if (lit) lit.classList.remove("lit");
    lit = find ? find(picture) : null;
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
