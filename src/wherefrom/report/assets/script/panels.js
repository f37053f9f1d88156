// Panels by their type: each draws its data, as the document has it, into an element.
import { classes, h, page, range, report, sum, tipped } from "./dom.js";
import { column, fieldOf, percent, rowTip, text, whole } from "./format.js";
import { dotLegend, lineLegend, placed, plot, spanning } from "./plot.js";
import { sortable, typed } from "./table.js";

export const card = (title, caption, ...children) => h("div", { class: "card" }, title && h("h3", null, title), caption && h("p", null, caption), children);

export function panel(data) {
  const element = card(data.title, data.caption);
  panels[data.type](element, data);
  return element;
}
// Panels that are not wide stand side by side.
export function arranged(list) {
  const narrow = list.filter((data) => !data.wide), wide = list.filter((data) => data.wide);
  return [narrow.length > 0 && h("div", { class: "pair" }, narrow.map(panel)), wide.map(panel)];
}

const panels = { note: () => {}, scatter, strips, curve, histogram, matrix, groups, table, bars };

// Marks of Observable Plot, in the page's colours; misses have another shape, too.
const hits = (rows, at) => Plot.dot(rows, { ...at, r: 3.2, fill: "var(--accent)", fillOpacity: 0.75, className: "hits" });
const misses = (rows, at) => Plot.dot(rows, { ...at, r: 4.6, symbol: "diamond", fill: "var(--c1)", className: "misses" });
const band = (from, to, low, high) => Plot.rect([0], { x1: [from], x2: [to], y1: [low], y2: [high], fill: "var(--band)" });
const guide = (points, dashed) => Plot.line(points, { stroke: "var(--soft)", strokeDasharray: dashed ? "5 4" : null });

function scatter(element, data) {
  const [xs, ys, flags] = [column(data.x.key), column(data.y.key), column(data.miss)];
  const { drawn, names, count: all } = report.rows;
  const rows = data.also ? range(names.length).filter((row) => drawn.includes(row) || column(data.also)[row]) : drawn;
  const ends = data.bars && rows.length <= 400 ? [column(data.bars.low), column(data.bars.high)] : null;
  const of = (values) => rows.map((row) => values[row]);
  const edges = data.edge === null || data.edge === undefined ? [] : [data.edge];
  const upright = [...of(ys), ...(ends ? ends.flatMap(of) : [])], both = data.diagonal ? [...of(xs), ...upright] : null;
  const x = spanning(data.x, data.diagonal ? [...of(xs), ...of(ys)] : [...of(xs), ...edges]);
  const y = { ...spanning(data.y, both || upright), label: ends ? data.bars.label : data.y.label };
  const [px, py] = [placed(x), placed(y)];
  const isMiss = (row) => !!flags[row];
  const at = { x: (row) => px(xs[row]), y: (row) => py(ys[row]) };
  const [right, wrong] = [rows.filter((row) => !isMiss(row)), rows.filter(isMiss)];
  if (data.legend) element.append(dotLegend([`${data.legend[0]} (${whole(right.length)})`, `${data.legend[1]} (${whole(wrong.length)})`]));
  const reach = (some, colour) => Plot.ruleX(some, { x: at.x, y1: (row) => py(ends[0][row]), y2: (row) => py(ends[1][row]), stroke: colour, strokeOpacity: 0.4 });
  element.append(plot({
    label: data.label || data.title, height: data.height, square: data.square, x, y,
    marks: () => [
      edges.filter((edge) => edge < x.domain[1]).map((edge) => band(Math.max(edge, x.domain[0]), x.domain[1], ...y.domain)),
      data.diagonal && guide([Math.max(x.domain[0], y.domain[0]), Math.min(x.domain[1], y.domain[1])].map((end) => [end, end])),
      ends && [reach(right, "var(--accent)"), reach(wrong, "var(--c1)")], hits(right, at), misses(wrong, at)],
    points: () => [...rows].sort((a, b) => xs[a] - xs[b]).map((row) => ({ x: at.x(row), y: at.y(row), ...rowTip(data.tip, row) })),
  }));
  const thinned = !data.also && rows.length < all && `${whole(rows.length)} of ${whole(all)} rows are drawn.`;
  for (const foot of [data.foot, thinned]) if (foot) element.append(h("p", { class: "soft small" }, foot));
}

