// The parts of Observable Plot, and of d3, that the report's script uses. All else is left out of the file.
export { areaY, axisX, axisY, dot, gridY, line, link, plot, rect, ruleX, ruleY } from "@observablehq/plot";
export { ticks } from "d3";
