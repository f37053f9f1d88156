// Sections of the page, in the order of `sections` at the end: what holds for every output, whatever it predicts.
import { classes, h, page, range, report, sum, svg, term, tipped } from "./dom.js";
import { aligned, column, count, fieldOf, fixed, number, percent, percents, scoreTexts, signed, textOf, whole } from "./format.js";
import { arranged, card, panel } from "./panels.js";
import { extent, padded, path, plot, rect } from "./plot.js";
import { bar, full, legend, meaningOf, modelBar, overallBar, sourceNames, stacked, swatch, symbol } from "./sources.js";
import { plainTable, sortable, typed } from "./table.js";

export const links = []; // [id, name] of the sections that are shown
function section(id, title, name, lead, ...children) {
  links.push([id, name]);
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), lead && h("p", null, lead), children);
}
const soft = (words) => h("p", { class: "soft small" }, words);
const facts = (pairs, kind) => h("dl", { class: classes("facts", kind) }, pairs.map(([name, value, far]) => h("div", null, h("dt", null, name), h("dd", { class: far ? "far" : null }, value))));
function thinning() {
  const [all, listed] = [report.rows.count, report.rows.names.length];
  if (all <= listed) return "";
  const far = report.outside && report.outside.edge !== null ? `those ${report.outside.word}, ` : "";
  return ` Of ${whole(all)} rows, ${whole(listed)} are shown: those most in doubt, ${far}and others evenly spaced. Scores speak of all.`;
}

// ------------------------------------------------------------------ the first screen

// A text of the document: strings, terms of the glossary, scores and verdicts.
const rich = (parts) => parts.map((part) => {
  if (part.term) return term(part.term, part.text);
  if (part.word) return h("strong", { class: part.tone }, part.word);
  if (!part.score) return part;
  const { texts, sure } = headlineScore(part.score);
  return part.of ? texts[1] : texts[0] + sure;
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
      errors && h("span", { class: "more" }, scoreTexts(name, values, errors[name]).sure)));
  };
  return h("table", { class: "scores" }, h("caption", { class: "unseen" }, "Scores"),
    h("thead", null, h("tr", null, h("td", null), columns.map(([heading]) => h("th", { scope: "col", class: "number" }, h("span", null, heading))))),
    h("tbody", null, lines.map((name) => h("tr", null, h("th", { scope: "row" }, term(name)), cells(name)))));
}

// First what no source of the model explains, beside the model's own doubt; then that on a scale of its own.
function whenceParts({ overall, problem }) {
  if (!overall.length) return h("p", null, problem || "Nothing was left open in training, and the likelihood has no noise: there is no doubt to trace.");
  const [noise, own] = [overall.filter((part) => part.is_noise), overall.filter((part) => !part.is_noise)];
  const all = percents([...noise, ...own].map((part) => part.share));
  const line = (mark, words, share) => h("li", null, mark, words, h("b", null, share));
  const named = (part, share) => line(swatch(part.name), h("span", null, h("b", null, part.meaning), symbol(part.name)), share);
  if (!noise.length || !own.length) return [overallBar(), breakdown(overall, (part) => part.share, named)];
  return [overallBar(), h("ul", { class: "breakdown" }, noise.map((part) => named(part, all(part.share))),
    line(swatch(null), h("span", null, h("b", null, "the model’s own doubt")), all(sum(own.map((part) => part.share))))),
  h("p", { class: "soft small spaced" }, "The model’s own doubt, on a scale of its own:"), modelBar(), breakdown(own, (part) => part.model_share, named)];
}
function breakdown(parts, shareOf, named) {
  const sorted = [...parts].sort((a, b) => shareOf(b) - shareOf(a)), [first, rest] = [sorted.slice(0, 4), sorted.slice(4)];
  const share = percents(first.map(shareOf));
  return [h("ul", { class: "breakdown" }, first.map((part) => named(part, share(shareOf(part))))),
    rest.length > 0 && soft(`and ${count(rest.length, "smaller source")}, ${share(sum(rest.map(shareOf)))} together`)];
}

