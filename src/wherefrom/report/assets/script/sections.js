// The parts of the page, in the order of `parts` at the end: what holds for every output, whatever it predicts.
import { classes, h, page, range, report, sum, term, tipped } from "./dom.js";
import { aligned, column, count, fieldOf, fixed, number, percent, percents, scoreTexts, textOf, whole } from "./format.js";
import { arranged, card, panel } from "./panels.js";
import { extent, padded, plot, plots } from "./plot.js";
import { bar, full, legend, meaningOf, modelBar, overallBar, sourceNames, stacked, swatch, symbol } from "./sources.js";
import { plainTable, sortable, typed } from "./table.js";

const part = (id, title, lead, ...children) => h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), lead && h("p", null, lead), children);
const soft = (words) => h("p", { class: "soft small" }, words);
const facts = (pairs, kind) => h("dl", { class: classes("facts", kind) }, pairs.map(([name, value, far, title]) => h("div", null, h("dt", null, name), h("dd", { class: far ? "far" : null, title }, value))));
// Sections that were given; one whose title is that of its panel has no other heading.
const given = (name) => report.sections.filter((one) => one.part === name).map(({ id, title, lead, panels }) => h("div", { id, class: "given" },
  !panels.some((data) => data.title === title) && h("h3", null, title), lead && h("p", null, lead), name === "summary" ? panels.map(panel) : arranged(panels)));
const isTechnical = (data) => data.part === "technical";

// ------------------------------------------------------------------ summary

// A text of the document: strings, terms of the glossary, scores and verdicts.
const rich = (parts) => parts.map((one) => {
  if (one.term) return term(one.term, one.text);
  if (one.word) return h("strong", { class: one.tone }, one.word);
  if (!one.score) return one;
  const { texts, sure } = headlineScore(one.score);
  return one.of ? texts[1] : texts[0] + sure;
});
function headlineScore(name) {
  const { scores, baseline, errors } = page.view;
  return scoreTexts(name, [scores[name], baseline.scores[name]], errors[name]);
}
// columns: [heading, scores, errors or null]; a line for each name.
function scoreTable(names, columns) {
  const lines = names.filter((name) => columns.some(([, scores]) => Number.isFinite(scores[name])));
  const cells = (name) => {
    const values = columns.map(([, scores]) => scores[name]);
    const { texts } = scoreTexts(name, values, columns[0][2][name]);
    return columns.map(([, , errors], i) => h("td", { class: "number" }, h(i ? "span" : "b", null, texts[i]),
      errors && [" ", h("span", { class: "more" }, scoreTexts(name, values, errors[name]).sure.trim())]));
  };
  return h("table", { class: "scores" }, h("caption", { class: "unseen" }, "Scores"),
    h("thead", null, h("tr", null, h("td", null), columns.map(([heading]) => h("th", { scope: "col", class: "number" }, h("span", null, heading))))),
    h("tbody", null, lines.map((name) => h("tr", null, h("th", { scope: "row" }, term(name)), cells(name)))));
}

// First what no source of the model explains, beside the model's own doubt; then that on a scale of its own.
function whenceParts({ overall, problem }) {
  if (!overall.length) return h("p", null, problem || "Nothing was random in training, and the likelihood has no noise: there is no doubt to trace.");
  const [noise, own] = [overall.filter((one) => one.is_noise), overall.filter((one) => !one.is_noise)];
  const all = percents([...noise, ...own].map((one) => one.share));
  const line = (mark, words, share) => h("li", null, mark, h("span", null, words), h("b", null, share));
  const named = (one, share) => line(swatch(one.name), one.meaning, share);
  if (!noise.length || !own.length) return [overallBar(), breakdown(overall, (one) => one.share, named)];
  return [overallBar(), h("ul", { class: "breakdown" }, noise.map((one) => named(one, all(one.share))),
    line(swatch(null), "the model’s own doubt", all(sum(own.map((one) => one.share))))),
  h("p", { class: "soft small spaced" }, "Causes of the model’s own doubt:"), modelBar(), breakdown(own, (one) => one.model_share, named)];
}
function breakdown(list, shareOf, named) {
  const sorted = [...list].sort((a, b) => shareOf(b) - shareOf(a)), [first, rest] = [sorted.slice(0, 3), sorted.slice(3)];
  const share = percents(first.map(shareOf));
  return [h("ul", { class: "breakdown" }, first.map((one) => named(one, share(shareOf(one))))),
    rest.length > 0 && soft(`and ${count(rest.length, "smaller one")}, ${share(sum(rest.map(shareOf)))} together`)];
}

