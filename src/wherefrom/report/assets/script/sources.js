// Sources of doubt: their colours, their names, and bars of their shares.
import { classes, h, page, range, report, svg, tipped } from "./dom.js";
import { column, percent, rowTip } from "./format.js";
import { placed, plot, spanning } from "./plot.js";

let colours = {};
export function pickColours() {
  const names = page.view.sources.overall.filter((part) => !part.is_noise).map((part) => part.name);
  const noise = page.view.sources.overall.filter((part) => part.is_noise).map((part) => part.name);
  colours = Object.fromEntries([
    ...[...names, "others"].map((name, i) => [name, { fill: `var(--c${i % 6})`, isHatched: i >= 6 }]),
    ...noise.map((name) => [name, { fill: "var(--noise)", isHatched: true }]),
  ]);
}
const painted = (name, attributes) => h("span", { ...attributes, class: classes(attributes.class, colours[name].isHatched && "hatched"),
  vars: { "--own": colours[name].fill, ...attributes.vars } });
// Without a name, an empty one: what is split elsewhere.
export const swatch = (name) => (name === null ? h("span", { class: "swatch none", "aria-hidden": "true" }) : painted(name, { class: "swatch", "aria-hidden": "true" }));

const partOf = (name) => [...page.view.sources.overall, ...report.trained.variables].find((part) => part.name === name);
export const sourceNames = () => Object.keys(page.view.sources.shares);
export const meaningOf = (name) => partOf(name)?.meaning ?? (name === "others" ? "all smaller sources together" : name);
// The library's name of a choice, small beside its meaning.
const hasSymbol = (name) => partOf(name) !== undefined && !partOf(name).is_noise && meaningOf(name) !== name;
export const symbol = (name) => (hasSymbol(name) ? h("span", { class: "symbol" }, name) : null);
export const full = (name) => (hasSymbol(name) ? `${meaningOf(name)} (${name})` : meaningOf(name));

// A stacked bar; its parts can be focused only where it stands alone.
export function bar(shares, isThin = false) {
  const parts = Object.entries(shares).filter(([, share]) => share > 0);
  const label = parts.map(([name, share]) => `${meaningOf(name)} ${percent(share)}`).join(", ");
  return h("div", { class: isThin ? "bar thin" : "bar", role: isThin ? "img" : "group", "aria-label": label }, parts.map(([name, share]) => {
    const alone = isThin ? {} : { tabindex: 0, role: "img", "aria-label": `${meaningOf(name)} ${percent(share, 1)}` };
    const part = painted(name, { ...alone, vars: { flex: `${share} 0 ${share < 0.004 ? 0 : 2}px` } });
    return tipped(part, full(name), [["share", percent(share, 1)]]);
  }));
}
export const overallBar = () => bar(Object.fromEntries(page.view.sources.overall.map((part) => [part.name, part.share])));
export const modelBar = () => bar(Object.fromEntries(page.view.sources.overall.filter((part) => !part.is_noise).map((part) => [part.name, part.model_share])));
export const legend = () => h("ul", { class: "legend" }, sourceNames().map((name) => h("li", null, swatch(name), meaningOf(name))));

// The pattern of hatched parts, once for the page.
export const hatch = () => {
  const stripe = svg("rect", { width: 1.6, height: 6 });
  stripe.style.fill = "var(--stripe)";
  return svg("svg", { width: 0, height: 0, "aria-hidden": "true", class: "unseen" },
    svg("defs", null, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, stripe)));
};

// Each row's doubt by source, rows in order of their doubt.
export function stacked() {
  const { axis } = page.view.doubt, whole = column(axis.key), { shares } = page.view.sources;
  const order = whole.map((_, row) => row).sort((a, b) => whole[b] - whole[a]);
  const tip = (row) => {
    const { title, lines } = rowTip(page.view.rows.tip, row);
    return { title, lines: [...lines, ...sourceNames().map((name) => [meaningOf(name), percent(shares[name][row])])] };
  };
  const y = spanning({ ...axis, least: 0 }, whole);
  return plot({
    label: "Doubt of each row by source, in order of doubt", height: 260, by: "x",
    x: { domain: [0, order.length], label: "rows, largest doubt first", ticks: [] }, y,
    marks: () => {
      const base = order.map(() => 0);
      return [...sourceNames()].reverse().map((name) => {
        const lower = [...base];
        order.forEach((row, i) => { base[i] += Math.max(0, shares[name][row] || 0) * whole[row]; });
        const upper = [...base], last = order.length - 1;
        const area = (fill) => Plot.areaY(range(order.length + 1), { x: (i) => i, y1: (i) => lower[Math.min(i, last)], y2: (i) => upper[Math.min(i, last)], curve: "step-after", fill });
        return [area(colours[name].fill), colours[name].isHatched && area("url(#hatch)")];
      });
    },
    points: () => order.map((row, i) => ({ x: i + 0.5, y: placed(y)(whole[row]), ...tip(row) })),
  });
}