export function hero() {
  const { view } = page, { headline } = view;
  const eyebrow = (words) => h("p", { class: "eyebrow" }, words);
  const figure = headline.score ? headlineScore(headline.score) : { texts: [headline.big], sure: headline.small };
  const sure = h("div", { class: "card" }, eyebrow("How sure"),
    h("div", { class: "big" }, figure.texts[0], h("small", null, figure.sure)),
    h("p", { class: "verdict" }, rich(headline.say)), h("p", { class: "verdict" }, rich(headline.beats)),
    scoreTable(view.table, [["this run", view.scores, view.errors], [term("without", "no model"), view.baseline.scores, null]]));
  const whence = h("div", { class: "card" }, eyebrow("Where the doubt comes from"), whenceParts(view.sources));
  const next = h("div", { class: "card next" }, eyebrow("What to do next"), h("h2", null, view.advice.lead),
    h("div", { class: "advice" }, view.advice.say.map((words) => h("p", null, words))));
  return [report.cautions.map((words) => h("p", { class: "note caution" }, words)), h("div", { class: "hero" }, sure, whence, next),
    report.notes.map((words) => h("p", { class: "note" }, words))];
}

// ------------------------------------------------------------------ doubt

function doubt() {
  const { overall: parts } = page.view.sources, about = page.view.doubt;
  if (!parts.length) return null;
  const columns = [
    { name: "Source", value: (part) => part.meaning, cell: (part) => [swatch(part.name), h("b", null, part.meaning), symbol(part.name)] },
    { name: "Share", number: true, value: (part) => part.share, cell: (part) => percent(part.share, 1), title: report.glossary.share[1] },
    parts.some((part) => part.share_error !== null) && { name: "± error", number: true, value: (part) => part.share_error, cell: (part) => percent(part.share_error, 1), title: "Standard error of the share" },
    parts.some((part) => part.is_noise && parts.length > 2) && { name: "Of the model’s own", number: true, value: (part) => part.model_share, title: "Share among all sources but the unexplained, with its standard error",
      cell: (part) => (part.model_share === null ? "–" : percent(part.model_share, 1) + (part.model_share_error === null ? "" : ` ± ${percent(part.model_share_error, 1)}`)) },
    ...about.columns.map((field) => typed(field, (part) => part[field.key], parts.map((part) => part[field.key]))),
  ].filter(Boolean);
  const { table } = sortable(columns, parts, { label: "Sources of doubt, over all rows", class: "folding sources", sort: [1, true] });
  return section("doubt", "Where the doubt comes from", "Doubt", about.lead, card("Over all rows", null, overallBar(), table),
    card("Row by row", `${about.caption}${thinning()}`, stacked(), legend()), further());
}
function further() {
  const about = report.further;
  if (!about) return null;
  const { table, more } = plainTable(about.columns, about.rows, 3, { label: "What further trainings would buy", first: 12 });
  return h("div", { class: "card further" }, h("h3", null, "What further training would buy"), about.say.map((words) => h("p", null, words)),
    h("details", null, h("summary", null, "The errors that each budget would leave"), table, more,
      soft("Each is what chance leaves for want of networks and samples: of the mean, in standard deviations of a prediction; the others relative to what they are errors of.")));
}

// ------------------------------------------------------------------ rows