function summary() {
  const { view } = page, { headline } = view;
  const eyebrow = (words) => h("h3", { class: "eyebrow" }, words);
  const figure = headline.score ? headlineScore(headline.score) : { texts: [headline.big], sure: headline.small };
  const sure = h("div", { class: "card" }, eyebrow("How sure"),
    h("div", { class: "big" }, figure.texts[0], h("small", null, figure.sure)),
    h("p", { class: "verdict" }, rich(headline.say)), h("p", { class: "verdict" }, rich(headline.beats)),
    scoreTable(view.table, [["model", view.scores, view.errors], [term("without", "no model"), view.baseline.scores, null]]));
  const whence = h("div", { class: "card" }, eyebrow("Where the doubt comes from"), whenceParts(view.sources));
  const next = h("div", { class: "card next" }, eyebrow("What to do next"), h("p", { class: "lead" }, view.advice.lead), view.advice.say.map((words) => h("p", null, words)));
  return part("summary", "Summary", null, report.cautions.map((words) => h("p", { class: "note caution" }, words)),
    h("div", { class: "hero" }, sure, whence, next), h("div", { class: "pair" }, given("summary")),
    report.notes.map((words) => h("p", { class: "note" }, words)));
}

// ------------------------------------------------------------------ rows

function thinning() {
  const [all, listed] = [report.rows.count, report.rows.names.length];
  return all <= listed ? "" : ` Of ${whole(all)} rows, ${whole(listed)} are listed: those with the largest doubt, and others evenly spaced.`;
}
function rows() {
  const { view } = page, { names } = report.rows, about = view.rows, aside = report.outside;
  const share = (name) => (row) => view.sources.shares[name][row];
  const sources = sourceNames();
  const isBeyond = (row) => !!aside && !!aside.points.is_beyond[row];
  const name = { name: "Row", value: (row) => names[row],
    cell: (row, toggle) => [h("button", { type: "button", class: classes("open", names[row].length < 30 && "short"), "aria-expanded": "false", onclick: toggle }, names[row]),
      isBeyond(row) && h("span", { class: "mark", title: aside.title }, aside.word)] };
  const likeOf = (key) => fieldOf(key).like || key;
  const fieldColumn = (key) => {
    const field = fieldOf(key);
    if (field.as === "range") {
      const [low, high] = field.of.map(column);
      return { name: field.head || field.name, number: true, value: (row) => high[row] - low[row], cell: (row) => textOf(key, row) };
    }
    const like = Object.keys(view.fields).filter((other) => likeOf(other) === likeOf(key)).flatMap((other) => column(other) || []);
    return typed(field, (row) => column(key)[row], like, (row) => !!field.far && !!column(field.far)[row]);
  };
  const whose = { name: "Cause of doubt", wide: true, cell: (row) => bar(Object.fromEntries(sources.map((one) => [one, share(one)(row)])), true) };
  const { measure } = report.rows, hasMeasure = !!measure && measure.some(Boolean);
  const next = { name: "Measure next", value: (row) => (measure[row] ? measure[row][1] : null), cell: (row) => (measure[row] ? `${measure[row][0]} (−${percent(measure[row][1])})` : ""), number: true,
    title: "The missing value that would lower the doubt about this row most, and by how much" };
  const shared = aside ? Object.keys(aside.fields) : [];
  const columns = [
    name, ...about.columns.map(fieldColumn), ...(sources.length ? [whose] : []), ...(hasMeasure ? [next] : []),
    ...shared.map((key) => ({ name: fieldOf(key).name, value: (row) => column(key)[row], number: true, hidden: true })),
    ...sources.map((one) => ({ name: `share of ${meaningOf(one)}`, value: share(one), number: true, hidden: true })),
  ];
  const first = 1 + about.columns.indexOf(about.sort);
  const select = h("select", { "aria-label": "Sort rows by", onchange: ({ target }) => made.sort(Number(target.value), !!columns[target.value].number) },
    columns.map((one, i) => one.value && h("option", { value: i, selected: i === first }, one.name)));
  const made = sortable(columns, range(names.length), { label: "Rows, sortable", class: "rows", first: 10, sort: [first, true],
    detail: (row) => detail(row, [...about.detail, ...shared], sources), sorted: (i) => { select.value = i; } });
  const searched = (row) => [names[row], ...about.search.map((key) => textOf(key, row))].join("\n").toLowerCase();
  const find = h("input", { type: "search", placeholder: ["name", ...about.search.map((key) => fieldOf(key).name)].join(", "), "aria-label": "Find rows", oninput: ({ target }) => {
    const wanted = target.value.trim().toLowerCase();
    made.only((row) => searched(row).includes(wanted));
  } });
  return part("rows", "Rows", `${about.title || "Rows with the largest doubt first"}. Open one for its values.${thinning()}`,
    h("div", { class: "card" }, h("div", { class: "tools" }, h("label", null, "Sort by", select), h("label", null, "Find", find)), sources.length > 0 && legend(), made.table, made.more));
}
function detail(row, keys, sources) {
  const { outside: aside, data } = report, measure = report.rows.measure && report.rows.measure[row];
  const mark = (key) => (key === "outside" && aside.points.is_beyond[row] ? `: ${aside.word}` : "");
  const values = data.values.map(({ cells, far }, j) => ({ name: data.columns[j].name, value: cells[row], usual: data.columns[j].usual, far: (far.find(([k]) => k === row) || [0, 0])[1] }));
  const inOrder = [...values.filter((one) => one.far).sort((a, b) => b.far - a.far), ...values.filter((one) => !one.far)];
  const nameOf = (field) => (field.term ? term(field.term) : field.name);
  const causes = sources.map((one) => [one, page.view.sources.shares[one][row]]).filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]);
  return [
    measure && h("p", { class: "measure" }, `Measure ${measure[0]} next: the doubt about this row would fall by about ${percent(measure[1])}.`),
    facts([...keys.map((key) => [nameOf(fieldOf(key)), textOf(key, row) + mark(key)]), ...causes.map(([one, share]) => [meaningOf(one), percent(share, 1)])]),
    inOrder.length > 0 && [h("h3", { class: "minor" }, "Values", values.some((one) => one.far) && h("span", { class: "soft" }, " (", term("unusual", "unusual ones"), " first, marked)")),
      facts(inOrder.map(({ name, value, usual, far }) => [name, value || "missing", far, `usual: ${usual}`]), "values")]];
}

