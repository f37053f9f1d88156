// Panels by their type: each draws its data, as the document has it, into an element.
import { h, page, range, report, sum, svg, tipped } from "./dom.js";
import { column, fieldOf, percent, rowTip, text, whole } from "./format.js";
import { dot, dotLegend, extent, line, lineLegend, padded, path, plot, rect } from "./plot.js";
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

const panels = { note: () => {}, scatter, strips, curve, histogram, matrix, groups, table };

const band = (area, x, from, to) => rect("band", Math.max(area.left, x(from)), area.top, x(to) - Math.max(area.left, x(from)), area.bottom - area.top);
// Around the values; of an axis that has a `least`, from zero to that at least.
function spanOf(axis, values) {
  const [low, high] = extent(values);
  return axis.least === null || axis.least === undefined ? padded([low, high]) : [Math.min(0, low), Math.max(axis.least, high) * 1.06 || 1];
}
// Values from zero on, some of them very large, are shown by their logarithms.
function logarithmic(axis, values) {
  const [low, high] = extent(values), positive = values.filter((value) => value > 0).sort((a, b) => a - b);
  if (!axis.may_be_log || low < 0 || !positive.length || high <= 30 * positive[positive.length >> 1]) return null;
  return { ...axis, log: true, label: `${axis.label}, logarithmic`, domain: [positive[0] / 1.15, high * 1.15], least: positive[0] };
}

function scatter(element, data) {
  const [xs, ys, misses] = [column(data.x.key), column(data.y.key), column(data.miss)];
  const { drawn, names, count: all } = report.rows;
  const rows = data.also ? range(names.length).filter((row) => drawn.includes(row) || column(data.also)[row]) : drawn;
  const bars = data.bars && rows.length <= 400 ? data.bars : null;
  const of = (values) => rows.map((row) => values[row]);
  const edges = data.edge === null || data.edge === undefined ? [] : [data.edge];
  const both = data.diagonal ? [...of(xs), ...of(ys)] : null;
  const log = logarithmic(data.x, [...of(xs), ...edges]);
  const x = log || { ...data.x, domain: spanOf(data.x, both || [...of(xs), ...edges]) };
  const y = { ...data.y, label: bars ? bars.label : data.y.label, domain: spanOf(data.y, both || of(ys)) };
  if (bars) y.domain = extent([...y.domain, ...padded(extent([...of(column(bars.low)), ...of(column(bars.high))]), 0.02)]);
  const at = (row) => (log ? Math.max(log.least, xs[row]) : xs[row]);
  const isMiss = (row) => !!misses[row];
  const missed = rows.filter(isMiss).length;
  if (data.legend) element.append(dotLegend([`${data.legend[0]} (${whole(rows.length - missed)})`, `${data.legend[1]} (${whole(missed)})`]));
  element.append(plot({
    label: data.label || data.title, height: data.height, x, y,
    draw: (px, py, area) => [
      edges.filter((edge) => edge < x.domain[1]).map((edge) => band(area, px, edge, x.domain[1])),
      data.diagonal && line("guide", px(x.domain[0]), py(x.domain[0]), px(x.domain[1]), py(x.domain[1])),
      bars && rows.map((row) => line(isMiss(row) ? "reach missed" : "reach", px(xs[row]), py(column(bars.low)[row]), px(xs[row]), py(column(bars.high)[row]))),
      [...rows].sort((a, b) => misses[a] - misses[b]).map((row) => dot(px(at(row)), py(ys[row]), isMiss(row))),
    ],
    points: () => [...rows].sort((a, b) => xs[a] - xs[b]).map((row) => ({ x: at(row), y: ys[row], ...rowTip(data.tip, row) })),
  }));
  const thinned = !data.also && rows.length < all && `${whole(rows.length)} of ${whole(all)} rows are drawn, evenly spaced.`;
  for (const foot of [data.foot, thinned]) if (foot) element.append(h("p", { class: "soft small" }, foot));
}