function rows() {
  const { view } = page, { names } = report.rows, about = view.rows, aside = report.outside;
  const share = (name) => (row) => view.sources.shares[name][row];
  const sources = sourceNames();
  const isBeyond = (row) => !!aside && !!aside.points.is_beyond[row];
  const name = { name: "Row", value: (row) => names[row],
    cell: (row, toggle) => [h("button", { type: "button", class: "open", "aria-expanded": "false", onclick: toggle }, names[row]),
      isBeyond(row) && h("span", { class: "mark", title: aside.title }, aside.word)] };
  const likeOf = (key) => fieldOf(key).like || key;
  const fieldColumn = (key) => {
    const field = fieldOf(key), like = Object.keys(view.fields).filter((other) => likeOf(other) === likeOf(key)).flatMap((other) => column(other) || []);
    return typed(field, (row) => column(key)[row], like, (row) => !!field.far && !!column(field.far)[row]);
  };
  const whose = { name: "Whose doubt", wide: true, cell: (row) => bar(Object.fromEntries(sources.map((one) => [one, share(one)(row)])), true) };
  const shared = aside ? Object.keys(aside.fields) : [];
  const columns = [
    name, ...about.columns.map(fieldColumn), ...(sources.length ? [whose] : []),
    ...shared.map((key) => ({ name: fieldOf(key).name, value: (row) => column(key)[row], number: true, hidden: true })),
    ...sources.map((one) => ({ name: `share of ${meaningOf(one)}`, value: share(one), number: true, hidden: true })),
  ];
  const first = 1 + about.columns.indexOf(about.sort);
  const select = h("select", { "aria-label": "Sort rows by", onchange: ({ target }) => made.sort(Number(target.value), !!columns[target.value].number) },
    columns.map((one, i) => one.value && h("option", { value: i, selected: i === first }, one.name)));
  const isTall = names.some((one) => one.length > 8) || about.columns.some((key) => fieldOf(key).as === "label");
  const made = sortable(columns, range(names.length), { label: "Rows, sortable", class: classes("folding rows", isTall && "tall"), first: 12, sort: [first, true],
    detail: (row) => detail(row, [...about.detail, ...shared], sources), sorted: (i) => { select.value = i; } });
  const searched = (row) => [names[row], ...about.search.map((key) => textOf(key, row))].join("\n").toLowerCase();
  const find = h("input", { type: "search", placeholder: ["name", ...about.search.map((key) => fieldOf(key).name)].join(", "), "aria-label": "Find rows", oninput: ({ target }) => {
    const wanted = target.value.trim().toLowerCase();
    made.only((row) => searched(row).includes(wanted));
  } });
  return section("rows", about.title || "The rows most in doubt", "Rows", `Sort by any column; open a row for all of its shares and values.${thinning()}`,
    h("div", { class: "card" }, h("div", { class: "tools" }, h("label", null, "Sort by", select), h("label", null, "Find", find), sources.length > 0 && legend({ margin: "0" })), made.table, made.more));
}
function detail(row, keys, sources) {
  const { outside: aside, data: given } = report;
  const mark = (key) => (key === "outside" && aside.points.is_beyond[row] ? `: ${aside.word}` : "");
  const values = given.values.map((one, j) => {
    const { name, there, here } = given.columns[j], { mean, std } = there || here;
    return { name, value: one[row], away: std ? (one[row] - mean) / std : 0 };
  }).sort((a, b) => Math.abs(b.away) - Math.abs(a.away));
  const nameOf = (field) => (field.term ? term(field.term) : field.name);
  return [
    facts([...keys.map((key) => [nameOf(fieldOf(key)), textOf(key, row) + mark(key)]), ...sources.map((one) => [`share of ${full(one)}`, percent(page.view.sources.shares[one][row], 1)])], "wide"),
    values.length > 0 && [h("p", { class: "soft small spaced" }, "Its values, those farthest from the usual first; in brackets, how many standard deviations above or below the mean."),
      facts(values.map(({ name, value, away }) => [name, `${number(value, 4)} (${signed(Number(away.toFixed(1)))})`, Math.abs(away) > 2]))]];
}

// ------------------------------------------------------------------ panels of the output

const truth = () => section("truth", "Predictions against the truth", "Truth", page.view.truth.lead, arranged(page.view.truth.panels));
function calibration() {
  const { scores, errors, before, calibration: about } = page.view;
  const comparison = before && card("Before and after", "The same rows, scored by the run before calibration and by this one.", h("div", { class: "scroll" },
    scoreTable(Object.keys(scores), [["now", scores, errors], ["before", before.scores, before.errors]])));
  return section("calibration", "Is it as sure as it should be?", "Calibration", about.lead, arranged(about.panels), comparison);
}
function outside() {
  const about = page.view.outside;
  return about && section("outside", about.title, "Outside", about.lead, panel(about.panel));
}

