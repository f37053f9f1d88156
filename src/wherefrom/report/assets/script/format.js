// Numbers as text, and the fields by which the document says how its columns are written.
import { page, report } from "./dom.js";

const isMissing = (value) => value === null || value === undefined || !Number.isFinite(value);
const minus = (written) => written.replace("-", "−");
const decimal = (value, places) =>
  minus(value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }));

export function number(value, digits = 3) {
  if (isMissing(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return minus(value.toExponential(Math.max(0, digits - 2)));
  if (size >= 10 ** (digits - 1)) return minus(Math.round(value).toLocaleString("en"));
  return minus(String(Number(value.toPrecision(digits))));
}
export const fixed = (value, digits) => (isMissing(value) ? "–" : minus(value.toFixed(digits)));
export const whole = (value) => value.toLocaleString("en");
export const count = (n, one, many) => `${whole(n)} ${n === 1 ? one : many || `${one}s`}`;
export function percent(value, digits = 0) {
  if (isMissing(value)) return "–";
  if (value > 0 && value < 0.5 * 10 ** (-2 - digits)) return `<${(10 ** -digits).toFixed(digits)}%`;
  return `${(100 * value).toFixed(digits)}%`;
}
// As many decimals as tell different values apart, between `least` and `most`; of very many values, the least.
function apart(values, write, least, most) {
  const all = [...new Set(values.filter(Number.isFinite))];
  if (all.length > 40) return least;
  for (let places = least; places < most; places++) {
    if (new Set(all.map((value) => write(value, places))).size === all.length) return places;
  }
  return most;
}
export function percents(values) {
  const places = apart(values, percent, 0, 1);
  return (value) => percent(value, places);
}
// The same number of decimals for a whole column: as many as its largest value needs, and tell its values apart.
export function aligned(values, digits = 3) {
  const top = Math.max(...values.filter(Number.isFinite).map(Math.abs), 0);
  if (top >= 1e7 || (top && top < 1e-3)) return (value) => number(value, digits);
  const least = Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(top || 1))));
  const places = apart(values, fixed, least, least + 2);
  return (value) => (isMissing(value) ? "–" : decimal(value, places));
}
// Values of one score, with the decimals that the error of the first allows and that tell them apart; and that error.
export function scoreTexts(name, values, sure) {
  const [times, sign] = report.scores[name].is_percent ? [100, "%"] : [1, ""];
  const error = sure && sure.error ? sure.error * times : null;
  const top = Math.max(...values.filter(Number.isFinite).map((value) => Math.abs(value * times)), 0);
  const byTop = sign ? 1 : 3 - Math.floor(Math.log10(top || 1));
  const least = Math.max(0, Math.min(sign ? 1 : 6, error === null ? byTop : 1 - Math.floor(Math.log10(error))));
  const write = (value, places) => (isMissing(value) ? "–" : decimal(value * times, places) + sign);
  const places = apart(values, write, least, Math.min(6, least + (values.length > 4 ? 1 : 3)));
  let reach = error === null ? "" : ` ± ${write(error / times, places)}`;
  if (sure && sure.interval) {
    const [low, high] = sure.interval.map((end) => write(end, sign ? 0 : 2));
    reach = ` (${low.replace("%", "")} to ${high})`;
  }
  return { texts: values.map((value) => write(value, places)), sure: reach };
}

// ------------------------------------------------------------------ columns of rows

const shared = (part) => (report.outside ? report.outside[part] : {});
export const column = (key) => page.view.points[key] || shared("points")[key];
export const fieldOf = (key) => page.view.fields[key] || shared("fields")[key];

// A value as its field says: outside of tables, with its unit.
export function text(field, value) {
  const unit = field.unit || "";
  if (value === null || value === undefined) return "–";
  if (field.as === "label") return field.labels[value];
  if (field.as === "percent") return percent(value, field.decimals ?? 1);
  if (field.as === "count") return `${number(value, 7)} (${percent(value / field.of)})`;
  if (field.as === "text") return String(value);
  return (field.decimals === undefined ? number(value, field.digits) : fixed(value, field.decimals)) + unit;
}
export function textOf(key, row) {
  const field = fieldOf(key);
  if (field.as !== "range") return text(field, column(key)[row]);
  const [low, high] = field.of.map((end) => number(column(end)[row], field.digits));
  return `${low} to ${high}${field.unit || ""}`;
}
export const rowTitle = (row) => (report.rows.are_named ? report.rows.names[row] : `Row ${report.rows.names[row]}`);
export const rowTip = (keys, row) => ({ title: rowTitle(row), lines: keys.map((key) => [fieldOf(key).name, textOf(key, row)]) });