// ------------------------------------------------------------------ how far to trust it

function trust() {
  const { truth, calibration, outside } = page.view;
  const panels = [...truth.panels, ...calibration.panels].filter((data) => !isTechnical(data));
  return part("trust", "How far to trust it", null, [truth.lead, calibration.lead].map((lead) => lead && h("p", null, lead)),
    arranged(panels), given("trust"), outside && card(outside.title, outside.lead));
}

// ------------------------------------------------------------------ technical

const chapter = (id, title, lead, ...children) => h("section", { id, "aria-labelledby": `${id}-title` }, h("h3", { id: `${id}-title` }, title), lead && h("p", null, lead), children);

function doubt() {
  const { overall: list } = page.view.sources, about = page.view.doubt;
  if (!list.length) return null;
  const columns = [
    { name: "Source", value: (one) => one.meaning, cell: (one) => [swatch(one.name), one.meaning, symbol(one.name)] },
    { name: "Share", number: true, value: (one) => one.share, cell: (one) => percent(one.share, 1) + (one.share_error === null ? "" : ` ± ${percent(one.share_error, 1)}`), title: report.glossary.share[1] },
    list.some((one) => one.is_noise && list.length > 2) && { name: "Of the model’s own", number: true, value: (one) => one.model_share,
      cell: (one) => (one.model_share === null ? "–" : percent(one.model_share, 1) + (one.model_share_error === null ? "" : ` ± ${percent(one.model_share_error, 1)}`)) },
    ...about.columns.map((field) => typed(field, (one) => one[field.key], list.map((one) => one[field.key]))),
  ].filter(Boolean);
  const made = sortable(columns, list, { label: "Sources of doubt, over all rows", sort: [1, true], first: 8 });
  return chapter("doubt", "Where the doubt comes from", about.lead, card("Over all rows", null, made.table, made.more), card("Row by row", about.caption, stacked(), legend()), further());
}
function further() {
  const about = report.further;
  if (!about) return null;
  const { table, more } = plainTable(about.columns, about.rows, 3, { label: "What further trainings would buy", first: 12 });
  return card("What further training would buy", null, about.say.map((words) => h("p", null, words)),
    h("details", null, h("summary", null, "Errors that each budget leaves"), table, more,
      soft("These errors exist because networks and samples are few. Errors of the mean are in standard deviations of a prediction, errors of a variance in parts of that variance.")));
}