function strips(element, { label, x: axis, by, names }) {
  const values = column(axis.key), { drawn } = report.rows;
  const sides = [0, 1].map((side) => drawn.filter((row) => column(by)[row] === side).map((row) => values[row]).sort((a, b) => a - b));
  const at = (side, part) => side[Math.round(part * (side.length - 1))];
  const tip = (side, s, part) => ({ title: names[s], lines: [[`${percent(part)} have less than`, text(fieldOf(axis.key), at(side, part))], ["rows", whole(side.length)]] });
  element.append(plot({
    label, height: 220,
    x: { ...axis, domain: spanOf(axis, drawn.map((row) => values[row])) },
    y: { domain: [-0.6, 1.6], ticks: [0, 1], format: (s) => names[s] },
    draw: (x, y) => sides.map((side, s) => side.length > 0 && [
      side.map((value, i) => svg("circle", { class: s ? "miss" : "dot", cx: x(value), cy: y(s) + ((i * 7919) % 29) - 14, r: 2.6, opacity: 0.45 })),
      line("guide thick", x(at(side, 0.5)), y(s) - 22, x(at(side, 0.5)), y(s) + 22)]),
    points: () => sides.flatMap((side, s) => (side.length ? [0.05, 0.25, 0.5, 0.75, 0.95].map((part) => ({ x: at(side, part), y: s, ...tip(side, s, part) })) : [])),
  }));
}

function curve(element, { title, xs, ys, x, y, best, before, chance, band, sizes, tips }) {
  if (before) element.append(lineLegend("now", "before"));
  element.append(plot({
    label: title, square: true, by: chance ? null : "x", x, y,
    draw: (px, py) => {
      const run = (kind, at, values) => svg("path", { class: kind, d: path(at.map((value, i) => [px(value), py(values[i])])) });
      const expected = {
        band: ({ at, low, high }) => svg("path", { class: "band", d: `${path([...at.map((p, i) => [px(p), py(high[i])]), ...at.map((p, i) => [px(p), py(low[i])]).reverse()])}Z` }),
        bars: ({ at, low, high }) => at.map((p, i) => line("chance", px(p), py(low[i]), px(p), py(high[i]))),
      };
      return [band && expected.band(band), chance && [expected[chance.style](chance), line("guide", px(0), py(0), px(1), py(1))],
        best && run("guide dashed", xs, best), before && run("line other dashed", before.xs, before.ys), run("line", xs, ys),
        chance && xs.map((value, i) => svg("circle", { class: "dot", cx: px(value), cy: py(ys[i]), r: 3 + (sizes ? 7 * Math.sqrt(sizes[i]) : 0) }))];
    },
    points: () => xs.map((value, i) => ({ x: value, y: ys[i], ...tips[i] })),
  }));
}

function histogram(element, { title, x, y, stacks, legend, even, tips }) {
  const bins = stacks[0].length, upTo = range(bins).map((i) => sum(stacks.map((stack) => stack[i])));
  const top = Math.max(even ? even.at + even.reach : 0, ...upTo) * 1.06;
  if (legend) element.append(dotLegend(legend));
  element.append(plot({
    label: title, square: true, by: "x", x, y: { ...y, domain: [0, top], whole: true },
    draw: (px, py, area) => [
      even && rect("band", area.left, py(even.at + even.reach), area.right - area.left, py(Math.max(0, even.at - even.reach)) - py(even.at + even.reach)),
      range(bins).map((i) => stacks.map((stack, k) => {
        const upper = sum(stacks.slice(0, k + 1).map((one) => one[i]));
        return rect(k < stacks.length - 1 ? "column miss" : "column", px(i / bins) + 1.5, py(upper), px(1 / bins) - px(0) - 3, py(0) - py(stack[i]), stacks.length > 1 ? 0 : 2);
      })),
      even && line("guide dashed", area.left, py(even.at), area.right, py(even.at))],
    points: () => upTo.map((n, i) => ({ x: (i + 0.5) / bins, y: n, ...tips[i] })),
  }));
}

