"use strict";
// Draws a report from the document in this file: sections of cards, sortable tables, and plots of plain SVG.
// Whatever comes from the document is put in as text, never as HTML.
(() => {
  const report = JSON.parse(document.getElementById("document").textContent);
  const main = document.getElementById("main");
  const tip = document.getElementById("tip");
  const live = document.getElementById("live");
  const isClasses = report.kind === "classes";
  let view; // of the output that is looked at
  let colours; // of its sources
  let opened = null; // for paper

  // ------------------------------------------------------------------ elements and numbers

  const add = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "vars") for (const [key, own] of Object.entries(value)) element.style.setProperty(key, own);
      else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) element.append(child);
    }
    return element;
  };
  const h = (tag, attributes, ...children) => add(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    add(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  const number = (value, digits = 3) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    let text;
    if (size !== 0 && (size >= 1e7 || size < 1e-4)) text = value.toExponential(Math.max(0, digits - 2));
    else if (size >= 10 ** (digits - 1)) text = Math.round(value).toLocaleString("en");
    else text = String(Number(value.toPrecision(digits)));
    return text.replace("-", "−");
  };
  const fixed = (value, digits) => (value === null || !Number.isFinite(value) ? "–" : value.toFixed(digits).replace("-", "−"));
  // As many decimals as tell different values apart: at least and at most so many, if they are few.
  const apart = (values, write, least, most) => {
    const known = [...new Set(values.filter(Number.isFinite))];
    if (known.length > 40) return least;
    for (let places = least; places < most; places++) if (new Set(known.map((value) => write(value, places))).size === known.length) return places;
    return most;
  };
  // The same number of decimals for all of a column: as many as its largest value needs, and those that tell its values apart.
  const aligned = (values, digits = 3) => {
    const top = Math.max(...values.filter(Number.isFinite).map(Math.abs), 0);
    if (top >= 1e7 || (top && top < 1e-3)) return (value) => number(value, digits);
    const least = Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(top || 1))));
    const places = apart(values, fixed, least, least + 2);
    return (value) => value === null || value === undefined || !Number.isFinite(value) ? "–"
      : value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
  };
  const signed = (value, digits = 2) => (value > 0 ? "+" : "") + number(value, digits);
  const percent = (value, digits = 0) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (value > 0 && value < 0.5 * 10 ** (-2 - digits)) return `<${(10 ** -digits).toFixed(digits)}%`;
    return `${(100 * value).toFixed(digits)}%`;
  };
  const percents = (values) => { const places = apart(values, percent, 0, 1); return (value) => percent(value, places); };
  const count = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many || one + "s"}`;
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const sum = (values) => values.reduce((all, one) => all + one, 0);
  const extent = (values) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (Number.isFinite(value)) { if (value < low) low = value; if (value > high) high = value; }
    return low > high ? [0, 1] : [low, high];
  };
  const rowTitle = (row) => (report.rows.are_named ? report.rows.names[row] : `Row ${report.rows.names[row]}`);
  const unit = report.unit ? ` ${report.unit}` : "";

  // ------------------------------------------------------------------ the tooltip

  let follow = null; // where a tip that was called by a key has gone, when the page scrolls
  const hideTip = () => { tip.hidden = true; follow = null; };
  function placeTip(x, y) {
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth - 8 ? x - box.width - 14 : x + 16;
    const top = y + 16 + box.height > innerHeight - 8 ? y - box.height - 12 : y + 16;
    tip.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  }
  function showTip(x, y, title, lines) {
    tip.replaceChildren(
      ...(title ? [h("b", null, title)] : []),
      ...lines.map((line) => (typeof line === "string" ? h("p", null, line) : h("div", null, h("span", null, line[0]), h("span", null, line[1])))),
    );
    tip.hidden = false;
    follow = null;
    placeTip(x, y);
  }
  const spoken = (title, lines) => [title, ...lines.map((line) => (typeof line === "string" ? line : line.join(" ")))].filter(Boolean).join(", ");
  // Anything that is not a plot: values on hover, and on focus.
  function tipped(element, title, lines) {
    const middle = () => { const box = element.getBoundingClientRect(); return [box.x + box.width / 2, box.bottom]; };
    const show = (event) => {
      showTip(...(event.clientX === undefined ? middle() : [event.clientX, event.clientY]), title, lines);
      if (event.clientX === undefined) follow = middle;
    };
    for (const name of ["pointerenter", "pointermove"]) element.addEventListener(name, show);
    element.addEventListener("focus", show);
    for (const name of ["pointerleave", "blur"]) element.addEventListener(name, hideTip);
    return element;
  }
  // A word that the glossary explains, on hover and on focus.
  const term = (name, text) => {
    const [called, about] = report.glossary[name];
    return tipped(h("span", { class: "term", tabindex: 0 }, text || called), called, [about]);
  };
  addEventListener("scroll", () => (follow ? placeTip(...follow()) : hideTip()), { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // ------------------------------------------------------------------ plots

  const plots = [];
  let clips = 0;
  let resizing;
  addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => plots.forEach((draw) => draw()));
  });

  function ticks([low, high], most) {
    if (!(high > low)) return [low];
    const rough = (high - low) / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((one) => one >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  }
  function logTicks([low, high]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const m of high / low > 300 ? [1] : [1, 2, 5]) found.push(m * 10 ** power);
    }
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  const sparse = (marks, most) => marks.filter((_, i) => i % Math.ceil(marks.length / most) === 0);
  const padded = ([low, high], part = 0.04) => {
    const room = (high - low || Math.abs(high) || 1) * part;
    return [low - room, high + room];
  };
  const scale = ([low, high], [from, to], log) => {
    const f = log ? Math.log : (v) => v;
    return (value) => from + ((f(value) - f(low)) / (f(high) - f(low) || 1)) * (to - from);
  };

  // about: label, x and y ({domain, label, format, log, ticks}), height, draw(x, y, area) -> elements,
  // points() -> [{x, y, title, lines, light}] in data units; by: "x" takes the nearest column, else the nearest point.
  function plot(about) {
    const holder = h("div", { class: "plot" });
    const draw = () => {
      const width = opened ? (holder.closest(".pair") ? 300 : 620) : Math.max(240, holder.clientWidth || 320);
      const height = about.square ? Math.min(400, width) : about.height || 280;
      const format = { x: about.x.format || number, y: about.y.format || number };
      const marks = {
        y: about.y.ticks || (about.y.log ? logTicks(about.y.domain) : ticks(about.y.domain, height / 55)),
        x: about.x.ticks || (about.x.log ? sparse(logTicks(about.x.domain), width / 90) : ticks(about.x.domain, width / 80)),
      };
      if (about.y.whole) marks.y = marks.y.filter(Number.isInteger);
      const left = 10 + Math.max(16, ...marks.y.map((mark) => 7 * format.y(mark).length));
      const area = { left, right: width - 14, top: about.y.label ? 26 : 10, bottom: height - (about.x.label ? 42 : 24) };
      const x = scale(about.x.domain, [area.left, area.right], about.x.log);
      const y = scale(about.y.domain, [area.bottom, area.top], about.y.log);
      const points = about.points(area).map((point) => ({ ...point, px: x(point.x), py: y(point.y) }));
      const clip = `clip${(clips += 1)}`;
      const ring = svg("circle", { class: "ring", r: 6, visibility: "hidden" });
      const picture = svg(
        "svg",
        { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "group", "aria-roledescription": "plot",
          "aria-label": `${about.label}. ${count(points.length, "value")}; the arrow keys go through them.` },
        marks.y.map((mark) => [
          svg("line", { class: "grid", x1: area.left, x2: area.right, y1: y(mark), y2: y(mark) }),
          svg("text", { x: area.left - 8, y: y(mark) + 4, "text-anchor": "end" }, format.y(mark)),
        ]),
        marks.x.map((mark) => svg("text", { x: x(mark), y: area.bottom + 18, "text-anchor": "middle" }, format.x(mark))),
        svg("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }),
        about.y.label && svg("text", { x: 0, y: 12 }, about.y.label),
        about.x.label && svg("text", { x: area.right, y: height - 6, "text-anchor": "end" }, about.x.label),
        svg("clipPath", { id: clip }, svg("rect", { x: area.left - 8, y: area.top - 8, width: area.right - area.left + 16, height: area.bottom - area.top + 16 })),
        svg("g", { "clip-path": `url(#${clip})` }, about.draw(x, y, area)),
        ring,
      );
      let lit = null, at = -1;
      const show = (place, aloud) => {
        at = place;
        const point = points[place];
        const where = () => {
          const box = picture.getBoundingClientRect(), zoom = box.width / width;
          return [box.x + point.px * zoom, box.y + point.py * zoom];
        };
        ring.setAttribute("cx", point.px);
        ring.setAttribute("cy", point.py);
        ring.setAttribute("visibility", "visible");
        if (lit) lit.classList.remove("lit");
        lit = point.light ? picture.querySelector(point.light) : null;
        if (lit) lit.classList.add("lit");
        showTip(...where(), point.title, point.lines);
        if (!aloud) return;
        follow = where;
        live.textContent = spoken(point.title, point.lines);
      };
      const hide = () => {
        ring.setAttribute("visibility", "hidden");
        if (lit) lit.classList.remove("lit");
        hideTip();
      };
      const nearest = (event) => {
        const box = picture.getBoundingClientRect();
        const [ex, ey] = [((event.clientX - box.x) * width) / box.width, ((event.clientY - box.y) * width) / box.width];
        let best = -1, least = about.by === "x" ? Infinity : 45;
        points.forEach((point, place) => {
          const apart = about.by === "x" ? Math.abs(point.px - ex) + Math.abs(point.py - ey) * 1e-3 : Math.hypot(point.px - ex, point.py - ey);
          if (apart < least) [least, best] = [apart, place];
        });
        if (best < 0) hide(); else show(best, false);
      };
      for (const name of ["pointermove", "pointerdown"]) picture.addEventListener(name, nearest);
      picture.addEventListener("pointerleave", hide);
      picture.addEventListener("blur", hide);
      picture.addEventListener("keydown", (event) => {
        const last = points.length - 1;
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
        if (to === undefined || last < 0) return;
        event.preventDefault();
        show(Math.max(0, Math.min(last, to)), true);
      });
      holder.replaceChildren(picture);
    };
    plots.push(draw);
    return holder;
  }
  const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const unitTicks = [0, 0.25, 0.5, 0.75, 1];
  const asPercent = (value) => percent(value);

  // ------------------------------------------------------------------ tables that sort

  // columns: {name, value(item), cell(item), number, wide, title, hidden: to sort by alone};
  // about: sort [place, descending], first, detail, mark, sorted(place)
  function sortable(columns, items, about) {
    let [place, descending] = about.sort || [null, false];
    let shown = about.first || Infinity;
    let kept = items;
    const seen = columns.filter((column) => !column.hidden);
    const body = h("tbody");
    const heads = seen.map((column) => {
      const i = columns.indexOf(column);
      const button = column.value
        ? h("button", { type: "button", title: column.title, onclick: () => by(i, i === place ? !descending : !!column.number) }, column.name)
        : h("span", null, column.name);
      return h("th", { scope: "col", role: "columnheader", class: kind(column), "data-name": column.value && column.name }, button);
    });
    const table = h("table", { class: about.class, role: "table", vars: { "--n": seen.filter((column) => !column.wide && !column.extra).length - 1 } }, h("caption", { class: "unseen" }, about.label),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body);
    body.setAttribute("role", "rowgroup");
    const more = h("div", { class: "more-rows" });
    function by(i, down) {
      [place, descending] = [i, down];
      live.textContent = `Sorted by ${columns[i].name}, ${down ? "largest" : "smallest"} first`;
      if (about.sorted) about.sorted(i);
      fill();
    }
    function only(test) {
      kept = items.filter(test);
      live.textContent = `${count(kept.length, "row")} found`;
      fill();
    }
    let before = null; // paper, on which nothing can be asked for
    function unfold(open) {
      if (open) [before, shown] = [shown, Math.max(shown, 40)];
      else [shown, before] = [before === null ? shown : before, null];
      fill();
    }
    function fill() {
      let order = kept;
      if (place !== null) {
        const value = columns[place].value;
        const known = kept.filter((item) => value(item) !== null && value(item) !== undefined);
        const unknown = kept.filter((item) => value(item) === null || value(item) === undefined);
        known.sort((a, b) => {
          const [p, q] = [value(a), value(b)];
          return (typeof p === "string" ? p.localeCompare(q, "en", { numeric: true }) : p - q) * (descending ? -1 : 1);
        });
        order = [...known, ...unknown];
      }
      heads.forEach((head, i) => {
        if (seen[i] === columns[place]) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      body.replaceChildren(...order.slice(0, shown).map((item) => row(item)));
      more.replaceChildren();
      if (!kept.length) more.append(h("span", { class: "soft small" }, "No row has this in its name."));
      else if (about.first && items.length > about.first) {
        more.append(h("span", { class: "soft small" }, `${Math.min(shown, kept.length)} of ${kept.length.toLocaleString("en")}${kept.length < items.length ? " that were found" : ""}`));
        if (shown < kept.length) more.prepend(h("button", { type: "button", class: "pill", onclick: () => { shown += 25; fill(); } }, "Show more"));
      }
    }
    function row(item) {
      const own = h("tr", { role: "row", class: about.mark && about.mark(item) ? "best" : null },
        seen.map((column) => h("td", { role: "cell", class: kind(column) }, column.cell ? column.cell(item, toggle) : String(column.value(item) ?? "–"))));
      let detail = null;
      function toggle(event) {
        if (detail) { detail.remove(); detail = null; }
        else own.after((detail = h("tr", { class: "detail" }, h("td", { colspan: seen.length }, about.detail(item)))));
        event.currentTarget.setAttribute("aria-expanded", String(!!detail));
      }
      return own;
    }
    fill();
    tables.push(unfold);
    return { table: h("div", { class: "scroll" }, table), more, by, only };
  }
  const tables = [];
  const kind = (column) => [column.number && "number", column.wide && "wide", column.extra && "extra"].filter(Boolean).join(" ") || null;

  // ------------------------------------------------------------------ sources

  const sourceNames = () => Object.keys(view.sources.shares);
  function pickColours() {
    colours = {};
    let next = 0;
    for (const name of [...view.sources.overall.map((part) => part.name), "others"]) {
      if (name === "noise" || name === "overlap") colours[name] = { own: "var(--noise)", hatched: true };
      else { colours[name] = { own: `var(--c${next % 6})`, hatched: next >= 6 }; next += 1; }
    }
  }
  const painted = (name, tag, attributes) =>
    h(tag, { ...attributes, class: [attributes && attributes.class, colours[name].hatched && "hatched"].filter(Boolean).join(" ") || null,
      vars: { "--own": colours[name].own, ...(attributes && attributes.vars) } });
  const swatch = (name) => painted(name, "span", { class: "swatch", "aria-hidden": "true" });
  const meaningOf = (name) => {
    const known = [...view.sources.overall, ...report.trained.variables].find((part) => part.name === name);
    return known ? known.meaning : name === "others" ? "all smaller sources together" : name;
  };
  // In words, and small, as the library has it.
  const plain = ["noise", "overlap", "others"];
  const symbol = (name) => (plain.includes(name) || meaningOf(name) === name ? null : h("span", { class: "symbol" }, name));
  const full = (name) => (symbol(name) ? `${meaningOf(name)} (${name})` : meaningOf(name));

  // A stacked bar; focusable parts only where it stands alone.
  function bar(shares, about = {}) {
    const parts = Object.entries(shares).filter(([, share]) => share > 0);
    const holder = h("div", { class: about.thin ? "bar thin" : "bar", role: about.thin ? "img" : "group",
      "aria-label": parts.map(([name, share]) => `${meaningOf(name)} ${percent(share)}`).join(", ") });
    for (const [name, share] of parts) {
      const part = painted(name, "span", { tabindex: about.thin ? null : 0, role: about.thin ? null : "img", "aria-label": about.thin ? null : `${meaningOf(name)} ${percent(share, 1)}`, vars: { "flex": `${share} 0 ${share < 0.004 ? 0 : 2}px` } });
      const lines = [["share", percent(share, 1)], ...(about.extra ? about.extra(name) : [])];
      holder.append(tipped(part, full(name), lines));
    }
    return holder;
  }
  const overallShares = () => Object.fromEntries(view.sources.overall.map((part) => [part.name, part.share]));

  // ------------------------------------------------------------------ sections

  const sections = [];
  function section(id, title, short, lead, ...children) {
    sections.push([id, short]);
    return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), lead && h("p", null, lead), children);
  }
  const card = (title, about, ...children) => h("div", { class: "card" }, title && h("h3", null, title), about && h("p", null, about), children);

  function head() {
    const theme = h("button", { type: "button", class: "pill", id: "theme" });
    const modes = ["auto", "light", "dark"];
    let mode = "auto";
    try { mode = localStorage.getItem("wherefrom-theme") || "auto"; } catch { /* files may not remember */ }
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      document.documentElement.dataset.theme = mode === "auto" ? (dark.matches ? "dark" : "light") : mode;
      theme.textContent = { auto: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" }[mode];
    };
    theme.addEventListener("click", () => {
      mode = modes[(modes.indexOf(mode) + 1) % 3];
      try { localStorage.setItem("wherefrom-theme", mode); } catch { /* nor here */ }
      apply();
    });
    dark.addEventListener("change", apply);
    apply();
    const choices = h("div", { class: "choices" });
    if (report.views.length > 1) {
      choices.append(h("select", { id: "output", "aria-label": "Output to look at", onchange: (event) => show(Number(event.target.value)) },
        report.views.map((one, i) => h("option", { value: i, selected: one === view }, `Output: ${one.name}`))));
    }
    choices.append(theme);
    const networks = report.trained.facts.find(([name]) => name === "networks");
    const open = report.trained.variables.map((variable) => variable.meaning);
    return h("header", null,
      h("div", null, h("h1", null, report.title),
        h("p", null, `${count(Number(networks[1]), "network")}, scored on ${count(report.rows.count, "row")}. `, term("open"), `: ${open.join(", ") || "nothing"}.`)),
      choices);
  }

  function navigation() {
    const links = sections.map(([id, short]) => h("li", null, h("a", { href: `#${id}` }, short)));
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links) {
          const own = link.firstChild.getAttribute("href") === `#${entry.target.id}`;
          if (own) link.firstChild.setAttribute("aria-current", "true"); else link.firstChild.removeAttribute("aria-current");
        }
      }
    }, { rootMargin: "-20% 0px -70% 0px" });
    return [h("nav", { "aria-label": "Sections" }, h("ul", null, links)), () => main.querySelectorAll("section").forEach((one) => seen.observe(one))];
  }

  // ------------------------------------------------------------------ scores

  const inPercent = ["coverage", "accuracy", "ece", "r2"];
  const scoreName = (name) => report.glossary[name][0];
  // Values of one score with the decimals that the error of the first allows and that tell them apart; and that error.
  function scoreTexts(name, values, sure) {
    const [times, sign] = inPercent.includes(name) ? [100, "%"] : [1, ""];
    const error = sure && sure.error ? sure.error * times : null;
    const top = Math.max(...values.filter(Number.isFinite).map((value) => Math.abs(value * times)), 0);
    const places = error === null ? (sign ? 1 : 3 - Math.floor(Math.log10(top || 1))) : 1 - Math.floor(Math.log10(error));
    const least = Math.max(0, Math.min(sign ? 1 : 6, places));
    const write = (value, digits) => (value === null || value === undefined || !Number.isFinite(value) ? "–"
      : (value * times).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−") + sign);
    const digits = apart(values, write, least, Math.min(6, least + (values.length > 4 ? 1 : 3)));
    const few = sure && sure.interval;
    const bounds = few && sure.interval.map((end) => write(end, sign ? 0 : 2));
    return { texts: values.map((value) => write(value, digits)), sure: few ? ` (${bounds[0].replace("%", "")} to ${bounds[1]})` : error === null ? "" : ` ± ${write(error / times, digits)}` };
  }
  // columns: [heading, scores, errors or null]; a line for each name.
  function scoreTable(names, columns) {
    const lines = names.filter((name) => columns.some(([, scores]) => Number.isFinite(scores[name])));
    return h("table", { class: "scores" }, h("caption", { class: "unseen" }, "Scores"),
      h("thead", null, h("tr", null, h("td", null), columns.map(([heading]) => h("th", { scope: "col", class: "number" }, h("span", null, heading))))),
      h("tbody", null, lines.map((name) => {
        const { texts } = scoreTexts(name, columns.map(([, scores]) => scores[name]), columns[0][2][name]);
        return h("tr", null, h("th", { scope: "row" }, term(name)), columns.map(([, scores, errors], i) =>
          h("td", { class: "number" }, h(i ? "span" : "b", null, texts[i]), errors && h("span", { class: "more" }, scoreTexts(name, columns.map(([, own]) => own[name]), errors[name]).sure))));
      })));
  }

  function hero() {
    const found = view.verdict;
    const few = report.rows.count < 30 && found.word === "about right";
    const word = h("strong", { class: few ? null : found.word === "about right" ? "good" : "bad" }, few ? "not off, as far as so few rows can tell" : found.word);
    const sure = h("div", { class: "card" }, h("p", { class: "eyebrow" }, "How sure"));
    const { gain, scores: without } = view.baseline;
    const bare = isClasses ? "always answering with the class frequencies" : `always answering with the mean ${view.name}`;
    const beats = h("p", { class: "verdict" }, gain.word === "better"
      ? [h("strong", { class: "good" }, "Better"), ` than ${bare}, by more than chance.`]
      : gain.word === "worse" ? [h("strong", { class: "bad" }, "Worse"), ` than ${bare}.`] : [h("strong", { class: "bad" }, "Not shown to be better"), ` than ${bare}.`]);
    if (isClasses) {
      const own = scoreTexts("accuracy", [view.scores.accuracy, without.accuracy], view.errors.accuracy);
      sure.append(
        h("div", { class: "big" }, own.texts[0], h("small", null, own.sure)),
        h("p", { class: "verdict" }, `of the answers${view.name === "y" ? "" : ` for ${view.name}`} are right; always the most frequent class would be right in ${own.texts[1]}. On average it is ${percent(found.expected, 1)} confident: `, word, "."), beats);
    } else {
      const own = scoreTexts("coverage", [view.scores.coverage], view.errors.coverage);
      sure.append(
        h("div", { class: "big" }, `± ${number(view.typical.std)}`, h("small", null, report.unit || (view.name === "y" ? "" : `for ${view.name}`))),
        h("p", { class: "verdict" }, "is the ", term("std", "standard deviation"), ` of a typical prediction: two truths in three should be that close. Its 95% intervals hold ${own.texts[0]}${own.sure} of the truth: `, word, "."), beats);
    }
    sure.append(scoreTable(isClasses ? ["auc", "nll", "brier", "ece"] : ["rmse", "r2", "nll", "crps"],
      [["this run", view.scores, view.errors], [term("without", "no model"), without, null]]));
    const whence = h("div", { class: "card" }, h("p", { class: "eyebrow" }, "Where the doubt comes from"));
    if (view.sources.overall.length) {
      const parts = [...view.sources.overall].sort((a, b) => b.share - a.share);
      const share = percents(parts.slice(0, 4).map((part) => part.share));
      whence.append(bar(overallShares()),
        h("ul", { class: "breakdown" }, parts.slice(0, 4).map((part) =>
          h("li", null, swatch(part.name), h("span", null, h("b", null, part.meaning), symbol(part.name)), h("b", null, share(part.share))))));
      if (parts.length > 4) whence.append(h("p", { class: "soft small" }, `and ${count(parts.length - 4, "smaller source")}, ${share(sum(parts.slice(4).map((part) => part.share)))} together`));
    } else {
      whence.append(h("p", null, view.sources.problem || "Nothing was left open in training, and the likelihood has no noise: there is no doubt to trace."));
    }
    const next = h("div", { class: "card next" }, h("p", { class: "eyebrow" }, "What to do next"), h("h2", null, view.advice.lead),
      h("div", { class: "advice" }, view.advice.say.map((text) => h("p", null, text))));
    return [report.cautions.map((text) => h("p", { class: "note caution" }, text)), h("div", { class: "hero" }, sure, whence, next), report.notes.map((note) => h("p", { class: "note" }, note))];
  }

  // Of classes: a share of the largest doubt that is possible, which is all classes equally probable.
  const most = () => Math.log(view.classes.length) || 1;
  const asDoubt = (entropy, digits = 0) => percent(entropy / most(), digits);
  const doubtAxis = (top, marks) => {
    const parts = ticks([0, top / most()], marks);
    const digits = parts.every((part) => Math.abs(100 * part - Math.round(100 * part)) < 1e-6) ? 0 : 1;
    return { domain: [0, top], ticks: parts.map((part) => part * most()), format: (value) => asDoubt(value, digits) };
  };
  const doubtLines = (entropy) => [["of the largest possible", asDoubt(entropy, 1)], ["entropy", `${fixed(entropy, 3)} nats`]];
  function doubt() {
    if (!view.sources.overall.length) return null;
    const what = isClasses ? "doubt" : "variance";
    const parts = view.sources.overall;
    const errors = parts.some((part) => part.share_error !== null);
    const amount = aligned(parts.map((part) => part.amount), 4), std = aligned(parts.map((part) => Math.sqrt(Math.max(0, part.amount))));
    const table = sortable([
      { name: "Source", value: (part) => part.meaning, cell: (part) => [swatch(part.name), h("b", null, part.meaning), symbol(part.name)] },
      { name: "Share", number: true, value: (part) => part.share, cell: (part) => percent(part.share, 1), title: report.glossary.share[1] },
      errors && { name: "± error", number: true, value: (part) => part.share_error, cell: (part) => percent(part.share_error, 1), title: "Standard error of the share" },
      isClasses
        ? { name: "Doubt", number: true, value: (part) => part.amount, cell: (part) => tipped(h("span", null, asDoubt(part.amount, 1)), part.meaning, doubtLines(part.amount)), title: report.glossary.doubt[1] }
        : { name: "Variance", number: true, extra: true, value: (part) => part.amount, cell: (part) => amount(part.amount) },
      !isClasses && { name: "As ± std", number: true, value: (part) => part.amount, cell: (part) => std(Math.sqrt(Math.max(0, part.amount))), title: "The standard deviation that this source alone would cause" },
    ].filter(Boolean), parts, { label: "Sources of doubt, over all rows", class: "folding sources", sort: [1, true] });
    return section("doubt", "Where the doubt comes from", "Doubt",
      isClasses
        ? "Some doubt every network has by itself, because the classes overlap. The rest is disagreement between networks, split by the choices that make them differ."
        : `How wide predictions of ${view.name} are (their variance), split by the choices that cause it. Noise is what no network of the run explains.`,
      card("Over all rows", null, bar(overallShares()), table.table),
      card("Row by row", `Each row's ${what} by source, rows in order of their doubt.${thinning()}`, stacked(), legend()),
      further());
  }
  function further() {
    const about = report.further;
    if (!about) return null;
    const columns = about.columns.map((name, j) => {
      const numeric = about.rows.every((line) => line[j] === null || typeof line[j] === "number");
      const whole = about.rows.every((line) => Number.isInteger(line[j])), text = aligned(about.rows.map((line) => line[j]));
      return { name, number: numeric, value: (line) => line[j], cell: (line) => (numeric && !whole ? text(line[j]) : String(line[j] ?? "–")) };
    });
    const table = sortable(columns, about.rows, { label: "What further trainings would buy", first: 12 });
    return h("div", { class: "card said" }, h("h3", null, "What further training would buy"), about.say.map((text) => h("p", null, text)),
      h("details", null, h("summary", null, "The errors that each budget would leave"), table.table, table.more,
        h("p", { class: "soft small" }, "Each is what chance leaves for want of networks and samples: of the mean, in standard deviations of a prediction; the others relative to what they are errors of.")));
  }
  const thinning = () => {
    const [all, listed] = [report.rows.count, report.rows.names.length];
    return all > listed ? ` Of ${all.toLocaleString("en")} rows, ${listed.toLocaleString("en")} are shown: those most in doubt, ${report.outside && report.outside.edge !== null ? `those ${beyondWord()}, ` : ""}and others evenly spaced. Scores speak of all.` : "";
  };
  const legend = () => h("ul", { class: "legend" }, sourceNames().map((name) => h("li", null, swatch(name), meaningOf(name))));
  const wholeDoubt = () => (isClasses ? view.points.entropy : view.points.std.map((std) => std * std));

  function stacked() {
    const whole = wholeDoubt(), names = sourceNames();
    const order = range(whole.length).sort((a, b) => whole[b] - whole[a]);
    const top = Math.max(...whole) * 1.04 || 1;
    return plot({
      label: "Doubt of each row by source, in order of doubt", height: 300, by: "x",
      x: { domain: [0, order.length], label: "rows, those most in doubt first", ticks: [], format: number },
      y: isClasses ? { ...doubtAxis(top, 5), label: "doubt, of the largest possible" } : { domain: [0, top], label: "variance of the prediction" },
      draw: (x, y) => {
        const base = order.map(() => 0);
        const hatch = svg("defs", null, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          svg("rect", { width: 1.6, height: 6, style: null, class: "stripe" })));
        hatch.querySelector("rect").style.fill = "var(--stripe)";
        return [hatch, [...names].reverse().map((name) => {
          const shares = view.sources.shares[name];
          const low = [...base];
          order.forEach((row, i) => { base[i] += Math.max(0, shares[row] || 0) * whole[row]; });
          const upper = order.flatMap((_, i) => [[x(i), y(base[i])], [x(i + 1), y(base[i])]]);
          const lower = order.flatMap((_, i) => [[x(i), y(low[i])], [x(i + 1), y(low[i])]]).reverse();
          const shape = svg("path", { d: path([...upper, ...lower]) + "Z" });
          shape.style.fill = colours[name].own;
          if (!colours[name].hatched) return shape;
          const over = svg("path", { d: path([...upper, ...lower]) + "Z", fill: "url(#hatch)" });
          return [shape, over];
        })];
      },
      points: () => order.map((row, i) => ({ x: i + 0.5, y: whole[row], title: rowTitle(row), lines: rowLines(row) })),
    });
  }
  const rowLines = (row) => {
    const points = view.points;
    const own = isClasses
      ? [["truth", view.classes[points.truth[row]]], ["answer", view.classes[points.guess[row]]], ["confidence", percent(points.confidence[row], 1)]]
      : [["truth", number(points.truth[row], 4) + unit], ["prediction", `${number(points.mean[row], 4)} ± ${number(points.std[row])}`]];
    return [...own, ...sourceNames().map((name) => [meaningOf(name), percent(view.sources.shares[name][row])])];
  };

  function rows() {
    const points = view.points, names = sourceNames();
    const items = range(report.rows.names.length);
    const share = (name) => (row) => view.sources.shares[name][row];
    const main = names.length && ((row) => names.reduce((best, name) => (share(name)(row) > share(best)(row) ? name : best)));
    const name = { name: "Row", value: (row) => report.rows.names[row],
      cell: (row, toggle) => [h("button", { type: "button", class: "open", "aria-expanded": "false", onclick: toggle }, report.rows.names[row]),
        isBeyond(row) && h("span", { class: "mark", title: beyondTitle() }, beyondWord())] };
    const whose = names.length && { name: "Whose doubt", wide: true,
      cell: (row) => bar(Object.fromEntries(names.map((one) => [one, share(one)(row)])), { thin: true }) };
    const quantity = isClasses ? null : aligned([...points.truth, ...points.mean], 4), wide = isClasses ? null : aligned(points.std);
    const miss = (row) => (points.std[row] > 0 ? (points.truth[row] - points.mean[row]) / points.std[row] : null);
    const columns = (isClasses ? [
      name,
      { name: "Truth", value: (row) => view.classes[points.truth[row]] },
      { name: "Answer", value: (row) => view.classes[points.guess[row]],
        cell: (row) => h("span", { class: points.guess[row] === points.truth[row] ? null : "far" }, view.classes[points.guess[row]]) },
      { name: "Sure", number: true, value: (row) => points.confidence[row], cell: (row) => percent(points.confidence[row], 1), title: "Probability of the answer" },
      { name: "Doubt", number: true, value: (row) => points.entropy[row], cell: (row) => tipped(h("span", null, asDoubt(points.entropy[row], 1)), rowTitle(row), doubtLines(points.entropy[row])), title: report.glossary.doubt[1] },
      whose,
    ] : [
      name,
      { name: "Truth", number: true, value: (row) => points.truth[row], cell: (row) => quantity(points.truth[row]) },
      { name: "Guess", number: true, value: (row) => points.mean[row], cell: (row) => quantity(points.mean[row]), title: "Mean of the predictive distribution" },
      { name: "± std", number: true, value: (row) => points.std[row], cell: (row) => wide(points.std[row]) },
      { name: "Off by", number: true, value: (row) => (miss(row) === null ? null : Math.abs(miss(row))), title: "Truth less guess, in standard deviations",
        cell: (row) => h("span", { class: Math.abs(miss(row)) > 1.96 ? "far" : null }, miss(row) === null ? "–" : `${fixed(miss(row), 1)} σ`) },
      whose,
    ]).filter(Boolean);
    const shares = names.map((one) => ({ name: `share of ${meaningOf(one)}`, value: share(one), number: true, hidden: true }));
    const place = report.outside && report.outside.kind !== "flag" ? [{ name: distanceWord(), value: (row) => report.outside.values[row], number: true, hidden: true }] : [];
    const sortBy = isClasses ? 4 : 3;
    const all = [...columns, ...place, ...shares];
    const select = h("select", { "aria-label": "Sort rows by", onchange: (event) => table.by(Number(event.target.value), !!all[event.target.value].number) },
      all.map((column, i) => (column.value ? h("option", { value: i, selected: i === sortBy }, column.name) : null)));
    const table = sortable(all, items, { label: "Rows, sortable", class: isClasses ? "folding rows tall answers" : report.rows.names.some((own) => own.length > 8) ? "folding rows tall" : "folding rows", first: 12, sort: [sortBy, true], detail, sorted: (i) => { select.value = i; } });
    const searched = (row) => [report.rows.names[row], ...(isClasses ? [view.classes[points.truth[row]], view.classes[points.guess[row]]] : [])].join("\n").toLowerCase();
    const find = h("input", { type: "search", placeholder: isClasses ? "name or class" : "name of a row", "aria-label": "Find rows", oninput: (event) => {
      const wanted = event.target.value.trim().toLowerCase();
      table.only((row) => searched(row).includes(wanted));
    } });
    function detail(row) {
      const outside = report.outside && report.outside.kind !== "flag" && report.outside.values[row];
      const facts = [
        ...(isClasses
          ? [["truth", view.classes[points.truth[row]]], ["answer", view.classes[points.guess[row]]], ["probability of the truth", percent(points.of_truth[row], 1)], [term("overlap"), asDoubt(points.overlap[row], 1)], [term("disagreement"), asDoubt(points.disagreement[row], 1)]]
          : [["95% interval", `${number(points.low[row], 4)} to ${number(points.high[row], 4)}`]]),
        ...(outside !== null && outside !== false && outside !== undefined ? [[distanceWord(), `${number(outside)}${isBeyond(row) ? `: ${beyondWord()}` : ""}`]] : []),
        ...names.map((one) => [`share of ${full(one)}`, percent(share(one)(row), 1)]),
      ];
      const values = report.data.values.map((column, j) => {
        const about = report.data.columns[j], base = about.there || about.here;
        const apart = base.std ? (column[row] - base.mean) / base.std : 0;
        return { name: about.name, value: column[row], apart };
      }).sort((a, b) => Math.abs(b.apart) - Math.abs(a.apart));
      return [h("dl", { class: "facts wide" }, facts.map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, value)))),
        values.length > 0 && [h("p", { class: "soft small spaced" }, "Its values, those farthest from the usual first; in brackets, how many standard deviations above or below the mean."),
          h("dl", { class: "facts" }, values.map((one) => h("div", null, h("dt", null, one.name),
            h("dd", { class: Math.abs(one.apart) > 2 ? "far" : null }, `${number(one.value, 4)} (${signed(Number(one.apart.toFixed(1)))})`))))]];
    }
    return section("rows", "The rows most in doubt", "Rows", `Sort by any column; open a row for all of its shares and values.${thinning()}`,
      h("div", { class: "card" }, h("div", { class: "tools" }, h("label", null, "Sort by", select), h("label", null, "Find", find), names.length > 0 && legendInline()), table.table, table.more));
  }
  const legendInline = () => { const list = legend(); list.style.margin = "0"; return list; };

  // ------------------------------------------------------------------ predictions

  function predictions() {
    return isClasses ? classPredictions() : section("truth", "Predictions against the truth", "Truth",
      `Each row's prediction of ${view.name}, with its 95% interval, against the truth. On the line, it is right.`, scatter());
  }
  function scatter() {
    const points = view.points, places = report.rows.drawn;
    const domain = padded(extent(places.flatMap((row) => [points.truth[row], points.mean[row]])));
    const both = padded(extent(places.flatMap((row) => [points.low[row], points.high[row]])), 0.02);
    const missed = (row) => points.truth[row] < points.low[row] || points.truth[row] > points.high[row];
    const misses = places.filter(missed).length;
    const reach = places.length <= 400;
    return card(null, null,
      h("ul", { class: "legend", vars: { margin: "0" } },
        h("li", null, mark("dot"), `the interval holds the truth (${places.length - misses})`),
        h("li", null, mark("miss"), `the interval misses it (${misses})`)),
      plot({
        label: "Prediction against truth", height: 420,
        x: { domain, label: `truth${report.unit ? `, ${report.unit}` : ""}` },
        y: { domain: reach ? extent([...both, ...domain]) : domain, label: `prediction${reach ? " and its 95% interval" : ""}${report.unit ? `, ${report.unit}` : ""}` },
        draw: (x, y) => [
          svg("line", { class: "guide", x1: x(domain[0]), y1: y(domain[0]), x2: x(domain[1]), y2: y(domain[1]) }),
          reach && places.map((row) => svg("line", { class: missed(row) ? "reach missed" : "reach", x1: x(points.truth[row]), x2: x(points.truth[row]), y1: y(points.low[row]), y2: y(points.high[row]) })),
          places.map((row) => dot(x(points.truth[row]), y(points.mean[row]), missed(row))),
        ],
        points: () => [...places].sort((a, b) => points.truth[a] - points.truth[b]).map((row) => ({
          x: points.truth[row], y: points.mean[row], title: rowTitle(row),
          lines: [["truth", number(points.truth[row], 4)], ["prediction", number(points.mean[row], 4)], ["± std", number(points.std[row])],
            ["95% interval", `${number(points.low[row], 4)} to ${number(points.high[row], 4)}`]],
        })),
      }),
      places.length < report.rows.count && h("p", { class: "soft small" }, `${places.length.toLocaleString("en")} of ${report.rows.count.toLocaleString("en")} rows are drawn, evenly spaced.`));
  }
  // Misses have another shape, too: a diamond.
  const dot = (x, y, missed) => missed
    ? svg("path", { class: "miss", d: `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z` })
    : svg("circle", { class: "dot", cx: x, cy: y, r: 3.4, opacity: 0.8 });
  const mark = (kind) => {
    const icon = svg("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, dot(6, 6, kind === "miss"));
    const holder = h("span", { class: "plot", vars: { margin: "0 6px 0 0", width: "12px", "align-self": "center" } });
    holder.append(icon);
    return holder;
  };

  function classPredictions() {
    const places = report.rows.drawn, points = view.points;
    const wrong = (row) => points.truth[row] !== points.guess[row];
    const top = Math.max(0.05, ...places.map((row) => points.disagreement[row])) * 1.08;
    const side = Math.max(0.05, ...places.map((row) => points.overlap[row])) * 1.05;
    const doubts = card("Two kinds of doubt", "To the right: every network is unsure by itself, the classes overlap. Upwards: the networks disagree.",
      h("ul", { class: "legend", vars: { margin: "0" } }, h("li", null, mark("dot"), "right"), h("li", null, mark("miss"), "wrong")),
      plot({
        label: "Disagreement against overlap, row by row", height: 320,
        x: { ...doubtAxis(side, 4), label: "overlap, of the largest doubt possible" }, y: { ...doubtAxis(top, 5), label: "disagreement, of the largest doubt possible" },
        draw: (x, y) => [...places].sort((a, b) => wrong(a) - wrong(b)).map((row) => dot(x(points.overlap[row]), y(points.disagreement[row]), wrong(row))),
        points: () => [...places].sort((a, b) => points.overlap[a] - points.overlap[b]).map((row) => ({ x: points.overlap[row], y: points.disagreement[row],
          title: rowTitle(row), lines: [["truth", view.classes[points.truth[row]]], ["answer", view.classes[points.guess[row]]],
            ["confidence", percent(points.confidence[row], 1)], ["overlap", asDoubt(points.overlap[row], 1)], ["disagreement", asDoubt(points.disagreement[row], 1)]] })),
      }));
    return section("truth", "Predictions against the truth", "Truth", null, h("div", { class: "pair uneven" }, mistakes(), doubts));
  }
  function mistakes() {
    if (!view.mistakes) return card("Mistakes", `There are ${view.classes.length} classes: too many for a table of mistakes.`);
    const table = h("table", { class: "mistakes" }, h("caption", { class: "unseen" }, "Rows by their class, columns by the answer"),
      h("thead", null, h("tr", null, h("th", { scope: "col", class: "corner" }, "truth ↓ answer →"), view.classes.map((label) => h("th", { scope: "col" }, label)))),
      h("tbody", null, view.mistakes.map((line, i) => h("tr", null, h("th", { scope: "row" }, view.classes[i]),
        line.map((n, j) => tipped(h("td", { class: n ? (i === j ? "right" : "wrong") : null }, n || h("span", { class: "soft" }, "·")),
          i === j ? `${view.classes[i]}, and told so` : `${view.classes[i]}, taken for ${view.classes[j]}`, [["rows", n], ["of this class", percent(n / (sum(line) || 1), 1)]]))))));
    return card("Mistakes", "How many rows of each class are given which answer.", h("div", { class: "scroll" }, table));
  }

  // ------------------------------------------------------------------ calibration

  function calibration() {
    const lead = isClasses
      ? "Of the answers that are 80% confident, 80% should be right. The grey bars are where chance alone would put a calibrated run, 19 times out of 20."
      : "An interval of 80% should hold 80% of the truth. The shaded band is where chance alone would put a calibrated run, 19 times out of 20.";
    return section("calibration", "Is it as sure as it should be?", "Calibration", lead,
      h("div", { class: "pair" }, isClasses ? [reliability(), confidence(), risk()] : [coverage(), pit()]), groups(), comparison());
  }
  // Right on average may be wrong by group: fifths of the prediction, or the class that is answered.
  function groups() {
    const found = view.groups;
    if (found.length < 2) return null;
    const off = found.filter((group) => group.word !== "about right");
    const chance = off.length ? `${off.map((group) => `${group.name}: ${group.word}`).join("; ")}; beyond chance, all groups considered.` : "No group is off by more than chance.";
    const at = (group) => found.indexOf(group);
    const low = Math.min(...found.map((group) => Math.min(group.interval[0], group.expected)));
    const domain = [Math.max(0, Math.floor(low * 10 - 0.3) / 10), 1.005];
    const title = isClasses ? "By the class that is answered" : "By what is predicted";
    const about = isClasses
      ? `How often each answer is right (dots, with the range that its rows allow), and how sure it was (dashes). ${chance}`
      : `How much of the truth the 95% intervals hold, by fifths of the predicted ${view.name} (dots, with the range that their rows allow). ${chance}`;
    const table = sortable([
      { name: isClasses ? "Answer" : `Predicted${unit ? ` (${report.unit})` : ""}`, value: at, cell: (group) => group.name },
      { name: "Rows", number: true, value: (group) => group.count },
      { name: isClasses ? "Right" : "Held", number: true, value: (group) => group.observed, cell: (group) => percent(group.observed, 1) },
      { name: "Range", number: true, extra: true, value: (group) => group.interval[0], cell: (group) => `${percent(group.interval[0]).replace("%", "")} to ${percent(group.interval[1])}`, title: "Wilson's interval: 19 times out of 20 it holds what many more rows would show" },
      isClasses && { name: "Sure", number: true, value: (group) => group.expected, cell: (group) => percent(group.expected, 1) },
      { name: "Verdict", value: (group) => group.word, cell: (group) => h("span", { class: group.word === "about right" ? "whole" : "whole far" }, group.word) },
    ].filter(Boolean), found, { label: title, class: "groups" });
    return card(title, about, h("div", { class: "pair" }, plot({
      label: title, height: 250, by: "x",
      x: { domain: [-0.5, found.length - 0.5], ticks: found.length > 8 ? [] : range(found.length), format: (i) => (found.length > 5 || found.some((group) => group.name.length > 12) ? String(i + 1) : found[i].name), label: isClasses ? "answer" : `predicted ${view.name}` },
      y: { domain, label: isClasses ? "right" : "truth that the interval holds", format: asPercent },
      draw: (x, y, area) => [
        !isClasses && svg("line", { class: "guide dashed", x1: area.left, x2: area.right, y1: y(0.95), y2: y(0.95) }),
        found.map((group, i) => [
          isClasses && svg("line", { class: "guide thick", x1: x(i - 0.22), x2: x(i + 0.22), y1: y(group.expected), y2: y(group.expected) }),
          svg("line", { class: group.word === "about right" ? "reach strong" : "reach strong missed", x1: x(i), x2: x(i), y1: y(group.interval[0]), y2: y(group.interval[1]) }),
          dot(x(i), y(group.observed), group.word !== "about right")])],
      points: () => found.map((group, i) => ({ x: i, y: group.observed, title: group.name, lines: [["rows", number(group.count, 7)], [isClasses ? "right" : "held", percent(group.observed, 1)],
        ["its rows allow", `${percent(group.interval[0])} to ${percent(group.interval[1])}`], [isClasses ? "sure" : "should be", percent(group.expected, 1)], ["verdict", group.word]] })),
    }), h("div", null, table.table, table.more)));
  }
  const band = (x, y, at, error) => {
    const upper = at.map((p, i) => [x(p), y(Math.min(1, p + 1.96 * error[i]))]);
    const lower = at.map((p, i) => [x(p), y(Math.max(0, p - 1.96 * error[i]))]).reverse();
    return svg("path", { class: "band", d: path([...upper, ...lower]) + "Z" });
  };
  function curveLegend(ours) {
    if (!view.before) return null;
    const line = (kind) => { const icon = svg("svg", { viewBox: "0 0 22 10", width: 22, height: 10, "aria-hidden": "true" }, svg("line", { class: kind, x1: 0, x2: 22, y1: 5, y2: 5 }));
      const holder = h("span", { class: "plot", vars: { margin: "0 6px 0 0", width: "22px", "align-self": "center" } }); holder.append(icon); return holder; };
    return h("ul", { class: "legend", vars: { margin: "0" } }, h("li", null, line("line"), ours), h("li", null, line("line other dashed"), "before"));
  }
  function coverage() {
    const own = view.calibration, past = view.before && view.before.calibration;
    const at = [0, ...own.levels, 1], error = [0, ...own.error, 0];
    const worst = own.levels.filter((level, i) => Math.abs(own.observed[i] - level) > 1.96 * own.error[i]);
    const over = worst.filter((level) => own.observed[own.levels.indexOf(level)] > level).length;
    const side = over === worst.length ? "above the line: more careful there than need be" : over === 0 ? "below the line: too sure there" : "some above the line (too careful), some below (too sure)";
    const about = worst.length ? `${worst.length} of ${own.levels.length} levels stray from the band, ${side}. Levels share rows, and so stray together.` : "All levels lie within the band.";
    return card("Coverage by level", about, curveLegend("now"), plot({
      label: "Share of the truth that intervals hold, by their level", square: true,
      x: { domain: [0, 1], label: "level of the interval", ticks: unitTicks, format: asPercent }, y: { domain: [0, 1], label: "truth that it holds", ticks: unitTicks, format: asPercent },
      draw: (x, y) => [band(x, y, at, error), svg("line", { class: "guide", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
        past && svg("path", { class: "line other dashed", d: path(past.levels.map((p, i) => [x(p), y(past.observed[i])])) }),
        svg("path", { class: "line", d: path(own.levels.map((p, i) => [x(p), y(own.observed[i])])) }),
        own.levels.map((level, i) => svg("circle", { class: "dot", cx: x(level), cy: y(own.observed[i]), r: 3 }))],
      points: () => own.levels.map((level, i) => ({ x: level, y: own.observed[i], title: `${percent(level)} intervals`,
        lines: [["hold", percent(own.observed[i], 1)], ...(past ? [["before", percent(past.observed[i], 1)]] : []), ["chance allows", `± ${percent(1.96 * own.error[i], 1)}`]] })),
    }));
  }
  function pit() {
    const bins = view.pit, all = sum(bins), even = all / bins.length, reach = 1.96 * Math.sqrt(even * (1 - 1 / bins.length));
    return card("Where the truth falls", "The truth's place within each prediction, from below all of it (0) to above (1). Flat is right; a U is too sure, a hill too careful.", plot({
      label: "Histogram of the truth's probability integral transform", square: true, by: "x",
      x: { domain: [0, 1], label: "predicted probability of a smaller value", ticks: unitTicks, format: (v) => String(v) },
      y: { domain: [0, Math.max(even + reach, ...bins) * 1.05], label: "rows", whole: true },
      draw: (x, y, area) => [svg("rect", { class: "band", x: area.left, width: area.right - area.left, y: y(even + reach), height: y(Math.max(0, even - reach)) - y(even + reach) }),
        bins.map((n, i) => svg("rect", { class: "column", x: x(i / bins.length) + 1.5, width: x(1 / bins.length) - x(0) - 3, y: y(n), height: y(0) - y(n), rx: 2 })),
        svg("line", { class: "guide dashed", x1: area.left, x2: area.right, y1: y(even), y2: y(even) })],
      points: () => bins.map((n, i) => ({ x: (i + 0.5) / bins.length, y: n, title: `${i / bins.length} to ${(i + 1) / bins.length}`, lines: [["rows", number(n)], ["if calibrated", `${number(even)} ± ${number(reach, 2)}`]] })),
    }));
  }
  function reliability() {
    const own = view.reliability, past = view.before && view.before.reliability;
    const fine = range(51).map((i) => i / 50);
    const all = sum(own.count);
    return card("Right as often as it is sure?", `Calibration error ${percent(own.ece, 1)}; chance alone gives about ${percent(own.by_chance, 1)}. Larger dots are more rows; below the line is too sure.`, curveLegend("now"), plot({
      label: "Accuracy by confidence", square: true,
      x: { domain: [0, 1.02], label: "confidence", ticks: unitTicks, format: asPercent }, y: { domain: [0, 1.02], label: "right", ticks: unitTicks, format: asPercent },
      draw: (x, y) => [svg("line", { class: "guide", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
        own.confidence.map((c, i) => svg("line", { x1: x(c), x2: x(c), y1: y(Math.max(0, c - 1.96 * own.error[i])), y2: y(Math.min(1, c + 1.96 * own.error[i])), class: "chance" })),
        past && svg("path", { class: "line other dashed", d: path(past.confidence.map((c, i) => [x(c), y(past.accuracy[i])])) }),
        svg("path", { class: "line", d: path(own.confidence.map((c, i) => [x(c), y(own.accuracy[i])])) }),
        own.confidence.map((c, i) => svg("circle", { class: "dot", cx: x(c), cy: y(own.accuracy[i]), r: 3 + 7 * Math.sqrt(own.count[i] / all) }))],
      points: () => own.confidence.map((c, i) => ({ x: c, y: own.accuracy[i], title: count(own.count[i], "row"), lines: [["confidence", percent(c, 1)], ["right", percent(own.accuracy[i], 1)], ["chance allows", `± ${percent(1.96 * own.error[i], 1)}`]] })),
    }));
  }
  function confidence() {
    const { right, wrong } = view.confidence, top = Math.max(...right.map((n, i) => n + wrong[i]));
    return card("How confident it is", "Rows by the probability of their answer.",
      h("ul", { class: "legend", vars: { margin: "0" } }, h("li", null, mark("dot"), "right"), h("li", null, mark("miss"), "wrong")), plot({
      label: "Histogram of confidence, right and wrong answers", square: true, by: "x",
      x: { domain: [0, 1], label: "confidence", ticks: unitTicks, format: asPercent }, y: { domain: [0, top * 1.08], label: "rows", whole: true },
      draw: (x, y) => right.map((n, i) => [
        svg("rect", { class: "column", x: x(i / 10) + 1.5, width: x(0.1) - x(0) - 3, y: y(n + wrong[i]), height: y(0) - y(n) }),
        svg("rect", { class: "column miss", x: x(i / 10) + 1.5, width: x(0.1) - x(0) - 3, y: y(wrong[i]), height: y(0) - y(wrong[i]) })]),
      points: () => right.map((n, i) => ({ x: (i + 0.5) / 10, y: n + wrong[i], title: `${percent(i / 10)} to ${percent((i + 1) / 10)}`, lines: [["right", number(n)], ["wrong", number(wrong[i])]] })),
    }));
  }
  function risk() {
    const own = view.risk, top = Math.max(0.02, ...own.risk) * 1.12;
    return card("Answering only when sure", "Wrong answers among the most confident rows. Dotted: if it knew its mistakes.", plot({
      label: "Share of wrong answers by share of rows answered", square: true, by: "x",
      x: { domain: [0, 1], label: "rows answered", ticks: unitTicks, format: asPercent }, y: { domain: [0, top], label: "wrong among them", format: (v) => percent(v, top < 0.06 ? 1 : 0) },
      draw: (x, y) => [svg("path", { class: "guide dashed", d: path(own.coverage.map((c, i) => [x(c), y(own.best[i])])) }), svg("path", { class: "line", d: path(own.coverage.map((c, i) => [x(c), y(own.risk[i])])) })],
      points: () => own.coverage.map((c, i) => ({ x: c, y: own.risk[i], title: `${percent(c)} answered`, lines: [["wrong", percent(own.risk[i], 1)], ["at best", percent(own.best[i], 1)]] })),
    }));
  }
  function comparison() {
    if (!view.before) return null;
    return card("Before and after", "The same rows, scored by the run before calibration and by this one.", h("div", { class: "scroll" },
      scoreTable(Object.keys(view.scores), [["now", view.scores, view.errors], ["before", view.before.scores, view.before.errors]])));
  }

  // ------------------------------------------------------------------ combinations

  function combinations() {
    const items = view.combinations.rows;
    const { left_out: missing, why } = view.combinations;
    if (items.length + missing < 2) return null;
    const names = Object.keys(view.scores);
    const better = { nll: Math.min, rmse: Math.min, crps: Math.min, brier: Math.min, ece: Math.min, accuracy: Math.max, auc: Math.max, r2: Math.max };
    const best = {};
    for (const name of names) {
      const known = items.map((row) => row.scores[name]).filter((value) => value !== null);
      if (known.length && better[name]) best[name] = better[name](...known);
      if (name === "coverage") best[name] = known.reduce((a, b) => (Math.abs(b - 0.95) < Math.abs(a - 0.95) ? b : a), -9);
    }
    const own = items.findIndex((row) => row.is_all), first = (list) => (own < 0 ? list : [list[own], ...list]);
    const texts = Object.fromEntries(names.map((name) => [name, scoreTexts(name, first(items.map((row) => row.scores[name])), (own < 0 ? items[0] : items[own]).errors[name]).texts.slice(own < 0 ? 0 : 1)]));
    const short = { nll: "NLL", rmse: "RMSE", crps: "CRPS", coverage: "95% holds", accuracy: "Right", brier: "Brier", ece: "ECE", auc: "AUC", r2: "R²" };
    const open = (row) => row.on.map(meaningOf);
    const least = Math.min(...items.map((row) => row.nll_gap_error).filter((error) => error > 0));
    const gapPlaces = Number.isFinite(least) ? Math.max(2, Math.min(6, 1 - Math.floor(Math.log10(least)))) : 3;
    const gaps = items.some((row) => !row.is_all && row.nll_gap !== null);
    const seconds = aligned(items.map((row) => row.seconds));
    const timed = items.some((row) => row.seconds !== null);
    const columns = [
      { name: "Left open", value: (row) => row.on.length + row.on.join(), cell: (row) => row.on.length ? [h(row.is_all ? "b" : "span", null, open(row).join("; ")), row.is_all ? h("span", { class: "more" }, "  this run") : null, row.is_calibrated ? null : h("span", { class: "more" }, "  not calibrated")] : h("span", { class: "soft" }, "nothing: one network") },
      ...names.map((name) => ({ name: short[name], number: true, value: (row) => row.scores[name], title: report.glossary[name].join(": "),
        cell: (row) => tipped(h("span", null, h("span", { class: row.scores[name] !== null && row.scores[name] === best[name] ? "best" : null }, texts[name][items.indexOf(row)]), h("span", { class: "more below" }, scoreTexts(name, [row.scores[name]], row.errors[name]).sure)),
          full(row.on.join(", ") || "nothing left open"), [row.scores[name] === null ? [short[name], name === "nll" ? "no density: the variance is zero" : "–"] : [short[name], number(row.scores[name], 6)]]) })),
      gaps && { name: "NLL less this run's", number: true, value: (row) => row.nll_gap, title: "With its standard error, row by row: within two of them it may be chance",
        cell: (row) => (row.is_all || row.nll_gap === null ? "–" : h("span", { class: Math.abs(row.nll_gap) > 1.96 * row.nll_gap_error ? null : "soft" }, `${row.nll_gap > 0 ? "+" : ""}${fixed(row.nll_gap, gapPlaces)} ± ${fixed(row.nll_gap_error, gapPlaces)}`)) },
      { name: "Networks", number: true, value: (row) => row.members },
      timed && { name: "CPU s", number: true, value: (row) => row.seconds, cell: (row) => seconds(row.seconds), title: "Processor seconds of training" },
      { name: "Passes a row", number: true, value: (row) => row.passes, title: "Forward passes for each row that is predicted" },
    ].filter(Boolean);
    const table = sortable(columns, items, { label: "Scores and cost of every combination", class: "combinations", mark: (row) => row.is_all, first: 20 });
    return section("combinations", "Every combination of the open choices", "Combinations",
      "One run answers for every part of its open choices; what is not left open stands at one value. The best of each column is bold, ± is one standard error. A difference within two of its standard errors may be chance, and is grey.",
      h("div", { class: "card" }, table.table, table.more, missing > 0 && h("p", { class: "note" }, `${count(missing, "combination")} could not be scored: ${why}.`)));
  }

  // ------------------------------------------------------------------ learning, outside, data, training

  function learning() {
    const { curves, members, collected_from: from } = report.learning;
    const usable = curves.filter((curve) => curve.losses.filter((loss) => loss !== null).length > 1);
    const table = membersTable();
    if (!usable.length) return table ? section("learning", "How training went", "Learning", "The losses of these networks are not known.", table) : null;
    const losses = usable.flatMap((curve) => curve.losses.filter((loss) => loss !== null));
    const [low, high] = extent(losses);
    const log = low > 0 && high / low > 8;
    const domain = log ? [low / 1.1, high * 1.1] : padded([low, high]);
    const last = Math.max(...usable.map((curve) => curve.epochs.at(-1)));
    return section("learning", "How training went", "Learning",
      `The training loss of ${members > usable.length ? `${usable.length} of ${members}` : members === 1 ? "the only" : `all ${members}`} network${members === 1 ? "" : "s"}, epoch by epoch${log ? ", on a logarithmic scale" : ""}.${from ? " Shaded: the epochs whose weights stand for the moment training stops." : ""}`,
      h("div", { class: "card" }, plot({
        label: "Training loss by epoch", height: 340,
        x: { domain: [1, Math.max(2, last)], label: "epoch" }, y: { domain, label: "training loss", log },
        draw: (x, y, area) => [from && from <= last && svg("rect", { class: "band", x: x(from), width: x(last) - x(from), y: area.top, height: area.bottom - area.top }),
          usable.map((curve, k) => svg("path", { class: `curve k${k}`, d: path(curve.epochs.map((epoch, i) => [x(epoch), y(curve.losses[i])]).filter(([, at]) => Number.isFinite(at))) }))],
        points: () => usable.flatMap((curve, k) => curve.epochs.map((epoch, i) => curve.losses[i] === null ? null : { x: epoch, y: curve.losses[i], light: `.k${k}`, title: curve.name, lines: [["epoch", number(epoch, 6)], ["loss", number(curve.losses[i], 4)]] }).filter(Boolean)),
      })), table);
  }
  function membersTable() {
    const { columns, rows: lines } = report.members;
    if (lines.length < 2) return null;
    const table = sortable(columns.map((name, j) => {
      const numeric = lines.every((line) => line[j] === null || typeof line[j] === "number");
      const whole = lines.every((line) => Number.isInteger(line[j])), text = aligned(lines.map((line) => line[j]), 4);
      return { name, number: numeric, value: (line) => line[j], cell: (line) => (numeric && !whole ? text(line[j]) : String(line[j] ?? "–")) };
    }), lines, { label: "Networks", first: 10 });
    return h("div", { class: "card" }, h("details", null, h("summary", null, `All ${lines.length} networks: draws, settings, losses and time`), table.table, table.more));
  }

  // Rows beyond the edge are marked wherever they are shown.
  const isBeyond = (row) => !!report.outside && report.outside.edge !== null && report.outside.values[row] > report.outside.edge;
  const byDistance = () => report.outside.kind === "distance";
  const beyondWord = () => (byDistance() ? "far out" : "outside");
  const beyondTitle = () => (byDistance() ? "Farther out than 95% of the training rows are from each other" : "Unlike the rows that were trained on: its prediction is a guess, however sure it looks");
  const distanceWord = () => (byDistance() ? "distance to the nearest training row" : "how far outside");
  function outside() {
    const about = report.outside;
    if (!about) return null;
    const found = view.outside, places = report.rows.drawn;
    const doubt = (row) => (isClasses ? view.points.disagreement[row] : view.points.std[row]);
    const top = Math.max(...range(report.rows.names.length).map(doubt)) * 1.06 || 1;
    const axis = isClasses ? { ...doubtAxis(top, 5), label: "disagreement of the networks, of the largest doubt possible" } : { domain: padded(extent(range(report.rows.names.length).map(doubt)), 0.08), label: `standard deviation of the prediction${report.unit ? `, ${report.unit}` : ""}` };
    const doubtText = (value) => (isClasses ? asDoubt(value, 1) : number(value));
    if (about.kind === "flag") {
      const groups = [0, 1].map((flag) => places.filter((row) => (about.values[row] > 0) === !!flag).map(doubt).sort((a, b) => a - b));
      const at = (values, q) => values.length ? values[Math.round(q * (values.length - 1))] : null;
      const text = found.auroc === null ? "All rows are of one kind, so there is nothing to tell apart." :
        `${count(found.far, "row")} ${found.far === 1 ? "is" : "are"} outside. A row from outside has more doubt than one from inside ${percent(found.auroc)} of the time: ${found.auroc > 0.9 ? "doubt finds them" : found.auroc > 0.7 ? "doubt finds many of them" : found.auroc > 0.58 ? "doubt is a weak guide to them" : "doubt does not find them"}. Half the time would be chance.`;
      return section("outside", "Rows from elsewhere", "Outside", text, h("div", { class: "card" }, plot({
        label: "Doubt of rows from inside and from outside", height: 220,
        x: axis, y: { domain: [-0.6, 1.6], ticks: [0, 1], format: (v) => (v ? "outside" : "inside") },
        draw: (x, y) => groups.map((values, g) => values.length && [
          values.map((value, i) => svg("circle", { class: g ? "miss" : "dot", cx: x(value), cy: y(g) + ((i * 7919) % 29) - 14, r: 2.6, opacity: 0.45 })),
          svg("line", { class: "guide thick", x1: x(at(values, 0.5)), x2: x(at(values, 0.5)), y1: y(g) - 22, y2: y(g) + 22 })]),
        points: () => groups.flatMap((values, g) => values.length ? [0.05, 0.25, 0.5, 0.75, 0.95].map((q) => ({ x: at(values, q), y: g, title: g ? "outside" : "inside", lines: [[`${percent(q)} have less than`, doubtText(at(values, q))], ["rows", number(values.length)]] })) : []),
      })));
    }
    const shown = [...new Set([...places, ...range(report.rows.names.length).filter(isBeyond)])];
    const distance = byDistance(), edge = about.edge, rank = found.rank;
    const link = rank === null ? "" : ` Doubt and ${distance ? "distance" : "score"} ${rank > 0.5 ? "rise together" : rank > 0.2 ? "rise together, loosely" : rank > -0.2 ? "have little to do with each other" : "go opposite ways"} (rank correlation ${fixed(rank, 2)}).`;
    const where = distance ? `${found.far === 1 ? "lies" : "lie"} farther out than 95% of the training rows do from each other` : `${found.far === 1 ? "is" : "are"} outside, beyond the edge at ${number(edge)}`;
    const far = edge === null ? "" : ` ${found.far ? count(found.far, "row") : "No row"} of ${report.rows.count.toLocaleString("en")} ${found.far ? where : distance ? "lies farther out than 95% of the training rows do from each other" : `is outside, beyond the edge at ${number(edge)}`}${found.far ? `; ${found.far_and_sure || "none"} of them ${found.far_and_sure < 2 ? "has" : "have"} less doubt than the median row. ${found.far_and_sure ? "Do not trust the latter blindly" : "The run knows that it does not know them"}` : ""}.`;
    const known = shown.map((row) => about.values[row]);
    const [low, high] = extent([...known, ...(edge === null ? [] : [edge])]);
    const positive = known.filter((value) => value > 0).sort((a, b) => a - b);
    const log = low >= 0 && positive.length > 0 && high > 30 * positive[positive.length >> 1];
    const floor = log ? Math.min(positive[0], edge > 0 ? edge : Infinity) : 0;
    const place = (row) => Math.max(log ? floor : -Infinity, about.values[row]);
    const domain = log ? [floor / 1.15, high * 1.15] : [Math.min(0, low), high + (high - Math.min(0, low)) * 0.04 || 1];
    return section("outside", "Far from what was trained on", "Outside",
      `${distance ? "Each row's distance to the nearest training row, in units of what is usual between training rows, against its doubt." : "How far outside of the training data each row is, against its doubt."}${log ? " The scale is logarithmic." : ""}${link}${far}`,
      h("div", { class: "card" },
        found.far > 0 && h("ul", { class: "legend", vars: { margin: "0" } }, h("li", null, mark("dot"), distance ? "nearer" : "inside"), h("li", null, mark("miss"), beyondWord())),
        plot({
          label: "Doubt against distance from the training rows", height: 320,
          x: { domain, log, label: distance ? "distance to the nearest training row (1 is usual)" : `how far outside${edge === null ? "" : ` (the edge is at ${number(edge)})`}` },
          y: axis,
          draw: (x, y, area) => [edge !== null && edge < domain[1] && svg("rect", { class: "band", x: Math.max(area.left, x(edge)), width: Math.max(0, area.right - Math.max(area.left, x(edge))), y: area.top, height: area.bottom - area.top }),
            shown.map((row) => dot(x(place(row)), y(doubt(row)), isBeyond(row)))],
          points: () => [...shown].sort((a, b) => about.values[a] - about.values[b]).map((row) => ({ x: place(row), y: doubt(row), title: rowTitle(row), lines: [[distance ? "distance" : "how far outside", number(about.values[row])], [isClasses ? "disagreement" : "± std", doubtText(doubt(row))]] })),
        }), edge !== null && h("p", { class: "soft small" }, distance ? "Shaded: farther out than 95% of the training rows are from each other." : "Shaded: outside.")));
  }

  function spark(column) {
    const [w, tall] = [120, 26], bins = column.here.bins.length, there = column.there;
    const top = Math.max(...column.here.bins, ...(there ? there.bins : [0])) || 1;
    const line = column.here.bins.flatMap((v, i) => [[(i * w) / bins, tall - (v / top) * (tall - 2)], [((i + 1) * w) / bins, tall - (v / top) * (tall - 2)]]);
    return svg("svg", { class: "spark", viewBox: `0 0 ${w} ${tall}`, role: "img", "aria-label": "distribution: filled where trained, line here" },
      there && there.bins.map((v, i) => svg("rect", { class: "there", x: (i * w) / bins, width: w / bins, y: tall - (v / top) * (tall - 2), height: (v / top) * (tall - 2) })),
      svg("path", { class: "here", d: path(line) }));
  }
  function data() {
    const about = report.data, known = about.trained_on !== null;
    const items = [...about.targets.map((one) => ({ ...one, target: true })), ...about.columns];
    const like = (one) => aligned([(one.there || one.here).std], 3);
    const shift = (one) => (one.there && one.there.std ? (one.here.mean - one.there.mean) / one.there.std : null);
    const columns = [
      { name: "Column", value: (one) => one.name, cell: (one) => [h("b", null, one.name), one.target ? h("span", { class: "more" }, "  to predict") : null] },
      { name: "Distribution", cell: spark },
      known && { name: "Trained on: mean ± std", number: true, value: (one) => one.there.mean, cell: (one) => `${like(one)(one.there.mean)} ± ${like(one)(one.there.std)}` },
      { name: known ? "Here: mean ± std" : "Mean ± std", number: true, value: (one) => one.here.mean, cell: (one) => `${like(one)(one.here.mean)} ± ${like(one)(one.here.std)}` },
      { name: "Here: least to most", number: true, value: (one) => one.here.low, cell: (one) => `${number(one.here.low, 4)} to ${number(one.here.high, 4)}` },
      known && { name: "Shift", number: true, value: (one) => (shift(one) === null ? null : Math.abs(shift(one))), title: "How far the mean moved, in standard deviations of the training rows", cell: (one) => h("span", { class: Math.abs(shift(one)) > 0.5 ? "far" : null }, fixed(shift(one), 2)) },
      known && { name: "Beyond", number: true, value: (one) => one.beyond, cell: (one) => percent(one.beyond, 1), title: "Rows beyond the range that was trained on" },
    ].filter(Boolean);
    const parts = [];
    if (about.counts) {
      const [here, there] = ["here", "there"].map((key) => sum(about.counts.map((one) => one[key] || 0)));
      const table = sortable([
        { name: "Class", value: (one) => one.name, cell: (one) => h("b", null, one.name) },
        about.counts.some((one) => one.there !== null) && { name: "Trained on", number: true, value: (one) => one.there, cell: (one) => `${number(one.there, 7)} (${percent(one.there / there)})` },
        { name: "Here", number: true, value: (one) => one.here, cell: (one) => `${number(one.here, 7)} (${percent(one.here / here)})` },
      ].filter(Boolean), about.counts, { label: "Classes" });
      parts.push(card("Classes", null, table.table));
    }
    if (items.length) {
      const table = sortable(columns, items, { label: "Columns", first: 14 });
      parts.push(card(about.counts ? "Columns" : null, null, table.table, table.more, about.left_out > 0 && h("p", { class: "soft small" }, `${about.left_out} further columns are not listed.`)));
    }
    const shape = about.columns.length ? `${count(about.shape[0], "column")}` : `each of shape ${about.shape.join(" × ")}`;
    return section("data", "The data", "Data",
      `${count(report.rows.count, "row")} here, ${shape}${known ? `; trained on ${about.trained_on.toLocaleString("en")}` : ""}.${items.length && known ? " Filled: where it was trained; line: here." : ""}`, parts);
  }

  function trained() {
    const about = report.trained;
    return section("trained", "What was trained", "Training", null,
      h("div", { class: "card" }, h("dl", { class: "facts wide", vars: { margin: "0" } }, about.facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value.includes("(") ? h("code", null, value) : value))))),
      about.variables.length > 0 && card("Choices that were left open", null, h("dl", { class: "facts wide" }, about.variables.map((one) =>
        h("div", null, h("dt", null, h("b", null, one.meaning), " ", symbol(one.name)), h("dd", { class: "small" }, `${one.how}, by `, h("code", null, one.what)))))),
      h("div", { class: "card" }, h("details", null, h("summary", null, about.models.length > 1 ? "The models" : "The model"), about.models.map(([name, text]) => [name && h("h3", null, name), h("pre", null, text)]))));
  }

  function wordlist() {
    return section("words", "What the words mean", "Words", null, h("div", { class: "card" }, h("details", { id: "glossary" }, h("summary", null, "Scores and other words of this page"),
      h("dl", { class: "glossary" }, Object.values(report.glossary).map(([called, text]) => h("div", null, h("dt", null, called), h("dd", null, text)))))));
  }

  function foot() {
    return h("footer", null,
      h("p", null, `${isClasses ? "" : "Intervals and NLL read the mixture of networks as a Gaussian with its mean and variance. "}± are standard errors.`),
      h("p", null, "Shares describe this model, this data and the distributions that were given. A choice that was not left open has no line; it is not thereby innocent."),
      h("p", null, `Made by Wherefrom ${report.wherefrom} on ${report.made}${report.trained.variables.length ? `, with ${report.samples} samples a network` : ""}.`));
  }

  // ------------------------------------------------------------------ paper

  // On paper nothing can be opened: all that folds is open while it prints, and plots are drawn for its width.
  function unfold(open) {
    if (open === (opened !== null)) return;
    tables.forEach((own) => own(open));
    if (open) {
      opened = [...main.querySelectorAll("details:not([open])")];
      opened.forEach((one) => { one.open = true; });
    } else {
      opened.forEach((one) => { one.open = false; });
      opened = null;
    }
    plots.forEach((draw) => draw());
  }
  const paper = matchMedia("print");
  paper.addEventListener("change", () => unfold(paper.matches));
  addEventListener("beforeprint", () => unfold(true));
  addEventListener("afterprint", () => unfold(false));

  // ------------------------------------------------------------------ all of it

  function show(place) {
    view = report.views[place];
    plots.length = 0;
    sections.length = 0;
    tables.length = 0;
    pickColours();
    const parts = [doubt, rows, predictions, calibration, combinations, outside, learning, data, trained, wordlist].map((part) => part());
    const [nav, watch] = navigation();
    main.replaceChildren(head(), nav, ...hero().flat(), ...parts.filter(Boolean), foot());
    plots.forEach((draw) => draw());
    watch();
  }
  show(0);
})();