function calibrationInFull() {
  const { scores, errors, before, truth, calibration: about, outside } = page.view;
  const panels = [...truth.panels, ...about.panels].filter(isTechnical);
  const comparison = before && card("Before and after calibration", null, scoreTable(Object.keys(scores), [["now", scores, errors], ["before", before.scores, before.errors]]));
  if (!panels.length && !comparison && !outside) return null;
  return chapter("calibration", "Calibration and rows outside", null, arranged(panels), comparison, outside && panel(outside.panel));
}

function combinations() {
  const { rows: items, left_out: missing, why } = page.view.combinations;
  if (items.length + missing < 2) return null;
  const names = Object.keys(page.view.scores), all = items.find((item) => item.is_all) || items[0];
  const distance = (name, value) => ({ low: value, high: -value })[report.scores[name].best] ?? Math.abs(value - report.scores[name].best);
  const scoreColumn = (name) => {
    const about = report.scores[name], values = items.map((item) => item.scores[name]).filter((value) => value !== null);
    const best = values.length ? values.reduce((a, b) => (distance(name, b) < distance(name, a) ? b : a)) : undefined;
    const [, ...texts] = scoreTexts(name, [all.scores[name], ...items.map((item) => item.scores[name])], all.errors[name]).texts;
    const cell = (item) => {
      const value = item.scores[name], opened = full(item.on.join(", ") || "one network");
      const sure = scoreTexts(name, [value], item.errors[name]).sure.trim();
      return tipped(h("span", { class: value === best ? "best" : null }, texts[items.indexOf(item)]), opened, [[about.short, value === null ? about.absent : `${number(value, 6)} ${sure}`]]);
    };
    return { name: about.short, number: true, value: (item) => item.scores[name], title: report.glossary[name].join(": "), cell };
  };
  const least = Math.min(...items.map((item) => item.nll_gap_error).filter((error) => error > 0));
  const places = Number.isFinite(least) ? Math.max(2, Math.min(6, 1 - Math.floor(Math.log10(least)))) : 3;
  const gap = ({ is_all: isAll, nll_gap: value, nll_gap_error: error }) => (isAll || value === null ? "–"
    : h("span", { class: Math.abs(value) > 1.96 * error ? null : "soft" }, `${value > 0 ? "+" : ""}${fixed(value, places)} ± ${fixed(error, places)}`));
  const seconds = aligned(items.map((item) => item.seconds));
  const more = (words) => h("span", { class: "more" }, `  ${words}`);
  const opened = (item) => (item.on.length ? [item.on.map(meaningOf).join("; "), item.is_all && more("this run"), !item.is_calibrated && more("not calibrated")] : h("span", { class: "soft" }, "nothing: one network"));
  const columns = [
    { name: "Random", value: (item) => item.on.length + item.on.join(), cell: opened },
    ...names.map(scoreColumn),
    items.some((item) => !item.is_all && item.nll_gap !== null) && { name: "NLL less this run's", number: true, value: (item) => item.nll_gap, cell: gap },
    { name: "Networks", number: true, value: (item) => item.members },
    items.some((item) => item.seconds !== null) && { name: "CPU s", number: true, value: (item) => item.seconds, cell: (item) => seconds(item.seconds), title: "Processor seconds of training" },
    { name: "Passes", number: true, value: (item) => item.passes, title: "Forward passes for each row that is predicted" },
  ].filter(Boolean);
  const made = sortable(columns, items, { label: "Scores and cost of every combination", class: "combinations", mark: (item) => item.is_all, first: 8 });
  return chapter("combinations", "Every combination of the random choices",
    "Bold: the best of each column. Grey: within two standard errors, which may be chance.",
    h("div", { class: "card" }, made.table, made.more, missing > 0 && h("p", { class: "note" }, `${count(missing, "combination")} could not be scored: ${why}.`)));
}