function matrix(element, { rows, columns, labels, counts, share }) {
  const cell = (n, i, j, all) => tipped(h("td", { class: n ? (i === j ? "right" : "wrong") : null }, n || h("span", { class: "soft" }, "·")),
    `${rows}: ${labels[i]}, ${columns}: ${labels[j]}`, [["rows", whole(n)], [share, percent(n / (all || 1), 1)]]);
  element.append(h("div", { class: "scroll" }, h("table", { class: "matrix" }, h("caption", { class: "unseen" }, `Rows: ${rows}, columns: ${columns}`),
    h("thead", null, h("tr", null, h("th", { scope: "col", class: "corner" }, `${rows} ↓ ${columns} →`), labels.map((label) => h("th", { scope: "col" }, label)))),
    h("tbody", null, counts.map((line_, i) => h("tr", null, h("th", { scope: "row" }, labels[i]), line_.map((n, j) => cell(n, i, j, sum(line_)))))))));
}

function groups(element, { title, head, hit, sure, level, x, y }) {
  const list = page.view.groups, isOff = (group) => group.word !== "about right";
  const low = Math.min(...list.map((group) => Math.min(group.interval[0], group.expected)));
  const isLong = list.length > 5 || list.some((group) => group.name.length > 12);
  const between = ({ interval: [from, to] }) => `${percent(from).replace("%", "")} to ${percent(to)}`;
  const asPercent = (name, key) => ({ name, number: true, value: (group) => group[key], cell: (group) => percent(group[key], 1) });
  const { table: element_, more } = sortable([
    { name: head, value: (group) => list.indexOf(group), cell: (group) => group.name },
    { name: "Rows", number: true, value: (group) => group.count },
    asPercent(hit, "observed"),
    { name: "Range", number: true, extra: true, value: (group) => group.interval[0], cell: between, title: "Wilson's interval: 19 times out of 20 it holds what many more rows would show" },
    ...(sure ? [asPercent(sure, "expected")] : []),
    { name: "Verdict", value: (group) => group.word, cell: (group) => h("span", { class: isOff(group) ? "whole far" : "whole" }, group.word) },
  ], list, { label: title, class: "groups" });
  const picture = plot({
    label: title, height: 250, by: "x",
    x: { ...x, domain: [-0.5, list.length - 0.5], ticks: list.length > 8 ? [] : range(list.length), format: (i) => (isLong ? String(i + 1) : list[i].name) },
    y: { ...y, domain: [Math.max(0, Math.floor(low * 10 - 0.3) / 10), 1.005], as: "percent" },
    draw: (px, py, area) => [
      level && line("guide dashed", area.left, py(level), area.right, py(level)),
      list.map((group, i) => [
        sure && line("guide thick", px(i - 0.22), py(group.expected), px(i + 0.22), py(group.expected)),
        line(isOff(group) ? "reach strong missed" : "reach strong", px(i), py(group.interval[0]), px(i), py(group.interval[1])),
        dot(px(i), py(group.observed), isOff(group))])],
    points: () => list.map((group, i) => ({ x: i, y: group.observed, title: group.name, lines: [["rows", whole(group.count)], [hit.toLowerCase(), percent(group.observed, 1)],
      ["its rows allow", between(group)], [sure ? sure.toLowerCase() : "should be", percent(group.expected, 1)], ["verdict", group.word]] })),
  });
  element.append(h("div", { class: "pair" }, picture, h("div", null, element_, more)));
}

function table(element, { title, columns, items, first }) {
  const typedColumns = columns.map((field) => typed(field, (item) => item[field.key], items.map((item) => item[field.like ?? field.key])));
  const made = sortable(typedColumns, items, { label: title, first });
  element.append(made.table, made.more);
}