function strips(element, { label, x: given, by, names }) {
  const values = column(given.key), { drawn } = report.rows, x = spanning(given, drawn.map((row) => values[row])), px = placed(x);
  const sides = [0, 1].map((side) => drawn.filter((row) => column(by)[row] === side).map((row) => values[row]).sort((a, b) => a - b));
  const at = (side, part) => side[Math.round(part * (side.length - 1))];
  const tip = (side, s, part) => ({ title: names[s], lines: [[`${percent(part)} have less than`, text(fieldOf(given.key), at(side, part))], ["rows", whole(side.length)]] });
  const spread = (s) => ({ x: px, y: (_, i) => s + (((i * 7919) % 29) - 14) / 60 });
  element.append(plot({
    label, height: 220, x, y: { domain: [-0.6, 1.6], ticks: [0, 1], format: (s) => names[s] },
    marks: () => sides.map((side, s) => side.length > 0 && [(s ? misses : hits)(side, spread(s)),
      Plot.ruleX([at(side, 0.5)], { x: px, y1: s - 0.36, y2: s + 0.36, stroke: "var(--ink)", strokeWidth: 3 })]),
    points: () => sides.flatMap((side, s) => (side.length ? [0.05, 0.25, 0.5, 0.75, 0.95].map((part) => ({ x: px(at(side, part)), y: s, ...tip(side, s, part) })) : [])),
  }));
}

function curve(element, { title, xs, ys, x, y, best, before, chance, band: around, sizes, tips }) {
  if (before) element.append(lineLegend("now", "before calibration"));
  const pairs = (at, values) => at.map((value, i) => [value, values[i]]);
  const area = ({ at, low, high }) => Plot.areaY(range(at.length), { x: (i) => at[i], y1: (i) => low[i], y2: (i) => high[i], fill: "var(--band)" });
  const allowed = {
    band: area,
    bars: ({ at, low, high }) => Plot.ruleX(range(at.length), { x: (i) => at[i], y1: (i) => low[i], y2: (i) => high[i], stroke: "var(--noise)", strokeWidth: 5, strokeOpacity: 0.35 }),
  };
  element.append(plot({
    label: title, square: true, by: chance ? null : "x", x, y,
    marks: () => [around && area(around), chance && [allowed[chance.style](chance), guide([[0, 0], [1, 1]])], best && guide(pairs(xs, best), true),
      before && Plot.line(pairs(before.xs, before.ys), { stroke: "var(--c1)", strokeWidth: 2, strokeDasharray: "5 4" }),
      Plot.line(pairs(xs, ys), { stroke: "var(--accent)", strokeWidth: 2 }),
      chance && Plot.dot(range(xs.length), { x: (i) => xs[i], y: (i) => ys[i], r: { value: (i) => 3 + (sizes ? 7 * Math.sqrt(sizes[i]) : 0), scale: null }, fill: "var(--accent)", className: "hits" })],
    points: () => xs.map((value, i) => ({ x: value, y: ys[i], ...tips[i] })),
  }));
}

function histogram(element, { title, x, y, stacks, legend, even, tips }) {
  const bins = stacks[0].length, upTo = range(bins).map((i) => sum(stacks.map((stack) => stack[i])));
  const top = Math.max(even ? even.at + even.reach : 0, ...upTo) * 1.06;
  if (legend) element.append(dotLegend(legend));
  const column_ = (k) => Plot.rect(range(bins), { x1: (i) => i / bins, x2: (i) => (i + 1) / bins, insetLeft: 1.5, insetRight: 1.5, className: "column",
    y1: (i) => sum(stacks.slice(0, k).map((one) => one[i])), y2: (i) => sum(stacks.slice(0, k + 1).map((one) => one[i])), fill: k < stacks.length - 1 ? "var(--c1)" : "var(--accent)" });
  element.append(plot({
    label: title, square: true, by: "x", x, y: { ...y, domain: [0, top], whole: true },
    marks: () => [even && band(0, 1, Math.max(0, even.at - even.reach), even.at + even.reach), range(stacks.length).map(column_),
      even && Plot.ruleY([even.at], { stroke: "var(--soft)", strokeDasharray: "5 4" })],
    points: () => upTo.map((n, i) => ({ x: (i + 0.5) / bins, y: n, ...tips[i] })),
  }));
}

function matrix(element, { title, rows, columns, labels, counts, share }) {
  const cell = (n, i, j, all) => tipped(h("td", { class: n ? (i === j ? "right" : "wrong") : null }, n || h("span", { class: "soft" }, "·")),
    `${rows}: ${labels[i]}, ${columns}: ${labels[j]}`, [["rows", whole(n)], [share, percent(n / (all || 1), 1)]]);
  element.append(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, h("table", { class: "matrix" }, h("caption", { class: "unseen" }, `Rows: ${rows}, columns: ${columns}`),
    h("thead", null, h("tr", null, h("th", { scope: "col", class: "corner" }, `${rows} ↓ ${columns} →`), labels.map((label) => h("th", { scope: "col" }, label)))),
    h("tbody", null, counts.map((line_, i) => h("tr", null, h("th", { scope: "row" }, labels[i]), line_.map((n, j) => cell(n, i, j, sum(line_)))))))));
}