// ------------------------------------------------------------------ combinations

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
      const value = item.scores[name], opened = full(item.on.join(", ") || "nothing left open");
      const written = h("span", { class: value === best ? "best" : null }, texts[items.indexOf(item)]);
      return tipped(h("span", null, written, h("span", { class: "more below" }, scoreTexts(name, [value], item.errors[name]).sure)), opened, [[about.short, value === null ? about.absent : number(value, 6)]]);
    };
    return { name: about.short, number: true, value: (item) => item.scores[name], title: report.glossary[name].join(": "), cell };
  };
  const least = Math.min(...items.map((item) => item.nll_gap_error).filter((error) => error > 0));
  const places = Number.isFinite(least) ? Math.max(2, Math.min(6, 1 - Math.floor(Math.log10(least)))) : 3;
  const gap = ({ is_all: isAll, nll_gap: value, nll_gap_error: error }) => (isAll || value === null ? "–"
    : h("span", { class: Math.abs(value) > 1.96 * error ? null : "soft" }, `${value > 0 ? "+" : ""}${fixed(value, places)} ± ${fixed(error, places)}`));
  const seconds = aligned(items.map((item) => item.seconds));
  const more = (words) => h("span", { class: "more" }, `  ${words}`);
  const opened = (item) => (item.on.length ? [h(item.is_all ? "b" : "span", null, item.on.map(meaningOf).join("; ")), item.is_all && more("this run"), !item.is_calibrated && more("not calibrated")] : h("span", { class: "soft" }, "nothing: one network"));
  const columns = [
    { name: "Left open", value: (item) => item.on.length + item.on.join(), cell: opened },
    ...names.map(scoreColumn),
    items.some((item) => !item.is_all && item.nll_gap !== null) && { name: "NLL less this run's", number: true, value: (item) => item.nll_gap, title: "With its standard error, row by row: within two of them it may be chance", cell: gap },
    { name: "Networks", number: true, value: (item) => item.members },
    items.some((item) => item.seconds !== null) && { name: "CPU s", number: true, value: (item) => item.seconds, cell: (item) => seconds(item.seconds), title: "Processor seconds of training" },
    { name: "Passes a row", number: true, value: (item) => item.passes, title: "Forward passes for each row that is predicted" },
  ].filter(Boolean);
  const made = sortable(columns, items, { label: "Scores and cost of every combination", class: "combinations", mark: (item) => item.is_all, first: 20 });
  return section("combinations", "Every combination of the open choices", "Combinations",
    "One run answers for every part of its open choices; what is not left open stands at one value. The best of each column is bold, ± is one standard error. A difference within two of its standard errors may be chance, and is grey.",
    h("div", { class: "card" }, made.table, made.more, missing > 0 && h("p", { class: "note" }, `${count(missing, "combination")} could not be scored: ${why}.`)));
}

// ------------------------------------------------------------------ learning, data, training, words

function learning() {
  const { curves, members, collected_from: from } = report.learning;
  const usable = curves.filter((curve) => curve.losses.filter((loss) => loss !== null).length > 1);
  const networks = membersTable();
  if (!usable.length) return networks && section("learning", "How training went", "Learning", "The losses of these networks are not known.", networks);
  const [low, high] = extent(usable.flatMap((curve) => curve.losses));
  const log = low > 0 && high / low > 8;
  const last = Math.max(...usable.map((curve) => curve.epochs.at(-1)));
  const which = members > usable.length ? `${usable.length} of ${members} networks` : members === 1 ? "the only network" : `all ${members} networks`;
  return section("learning", "How training went", "Learning",
    `The training loss of ${which}, epoch by epoch${log ? ", on a logarithmic scale" : ""}.${from ? " Shaded: the epochs whose weights stand for the moment training stops." : ""}`,
    h("div", { class: "card" }, plot({
      label: "Training loss by epoch", height: 340,
      x: { domain: [1, Math.max(2, last)], label: "epoch" }, y: { domain: log ? [low / 1.1, high * 1.1] : padded([low, high]), label: "training loss", log },
      draw: (x, y, area) => [from && from <= last && rect("band", x(from), area.top, x(last) - x(from), area.bottom - area.top),
        usable.map(({ epochs, losses }, k) => svg("path", { class: `curve k${k}`, d: path(epochs.map((epoch, i) => [x(epoch), losses[i] === null ? NaN : y(losses[i])]).filter(([, at]) => Number.isFinite(at))) }))],
      points: () => usable.flatMap(({ name, epochs, losses }, k) => epochs.map((epoch, i) => ({ x: epoch, y: losses[i], light: `.k${k}`, title: name, lines: [["epoch", number(epoch, 6)], ["loss", number(losses[i], 4)]] }))).filter((point) => point.y !== null),
    })), networks);
}
function membersTable() {
  const { columns, rows: lines } = report.members;
  if (lines.length < 2) return null;
  const { table, more } = plainTable(columns, lines, 4, { label: "Networks", first: 10 });
  return h("div", { class: "card" }, h("details", null, h("summary", null, `All ${lines.length} networks: draws, settings, losses and time`), table, more));
}

