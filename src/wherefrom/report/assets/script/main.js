// The page: its head, its navigation, and all sections of the output that is chosen.
import { h, main, page, report, term } from "./dom.js";
import { count } from "./format.js";
import { plots } from "./plot.js";
import { foot, hero, links, sections } from "./sections.js";
import { pickColours } from "./sources.js";
import { tables } from "./table.js";

const MODES = { auto: "as the system", light: "light", dark: "dark" };
function themeButton() {
  const button = h("button", { type: "button", class: "pill", id: "theme" });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let mode = "auto";
  try { mode = localStorage.getItem("wherefrom-theme") || "auto"; } catch { /* files may not remember */ }
  const apply = () => {
    document.documentElement.dataset.theme = mode === "auto" ? (dark.matches ? "dark" : "light") : mode;
    button.textContent = `Colours: ${MODES[mode]}`;
  };
  button.addEventListener("click", () => {
    const modes = Object.keys(MODES);
    mode = modes[(modes.indexOf(mode) + 1) % modes.length];
    try { localStorage.setItem("wherefrom-theme", mode); } catch { /* nor here */ }
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
  return button;
}

function head() {
  const networks = report.trained.facts.find(([name]) => name === "networks");
  const open = report.trained.variables.map((variable) => variable.meaning);
  const outputs = report.views.length > 1 && h("select", { id: "output", "aria-label": "Output to look at", onchange: (event) => show(Number(event.target.value)) },
    report.views.map((one, i) => h("option", { value: i, selected: one === page.view }, `Output: ${one.name}`)));
  return h("header", null,
    h("div", null, h("h1", null, report.title),
      h("p", null, `${count(Number(networks[1]), "network")}, scored on ${count(report.rows.count, "row")}. `, term("open"), `: ${open.join(", ") || "nothing"}.`)),
    h("div", { class: "choices" }, outputs, themeButton()));
}

function navigation() {
  const anchors = links.map(([id, name]) => h("a", { href: `#${id}` }, name));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      for (const anchor of anchors) {
        if (anchor.getAttribute("href") === `#${entry.target.id}`) anchor.setAttribute("aria-current", "true");
        else anchor.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  const watch = () => main.querySelectorAll("section").forEach((one) => seen.observe(one));
  return [h("nav", { "aria-label": "Sections" }, h("ul", null, anchors.map((anchor) => h("li", null, anchor)))), watch];
}

// On paper nothing can be opened: all that folds is open while it prints, and plots are drawn for its width.
function unfold(open) {
  if (open === (page.opened !== null)) return;
  tables.forEach((one) => one(open));
  const folded = open ? [...main.querySelectorAll("details:not([open])")] : page.opened;
  folded.forEach((one) => { one.open = open; });
  page.opened = open ? folded : null;
  plots.forEach((draw) => draw());
}
const paper = matchMedia("print");
paper.addEventListener("change", () => unfold(paper.matches));
addEventListener("beforeprint", () => unfold(true));
addEventListener("afterprint", () => unfold(false));

function show(index) {
  page.view = report.views[index];
  for (const list of [plots, links, tables]) list.length = 0;
  pickColours();
  const parts = sections.map((part) => part());
  const [nav, watch] = navigation();
  main.replaceChildren(head(), nav, ...hero().flat(), ...parts.flat().filter(Boolean), foot());
  plots.forEach((draw) => draw());
  watch();
}
show(0);