function learning() {
  const { curves, members, collected_from: from } = report.learning;
  const usable = curves.filter((curve) => curve.losses.filter((loss) => loss !== null).length > 1);
  const networks = membersTable();
  if (!usable.length) return networks && chapter("learning", "How training went", "The losses of these networks are not known.", networks);
  const [low, high] = extent(usable.flatMap((curve) => curve.losses));
  const isLog = low > 0 && high / low > 8, last = Math.max(...usable.map((curve) => curve.epochs.at(-1)));
  const which = members > usable.length ? `${usable.length} of ${members} networks` : members === 1 ? "the only network" : `all ${members} networks`;
  const steps = usable.flatMap(({ name, epochs, losses }, k) => epochs.map((epoch, i) => ({ k, name, epoch, loss: losses[i] }))).filter(({ loss }) => loss !== null);
  const domain = isLog ? [low / 1.1, high * 1.1] : padded([low, high]);
  return chapter("learning", "How training went",
    `The training loss of ${which}${isLog ? ", on a logarithmic scale" : ""}.${from ? " Shaded: epochs whose weights stand for the moment training stops." : ""}`,
    h("div", { class: "card" }, plot({
      label: "Training loss by epoch", height: 280,
      x: { domain: [1, Math.max(2, last)], label: "epoch" }, y: { domain, label: "training loss", log_from: isLog ? domain[0] : null },
      marks: () => [from && from <= last && Plot.rect([0], { x1: [from], x2: [last], y1: [domain[0]], y2: [domain[1]], fill: "var(--band)" }),
        Plot.line(steps, { x: "epoch", y: "loss", z: "k", stroke: "var(--accent)", strokeWidth: 1.2, strokeOpacity: 0.5, className: "curves" })],
      points: () => steps.map(({ k, name, epoch, loss }) => ({ x: epoch, y: loss, light: (picture) => picture.querySelectorAll(".curves path")[k], title: name, lines: [["epoch", number(epoch, 6)], ["loss", number(loss, 4)]] })),
    })), networks);
}
function membersTable() {
  const { columns, rows: lines } = report.members;
  if (lines.length < 2) return null;
  const { table, more } = plainTable(columns, lines, 4, { label: "Networks", first: 10 });
  return h("div", { class: "card" }, h("details", null, h("summary", null, `All ${lines.length} networks`), table, more));
}

