/* The plot of what was spent over time. */

import { draw, make, nextNumber } from "./elements.js";
import { percent, price, several } from "./words.js";

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [
  SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR,
    2 * HOUR, 6 * HOUR, 12 * HOUR,
  DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 180 * DAY, 365 * DAY, 5 * 365 * DAY,
];

/** The share of the budget that was used, over time. Drawn at its real width, so that its text keeps its size. */
export function spendingPlot(details) {
  const box = make("div", { "data-test": "spending-plot" });
  const paint = () => box.replaceChildren(spendingDrawing(details, Math.max(280, box.clientWidth || 640)));
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth === width || !box.isConnected) return;
    width = box.clientWidth;
    paint();
  }).observe(box);
  const caption = details.spending.length
    ? "Each step is a debit. At the dashed line nothing more can be released, by anybody."
    : "Nothing has been debited yet.";
  return make("figure", {}, box, make("figcaption", {}, caption));
}

function spendingDrawing(details, width) {
  const height = 230, left = 46, right = width - 12, top = 30, bottom = height - 44;
  const times = details.spending.map((debit) => Date.parse(debit.time));
  const start = Math.min(Date.parse(details.created), ...times);
  const end = Math.max(Date.now(), start + MINUTE, ...times);
  const across = (time) => left + ((time - start) / (end - start)) * (right - left);
  const up = (share) => bottom - Math.min(1, share) * (bottom - top);
  const which = nextNumber();
  const titles = { title: `plot-title-${which}`, desc: `plot-desc-${which}` };
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-labelledby": `${titles.title} ${titles.desc}` },
    draw("title", { id: titles.title }, `Budget of ${details.name} used over time`),
    draw("desc", { id: titles.desc }, plotDescription(details)),
    shareAxis(left, right, up), timeAxis(start, end, across, bottom, width),
    spendingCurve(details.spending, times, [start, end], across, up));
}

function plotDescription(details) {
  const last = details.spending[details.spending.length - 1];
  if (!last) return "No debits so far: 0 % used.";
  const debits = several(details.spending.length, "debit", "debits");
  return `${debits}; ${percent(last.used)} used after the last one, ${new Date(last.time).toLocaleString()}.`;
}

function shareAxis(left, right, up) {
  const lines = [0.25, 0.5, 0.75].map((share) => draw("line",
    { class: "grid", x1: left, x2: right, y1: up(share), y2: up(share) }));
  const labels = [0, 0.5, 1].map((share) => draw("text", { x: left - 8, y: up(share) + 4, "text-anchor": "end" },
    percent(share)));
  return draw("g", {}, lines, labels,
    draw("line", { class: "limit", x1: left, x2: right, y1: up(1), y2: up(1) }),
    draw("text", { class: "mark", x: right, y: up(1) - 8, "text-anchor": "end" }, "the whole budget"),
    draw("text", { x: 0, y: up(1) - 16 }, "share used"));
}

function timeAxis(start, end, across, bottom, width) {
  const step = STEPS.find((one) => (end - start) / one <= Math.floor(width / 110)) || STEPS[STEPS.length - 1];
  const shift = new Date(start).getTimezoneOffset() * MINUTE; // ticks at round local times
  const marks = [];
  for (let time = Math.ceil((start - shift) / step) * step + shift; time <= end; time += step) {
    const place = across(time);
    marks.push(draw("line", { class: "axis", x1: place, x2: place, y1: bottom, y2: bottom + 5 }));
    // A label at the very edge would be cut off.
    if (place < across(start) - 1 || place > width - 36) continue;
    marks.push(draw("text", { x: place, y: bottom + 19, "text-anchor": "middle" }, tickText(time, step)));
  }
  return draw("g", {}, marks,
    draw("line", { class: "axis", x1: across(start), x2: across(end), y1: bottom, y2: bottom }),
    draw("text", { x: (across(start) + across(end)) / 2, y: bottom + 38, "text-anchor": "middle" },
      timeTitle(start, end)));
}

function tickText(time, step) {
  const date = new Date(time);
  if (step < MINUTE) return date.toLocaleTimeString(undefined, { timeStyle: "medium" });
  if (step < DAY) return date.toLocaleTimeString(undefined, { timeStyle: "short" });
  if (step < 90 * DAY) return date.toLocaleDateString(undefined, { day: "numeric", month: "short" });
  return date.toLocaleDateString(undefined, { month: "short", year: "numeric" });
}

function timeTitle(start, end) {
  const day = (time) => new Date(time).toLocaleDateString(undefined, { dateStyle: "medium" });
  return day(start) === day(end) ? `time, ${day(start)}` : `time, ${day(start)} to ${day(end)}`;
}

function dotText(debit) {
  return `${debit.purpose}: ${price(debit.epsilon, debit.delta)}; ${percent(debit.used)} used after it`;
}

function spendingCurve(spending, times, [start, end], across, up) {
  let path = `M${across(start)},${up(0)}`;
  spending.forEach((debit, index) => { path += `H${across(times[index])}V${up(debit.used)}`; });
  path += `H${across(end)}`;
  // Beyond some number dots would only hide the line.
  const dots = spending.length > 30 ? [] : spending.map((debit, index) =>
    draw("circle", { class: "dot", cx: across(times[index]), cy: up(debit.used), r: 4 },
      draw("title", {}, dotText(debit))));
  return draw("g", {}, draw("path", { class: "band", d: `${path}V${up(0)}Z` }),
    draw("path", { class: "curve", d: path }), dots);
}
