// The page: its head, its navigation, and all parts of the output that is chosen.
import { h, main, page, report } from "./dom.js";
import { count } from "./format.js";
import { plots } from "./plot.js";
import { foot, links, parts } from "./sections.js";
import { hatch, pickColours } from "./sources.js";

const MODES = { auto: "system", light: "light", dark: "dark" };
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
  const outputs = report.views.length > 1 && h("select", { id: "output", "aria-label": "Output to look at", onchange: (event) => show(Number(event.target.value)) },
    report.views.map((one, i) => h("option", { value: i, selected: one === page.view }, `Output: ${one.name}`)));
  return h("header", null, h("div", null, h("h1", null, report.title), h("p", null, `${report.subtitle} ${count(report.rows.count, "row")}, ${report.trained.by}.`.trim())),
    h("div", { class: "choices" }, outputs, themeButton()));
}

function navigation() {
  const anchors = links.map(([id, name]) => h("a", { href: `#${id}`, onclick: () => { if (id === "technical") document.getElementById(id).open = true; } }, name));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      for (const anchor of anchors) {
        if (anchor.getAttribute("href") === `#${entry.target.id}`) anchor.setAttribute("aria-current", "true");
        else anchor.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  const watch = () => links.forEach(([id]) => seen.observe(document.getElementById(id)));
  return [h("nav", { "aria-label": "Parts" }, h("ul", null, anchors.map((anchor) => h("li", null, anchor)))), watch];
}

// Plots are drawn for the width of the paper. What is folded stays folded.
function print(isPaper) {
  if (isPaper === page.isPaper) return;
  page.isPaper = isPaper;
  plots.forEach((draw) => draw());
}
const paper = matchMedia("print");
paper.addEventListener("change", () => print(paper.matches));
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));

function show(index) {
  page.view = report.views[index];
  plots.length = 0;
  pickColours();
  const [nav, watch] = navigation();
  main.replaceChildren(head(), nav, hatch(), ...parts.map((part) => part()), foot());
  plots.forEach((draw) => draw());
  watch();
}
show(0);