function groups(element, { title, head, hit, sure, level, x, y }) {
  const list = page.view.groups, isOff = (group) => group.word !== "about right";
  const low = Math.min(...list.map((group) => Math.min(group.interval[0], group.expected)));
  const between = ({ interval: [from, to] }) => `${percent(from).replace("%", "")} to ${percent(to)}`;
  const asPercent = (name, key) => ({ name, number: true, value: (group) => group[key], cell: (group) => percent(group[key], 1) });
  const { table: element_, more } = sortable([
    { name: head, value: (group) => list.indexOf(group), cell: (group) => group.name },
    { name: "Rows", number: true, value: (group) => group.count, cell: (group) => whole(group.count) },
    asPercent(hit, "observed"),
    { name: "Range", number: true, value: (group) => group.interval[0], cell: between, title: "Wilson's 95% interval for the coverage in many more rows" },
    ...(sure ? [asPercent(sure, "expected")] : []),
    { name: "Verdict", value: (group) => group.word, cell: (group) => h("span", { class: isOff(group) ? "whole far" : "whole" }, group.word) },
  ], list, { label: title });
  // Names stand below the plot if they fit there, else numbers in the order of the table.
  const isNamed = (length) => list.length * (10 + 7.2 * Math.max(...list.map((group) => group.name.length))) < length;
  const axis = { ...x, domain: [-0.5, list.length - 0.5], ticks: list.length > 12 ? [] : range(list.length), format: (i, length) => (isNamed(length) ? list[i].name : String(i + 1)) };
  const over = (some, colour) => [Plot.ruleX(some, { x: (i) => i, y1: (i) => list[i].interval[0], y2: (i) => list[i].interval[1], stroke: colour, strokeWidth: 2.4, strokeOpacity: 0.75 }),
    (colour === "var(--c1)" ? misses : hits)(some, { x: (i) => i, y: (i) => list[i].observed })];
  const picture = plot({
    label: title, height: 250, by: "x", x: axis, y: { ...y, domain: [Math.max(0, Math.floor(low * 10 - 0.3) / 10), 1.005], as: "percent" },
    marks: () => [level && Plot.ruleY([level], { stroke: "var(--soft)", strokeDasharray: "5 4" }),
      sure && Plot.link(range(list.length), { x1: (i) => i - 0.22, x2: (i) => i + 0.22, y1: (i) => list[i].expected, y2: (i) => list[i].expected, stroke: "var(--soft)", strokeWidth: 3 }),
      over(range(list.length).filter((i) => !isOff(list[i])), "var(--accent)"), over(range(list.length).filter((i) => isOff(list[i])), "var(--c1)")],
    points: () => list.map((group, i) => ({ x: i, y: group.observed, title: group.name, lines: [["rows", whole(group.count)], [hit.toLowerCase(), percent(group.observed, 1)],
      ["its rows allow", between(group)], [sure ? sure.toLowerCase() : "should be", percent(group.expected, 1)], ["verdict", group.word]] })),
  });
  element.append(h("div", { class: "pair groups" }, picture, h("div", null, element_, more)));
}

function table(element, { title, columns, items, first }) {
  const typedColumns = columns.map((field) => typed(field, (item) => item[field.key], items.map((item) => item[field.like ?? field.key])));
  const made = sortable(typedColumns, items, { label: title, first });
  element.append(made.table, made.more);
}

// Bars as a table of words, which may be long, and wrap.
function bars(element, { title, items, first }) {
  const top = Math.max(...items.map((item) => item.value), 1e-300);
  const line = (item) => h("tr", { class: item.is_clear ? null : "unclear" }, h("th", { scope: "row" }, item.name),
    h("td", { class: "track" }, h("div", { class: "filled", vars: { width: `${Math.max(0.5, (100 * Math.max(0, item.value)) / top)}%` } })), h("td", { class: "number" }, item.text));
  const list = (some, more) => h("table", { class: classes("bars", more && "more-bars") }, h("caption", { class: "unseen" }, title), h("tbody", null, some.map(line)));
  element.append(list(items.slice(0, first)));
  if (items.length > first) element.append(h("details", null, h("summary", null, `${items.length - first} more`), list(items.slice(first), true)));
}
