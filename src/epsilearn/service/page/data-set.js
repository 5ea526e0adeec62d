/* The place of one data set: its budget, its releases, what was spent, what is public about its columns. */

import { shownBudget } from "./budget.js";
import { dataSetPath, get } from "./calls.js";
import { actions, button, make, moment, part, state } from "./elements.js";
import { startOpening } from "./open-release.js";
import { refreshButton, releaseAddress, trail } from "./places.js";
import { spendingPlot } from "./plot.js";
import { isHolder } from "./session.js";
import { cell, rowHead, table } from "./tables.js";
import { KINDS, NOTHING, count, number, percent, several } from "./words.js";

export async function dataSetView(name) {
  const details = await get(dataSetPath(name));
  return [
    trail(["#/", "Data sets"]),
    make("div", { class: "heading" }, make("h1", {}, details.name),
      actions(refreshButton(), openReleaseButton(details))),
    make("p", { class: "soft" }, `${several(details.rows, "row", "rows")}, registered by ${details.who}, `,
      moment(details.created),
      details.balance.rows_per_person > 1 ? `; up to ${details.balance.rows_per_person} rows for one person` : ""),
    part("Budget", null, shownBudget(details.name, details.balance), spendingPlot(details)),
    part("Releases", null, releaseTable(details)),
    part("What was spent", null, spendingTable(details)),
    part("What is public about its columns", null, columnTable(details.columns)),
  ];
}

function openReleaseButton(details) {
  return isHolder() ? button("Open a release", "open-release-open", () => startOpening(details), "primary") : null;
}

function releaseTable(details) {
  const rows = details.releases.map((release) => {
    const link = make("a", { href: releaseAddress(release.id), "data-test": "release-link" },
      KINDS[release.kind].name);
    return make("tr", { "data-test": "release-row", "data-release": release.id },
      make("th", { scope: "row" }, link, release.note ? make("div", { class: "soft" }, release.note) : null),
      cell(release.target === null ? NOTHING : release.target, "text"), cell(state(release.status)),
      cell(number(release.epsilon), "number"), cell(number(release.delta), "number"), cell(release.who),
        cell(moment(release.created)));
  });
  const heads = [["Kind"], ["Target"], ["Status"], ["Epsilon", "number"], ["Delta", "number"], ["By"], ["Opened"]];
  return table("Releases", heads, rows, isHolder() ? "Nothing has been opened yet."
    : "Nothing has been opened yet; a data holder does that.");
}

function spendingTable(details) {
  const rows = [...details.spending].reverse().map((debit) => make("tr",
    { "data-test": "spending-row", "data-entry": debit.entry },
    cell(moment(debit.time)), cell(debit.purpose, "text"), cell(debit.who), cell(number(debit.epsilon), "number"),
    cell(number(debit.delta), "number"), cell(percent(debit.used), "number"), cell(state(debit.status))));
  const heads = [["When"], ["For what"], ["By"], ["Epsilon", "number"], ["Delta", "number"],
    ["Used after", "number"], ["Status"]];
  const shown = table("What was spent", heads, rows, "Nothing yet.");
  if (details.spending.length >= details.balance.debits) return shown;
  return make("div", {}, make("p", { class: "soft" }, `The newest ${count(details.spending.length)} of ` +
    `${count(details.balance.debits)} debits, here and in the plot.`), shown);
}

function columnTable(columns) {
  const rows = columns.map((column) => make("tr", { "data-test": "column-row", "data-column": column.name },
    rowHead(column.name), cell(columnText(column), "text"),
      cell(column.missing === null ? "not allowed" : `counts as ${column.missing}`, "brief")));
  return table("Columns", [["Column"], ["Values"], ["Missing values"]], rows,
    "Its columns are numbered and have no names.");
}

function columnText(column) {
  if (column.categories) return column.categories.map(String).join(", ");
  return column.bounds ? `numbers from ${number(column.bounds[0])} to ${number(column.bounds[1])}` : NOTHING;
}