function dataUsed() {
  const about = report.data;
  const moments = ({ mean, std, low, high }) => `${number(mean)} ± ${number(std)} (${number(low)} to ${number(high)})`;
  const items = [...about.targets.map((one) => ({ name: one.name, isTarget: true, usual: moments(one.here), trained: one.there && moments(one.there) })), ...about.columns];
  const has = (key) => items.some((one) => one[key] !== null && one[key] !== undefined);
  const columns = [
    { name: "Column", value: (one) => one.name, cell: (one) => [h("b", null, one.name), one.isTarget && h("span", { class: "more" }, "  to predict")] },
    { name: "Usual", value: (one) => one.usual, title: "The median, and the range of nine rows in ten; or the most frequent levels" },
    has("trained") && { name: "In training", value: (one) => one.trained },
    { name: "Missing", number: true, value: (one) => one.missing, cell: (one) => (one.missing ? percent(one.missing, 1) : "") },
    has("moved") && { name: "Moved", number: true, value: (one) => (one.moved ?? null) && Math.abs(one.moved), title: "How far the median moved since training, in spreads: the distance between the quartiles divided by 1.349", cell: (one) => h("span", { class: Math.abs(one.moved) > 0.5 ? "far" : null }, fixed(one.moved, 2)) },
    has("beyond") && { name: "Beyond", number: true, value: (one) => one.beyond, cell: (one) => percent(one.beyond, 1), title: "Rows beyond the range of training" },
  ].filter(Boolean);
  const made = items.length > 0 && sortable(columns, items, { label: "Columns", first: 12 });
  const shape = about.columns.length ? count(about.columns.length + about.left_out, "column") : `each of shape ${about.shape.join(" × ")}`;
  const trainedOn = about.trained_on === null ? "" : `; trained on ${whole(about.trained_on)}`;
  return chapter("data", "The data", `${count(report.rows.count, "row")}, ${shape}${trainedOn}.`, about.panels.map(panel),
    made && h("div", { class: "card" }, made.table, made.more, about.left_out > 0 && soft(`${about.left_out} further columns are not listed.`)));
}

function trained() {
  const { facts: pairs, variables, models } = report.trained;
  const code = (value) => (value.includes("(") ? h("code", null, value) : value);
  const choice = (one) => h("div", null, h("dt", null, one.meaning, " ", symbol(one.name)), h("dd", { class: "small" }, `${one.how}, by `, h("code", null, one.what)));
  return chapter("trained", "What was trained", null,
    h("div", { class: "card" }, facts(pairs.map(([name, value]) => [name, code(value)])),
      variables.length > 0 && [h("h4", null, "Random choices"), h("dl", { class: "facts wide" }, variables.map(choice))],
      h("details", null, h("summary", null, models.length > 1 ? "The models" : "The model"), models.map(([name, words]) => [name && h("h4", null, name), h("pre", { tabindex: 0 }, words)]))));
}

const glossary = () => chapter("words", "What the words mean", null, h("div", { class: "card" }, h("details", { id: "glossary" }, h("summary", null, "Scores and other words of this page"),
  h("dl", { class: "glossary" }, Object.values(report.glossary).map(([called, words]) => h("div", null, h("dt", null, called), h("dd", null, words)))))));

// Folded; plots are drawn when it is opened. On paper, it is there only if it was open.
function technical() {
  const chapters = [doubt, calibrationInFull, combinations, () => given("technical"), learning, dataUsed, trained, glossary].map((one) => one());
  const box = h("details", { id: "technical", class: "technical", ontoggle: () => { if (box.open) plots.forEach((draw) => draw()); } },
    h("summary", null, h("h2", null, "Technical"), h("span", { class: "soft" }, "sources in full, combinations, training, data, words")), chapters.flat(Infinity).filter(Boolean));
  return box;
}

export function foot() {
  const samples = report.trained.variables.length ? `, ${report.samples} samples a network` : "";
  return h("footer", null, h("p", null, [...report.footnotes, "± are standard errors. A choice that was not random in training has no share of the doubt; it may still matter."].join(" ")),
    h("p", null, `Wherefrom ${report.wherefrom}, ${report.made}${samples}. Plots by Observable Plot.`));
}

export const links = [["summary", "Summary"], ["rows", "Rows"], ["trust", "How far to trust it"], ["technical", "Technical"]];
export const parts = [summary, rows, trust, technical];
