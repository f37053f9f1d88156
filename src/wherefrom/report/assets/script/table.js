// Tables that sort, by typed columns.
import { classes, h, live, report, tipped } from "./dom.js";
import { aligned, count, fixed, text, whole } from "./format.js";

// columns: {name, value(item), cell(item, toggle), number, wide, title, hidden: to sort by alone};
// about: label, class, sort [column, descending], first, detail(item), mark(item), sorted(column)
export function sortable(columns, items, about) {
  let [by, descending] = about.sort || [null, false];
  let shown = about.first || Infinity;
  let kept = items;
  const seen = columns.filter((column) => !column.hidden);
  const kind = (column) => classes(column.number && "number", column.wide && "wide");
  const heads = seen.map((column) => {
    const sorts = () => sort(columns.indexOf(column), columns[by] === column ? !descending : !!column.number);
    const button = h("button", { type: "button", title: column.title, onclick: sorts }, column.name);
    return h("th", { scope: "col", role: "columnheader", class: kind(column), "data-name": column.value && column.name },
      column.value ? button : h("span", null, column.name));
  });
  const body = h("tbody", { role: "rowgroup" });
  const more = h("div", { class: "more-rows" });
  const table = h("table", { class: classes("stacks", about.class), role: "table" },
    h("caption", { class: "unseen" }, about.label), h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body);

  function sort(index, down) {
    [by, descending] = [index, down];
    live.textContent = `Sorted by ${columns[index].name}, ${down ? "largest" : "smallest"} first`;
    if (about.sorted) about.sorted(index);
    fill();
  }
  function only(test) {
    kept = items.filter(test);
    live.textContent = `${count(kept.length, "row")} found`;
    fill();
  }
  function ordered() {
    if (by === null) return kept;
    const { value } = columns[by];
    const isKnown = (item) => value(item) !== null && value(item) !== undefined;
    const compare = (p, q) => (typeof p === "string" ? p.localeCompare(q, "en", { numeric: true }) : p - q);
    const first = kept.filter(isKnown).sort((a, b) => compare(value(a), value(b)) * (descending ? -1 : 1));
    return [...first, ...kept.filter((item) => !isKnown(item))];
  }
  function fill() {
    heads.forEach((head, i) => {
      if (seen[i] === columns[by]) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren(...ordered().slice(0, shown).map(row));
    more.replaceChildren();
    if (!kept.length) more.append(h("span", { class: "soft small" }, "No row has this."));
    else if (about.first && items.length > about.first) {
      const which = kept.length < items.length ? " that were found" : "";
      more.append(h("span", { class: "soft small" }, `${Math.min(shown, kept.length)} of ${whole(kept.length)}${which}`));
      const next = () => {
        shown += 25;
        fill();
      };
      if (shown < kept.length) more.prepend(h("button", { type: "button", class: "pill", onclick: next }, "Show more"));
    }
  }
  function row(item) {
    // A narrow page stacks the cells, each below its column's name.
    const cells = seen.map((column) => h("td", { role: "cell", class: kind(column), "data-label": column.name }, column.cell ? column.cell(item, toggle) : String(column.value(item) ?? "–")));
    const line = h("tr", { role: "row", class: about.mark && about.mark(item) ? "best" : null }, cells);
    let detail = null;
    function toggle(event) {
      if (detail) detail.remove();
      detail = detail ? null : h("tr", { class: "detail" }, h("td", { colspan: seen.length }, about.detail(item)));
      if (detail) line.after(detail);
      event.currentTarget.setAttribute("aria-expanded", String(!!detail));
    }
    return line;
  }
  fill();
  return { table, more, sort, only };
}

const capital = (name) => name[0].toUpperCase() + name.slice(1);
// A column by its field: get(item) is its value, `like` all values that share its decimals, isFar(item) marks it.
export function typed(field, get, like, isFar = () => false) {
  const isText = field.as === "label" || field.as === "text";
  const places = field.as === "number" && field.decimals === undefined ? aligned(like, field.digits) : null;
  const value = (item) => {
    const one = get(item);
    return field.as === "label" && one !== null ? field.labels[one] : field.size && one !== null ? Math.abs(one) : one;
  };
  const cell = (item) => {
    const written = places ? places(get(item)) : text(field, get(item));
    const element = h(field.strong ? "b" : "span", { class: isFar(item) ? "far" : null }, written);
    if (!field.also || get(item) === null) return element;
    const { first, name, times, decimals, unit } = field.also;
    return tipped(element, null, [[first, written], [name, fixed(get(item) * times, decimals) + unit]]);
  };
  const title = field.title || (field.term ? report.glossary[field.term][1] : null);
  return { name: field.head || capital(field.name), number: !isText || !!field.right, title, value, cell };
}

// A table of plain values: numbers are aligned, whole ones are left as they are.
export function plainTable(names, lines, digits, about) {
  return sortable(names.map((name, j) => {
    const values = lines.map((line) => line[j]);
    const isNumber = values.every((value) => value === null || typeof value === "number");
    const write = isNumber && !values.every(Number.isInteger) ? aligned(values, digits) : (value) => String(value ?? "–");
    return { name, number: isNumber, value: (line) => line[j], cell: (line) => write(line[j]) };
  }), lines, about);
}