function spark({ here, there }) {
  const [wide, tall] = [120, 26], step = wide / here.bins.length;
  const top = Math.max(...here.bins, ...(there ? there.bins : [0])) || 1;
  const height = (value) => (value / top) * (tall - 2);
  return svg("svg", { class: "spark", viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": "distribution: filled where trained, line here" },
    there && there.bins.map((value, i) => rect("there", i * step, tall - height(value), step, height(value))),
    svg("path", { class: "here", d: path(here.bins.flatMap((value, i) => [i, i + 1].map((at) => [at * step, tall - height(value)]))) }));
}
function data() {
  const about = report.data, isKnown = about.trained_on !== null;
  const items = [...about.targets.map((one) => ({ ...one, isTarget: true })), ...about.columns];
  const moments = (one, side) => {
    const write = aligned([(one.there || one.here).std], 3);
    return `${write(one[side].mean)} ± ${write(one[side].std)}`;
  };
  const shift = (one) => (one.there && one.there.std ? (one.here.mean - one.there.mean) / one.there.std : null);
  const size = (one) => (shift(one) === null ? null : Math.abs(shift(one)));
  const columns = [
    { name: "Column", value: (one) => one.name, cell: (one) => [h("b", null, one.name), one.isTarget && h("span", { class: "more" }, "  to predict")] },
    { name: "Distribution", cell: spark },
    isKnown && { name: "Trained on: mean ± std", number: true, value: (one) => one.there.mean, cell: (one) => moments(one, "there") },
    { name: isKnown ? "Here: mean ± std" : "Mean ± std", number: true, value: (one) => one.here.mean, cell: (one) => moments(one, "here") },
    { name: "Here: least to most", number: true, value: (one) => one.here.low, cell: (one) => `${number(one.here.low, 4)} to ${number(one.here.high, 4)}` },
    isKnown && { name: "Shift", number: true, value: size, title: "How far the mean moved, in standard deviations of the training rows", cell: (one) => h("span", { class: size(one) > 0.5 ? "far" : null }, fixed(shift(one), 2)) },
    isKnown && { name: "Beyond", number: true, value: (one) => one.beyond, cell: (one) => percent(one.beyond, 1), title: "Rows beyond the range that was trained on" },
  ].filter(Boolean);
  const made = items.length > 0 && sortable(columns, items, { label: "Columns", first: 14 });
  const shape = about.columns.length ? count(about.shape[0], "column") : `each of shape ${about.shape.join(" × ")}`;
  const trainedOn = isKnown ? `; trained on ${whole(about.trained_on)}` : "";
  return section("data", "The data", "Data", `${count(report.rows.count, "row")} here, ${shape}${trainedOn}.${items.length && isKnown ? " Filled: where it was trained; line: here." : ""}`,
    about.panels.map(panel),
    made && card(about.panels.length ? "Columns" : null, null, made.table, made.more, about.left_out > 0 && soft(`${about.left_out} further columns are not listed.`)));
}

function trained() {
  const { facts: pairs, variables, models } = report.trained;
  const code = (value) => (value.includes("(") ? h("code", null, value) : value);
  const choice = (one) => h("div", null, h("dt", null, h("b", null, one.meaning), " ", symbol(one.name)), h("dd", { class: "small" }, `${one.how}, by `, h("code", null, one.what)));
  return section("trained", "What was trained", "Training", null,
    h("div", { class: "card" }, facts(pairs.map(([name, value]) => [name, code(value)]), "wide")),
    variables.length > 0 && card("Choices that were left open", null, h("dl", { class: "facts wide" }, variables.map(choice))),
    h("div", { class: "card" }, h("details", null, h("summary", null, models.length > 1 ? "The models" : "The model"), models.map(([name, words]) => [name && h("h3", null, name), h("pre", null, words)]))));
}

function glossary() {
  return section("words", "What the words mean", "Words", null, h("div", { class: "card" }, h("details", { id: "glossary" }, h("summary", null, "Scores and other words of this page"),
    h("dl", { class: "glossary" }, Object.values(report.glossary).map(([called, words]) => h("div", null, h("dt", null, called), h("dd", null, words)))))));
}

export function foot() {
  const samples = report.trained.variables.length ? `, with ${report.samples} samples a network` : "";
  return h("footer", null, h("p", null, [...report.footnotes, "± are standard errors."].join(" ")),
    h("p", null, "Shares describe this model, this data and the distributions that were given. A choice that was not left open has no line; it may still matter."),
    h("p", null, `Made by Wherefrom ${report.wherefrom} on ${report.made}${samples}.`));
}

const given = () => report.sections.map(({ id, title, name, lead, panels }) => section(id, title, name, lead, arranged(panels)));

export const sections = [given, doubt, rows, truth, calibration, combinations, outside, learning, data, trained, glossary];
