// Elements, the document, and the tooltip. Whatever comes from the document is put in as text, never as HTML.

export const report = JSON.parse(document.getElementById("document").textContent);
export const main = document.getElementById("main");
export const live = document.getElementById("live");
export const page = { view: null, isPaper: false }; // the output that is shown; whether it is being printed

function add(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}
export const h = (tag, attributes, ...children) => add(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) =>
  add(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
export const classes = (...names) => names.filter(Boolean).join(" ") || null;
export const range = (n) => Array.from({ length: n }, (_, i) => i);
export const sum = (values) => values.reduce((all, one) => all + one, 0);

// ------------------------------------------------------------------ the tooltip

const box = document.getElementById("tip");
let follow = null; // gives the position of a tip that a key has called, when the page scrolls

export function hideTip() {
  box.hidden = true;
  follow = null;
}
function placeTip(x, y) {
  const { width, height } = box.getBoundingClientRect();
  const left = x + 16 + width > innerWidth - 8 ? x - width - 14 : x + 16;
  const top = y + 16 + height > innerHeight - 8 ? y - height - 12 : y + 16;
  box.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  box.style.top = `${Math.max(8, top)}px`;
}
// lines: strings, or pairs of a name and a value; where: gives the position, and is asked again if the tip is to follow.
export function showTip(where, { title, lines }, follows) {
  const line = (one) => (typeof one === "string" ? h("p", null, one) : h("div", null, one.map((part) => h("span", null, part))));
  box.replaceChildren(...(title ? [h("b", null, title)] : []), ...lines.map(line));
  box.hidden = false;
  follow = follows ? where : null;
  placeTip(...where());
}
export const spoken = ({ title, lines }) => [title, ...lines.map((line) => [line].flat().join(" "))].filter(Boolean).join(", ");
// Anything that is not a plot: values on hover, and on focus.
export function tipped(element, title, lines) {
  const middle = () => {
    const { x, width, bottom } = element.getBoundingClientRect();
    return [x + width / 2, bottom];
  };
  const show = (event) => {
    const isKey = event.clientX === undefined;
    showTip(isKey ? middle : () => [event.clientX, event.clientY], { title, lines }, isKey);
  };
  for (const name of ["pointerenter", "pointermove", "focus"]) element.addEventListener(name, show);
  for (const name of ["pointerleave", "blur"]) element.addEventListener(name, hideTip);
  return element;
}
// A word that the glossary explains, on hover and on focus.
export function term(name, text) {
  const [called, about] = report.glossary[name];
  return tipped(h("span", { class: "term", tabindex: 0 }, text || called), called, [about]);
}
addEventListener("scroll", () => (follow ? placeTip(...follow()) : hideTip()), { passive: true });
addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
