/* The form that asks a release for a statistic, the question before it is debited, and its answer. */

import { post, releasePath } from "./calls.js";
import { ofNumbers, targets } from "./columns.js";
import { confirmFirst } from "./dialogs.js";
import { actions, button, facts, faultBox, make, part } from "./elements.js";
import { field, form, numberInput, numberOf, select, textInput, valueOf } from "./forms.js";
import { cell, rowHead, table } from "./tables.js";
import { count, number, SPACE, STATISTICS } from "./words.js";

const COLUMNS_FOR = { count: (column) => column.categories !== null, histogram: () => true };

export function statisticPart(context) {
  const { release } = context;
  const fault = faultBox();
  const result = make("div", { "aria-live": "polite" });
  const kinds = Object.entries(STATISTICS).filter(([name]) => release.columns.some(COLUMNS_FOR[name] || ofNumbers));
  const statistic = select("statistic", kinds, kinds[0] && kinds[0][0]);
  const column = make("select", { name: "column", required: true });
  const extra = make("div", { class: "field" });
  const epsilon = numberInput("epsilon", String(Math.min(0.1, release.left.epsilon || 0.1)),
    { min: "0.000001", max: "1000" });
  const columnOf = () => release.columns.find((one) => one.name === column.value);
  const changeColumn = () => extra.replaceChildren(...statisticExtra(statistic.value, columnOf()));
  const changeStatistic = () => {
    const names = targets(release.columns, COLUMNS_FOR[statistic.value] || ofNumbers);
    const before = names.includes(column.value) ? column.value : names[0];
    column.replaceChildren(...names.map((name) => make("option", { value: name, selected: name === before }, name)));
    changeColumn();
  };
  statistic.addEventListener("change", changeStatistic);
  column.addEventListener("change", changeColumn);
  changeStatistic();
  const filling = form("statistic-form", (filled) => {
    fault.textContent = "";
    const asked = statisticOf(filled, columnOf());
    if (typeof asked === "string") fault.textContent = asked;
    else confirmStatistic(context, asked, result);
  }, make("div", { class: "fields" }, field("Statistic", statistic), field("Column", column), extra,
    field("Epsilon", epsilon, "More of it means less noise.")), fault,
    actions(button("Ask", "ask-button", null, "primary")));
  filling.className = "panel";
  return part("Ask for a statistic", null, make("p", { class: "soft" },
    "You see what it costs before anything is debited."), filling, result);
}

function statisticExtra(statistic, column) {
  if (statistic === "count") {
    const options = column.categories.map((value, index) => [String(index), String(value)]);
    return [field("Equal to", select("equals", options, "0"))];
  }
  if (statistic === "quantile") return [field("Quantile", numberInput("q", "0.5", { min: "0.001", max: "0.999" }),
    "Between 0 and 1; 0.5 is the median.")];
  if (statistic === "histogram" && !column.categories) {
    return [field("Edges", textInput("edges", { value: edgesOf(column.bounds).join(" "), required: true }),
      "Numbers that grow, with spaces between.")];
  }
  return [];
}

function edgesOf([low, high]) {
  return [0, 1, 2, 3, 4, 5].map((step) => Number((low + (step / 5) * (high - low)).toPrecision(4)));
}

/** The request, or a sentence that says why it cannot be one. */
function statisticOf(filled, column) {
  const asked = { statistic: valueOf(filled, "statistic"), column: valueOf(filled, "column"),
    epsilon: numberOf(filled, "epsilon") };
  if (filled.elements.equals) asked.equals = column.categories[numberOf(filled, "equals")];
  if (filled.elements.q) asked.q = numberOf(filled, "q");
  if (filled.elements.edges) {
    asked.edges = valueOf(filled, "edges").split(/[\s,;]+/).filter(Boolean).map(Number);
    const grow = asked.edges.every((edge, index) => Number.isFinite(edge)
      && (index === 0 || edge > asked.edges[index - 1]));
    if (!grow || asked.edges.length < 2) {
      return "The edges must be two numbers or more, each larger than the one before, with spaces between.";
    }
  }
  return asked;
}

function statisticTitle(asked) {
  if (asked.statistic === "count") return `Count of ${asked.column} = ${asked.equals}`;
  if (asked.statistic === "quantile") return `Quantile ${number(asked.q)} of ${asked.column}`;
  return `${STATISTICS[asked.statistic]} of ${asked.column}`;
}

function confirmStatistic(context, asked, result) {
  const { release } = context;
  const after = Number((release.left.epsilon - asked.epsilon).toPrecision(12));
  const rest = after >= 0 ? `epsilon ${number(after)} of ${number(release.epsilon)}`
    : `not enough: only epsilon ${number(release.left.epsilon)} is left, so a new question will be refused`;
  confirmFirst({
    test: "statistic-dialog", title: `${statisticTitle(asked)}?`,
      action: `Debit epsilon ${number(asked.epsilon)} and ask`, running: "Asking\u2026",
    content: [
      facts([["To be debited", `epsilon ${number(asked.epsilon)}`, "debit"],
        ["Left of this release afterwards", rest, "left-afterwards"]]),
      make("p", { class: "note" },
        "A question that was asked before, by anybody, with the same epsilon, has the same answer and costs " +
        "nothing. What is debited never comes back."),
    ],
    work: async () => {
      const answer = await post(`${releasePath(release.id)}/statistic`, asked);
      result.replaceChildren(statisticBox(asked, answer));
      await context.refresh();
    },
  });
}

function statisticBox(asked, answer) {
  const many = Array.isArray(answer.value);
  const cost = answer.asked_before ? "It was asked before: nothing was debited."
    : `Epsilon ${number(asked.epsilon)} was debited.`;
  return make("div", { class: "answer", "data-test": "statistic" },
    make("p", { class: "value" }, many ? statisticTitle(asked) : oneValue(asked, answer)),
    many ? binTable(answer) : null,
    make("p", { "data-test": "statistic-width" }, widthText(answer.half_width_95, many)),
    make("p", { "data-test": "statistic-cost" }, cost));
}

function oneValue(asked, answer) {
  const width = answer.half_width_95;
  return [make("small", {}, `${statisticTitle(asked)}: `),
    make("span", { "data-test": "statistic-value" }, number(answer.value)),
    width === null ? null : make("small", {}, ` \u00b1 ${number(width)}`)];
}

function widthText(width, many) {
  if (width === null) return "The noise of this statistic has no width that could be told beforehand.";
  const what = many ? "each number" : "it";
  return `With a chance of 95${SPACE}%, the noise has moved ${what} by no more than ${number(width)}.`;
}

function binTable(answer) {
  const most = Math.max(1, ...answer.value);
  const rows = answer.value.map((value, index) => {
    const bar = make("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${(Math.max(0, value) / most) * 100}%`;
    return make("tr", {}, rowHead(answer.bins ? answer.bins[index] : String(index + 1)),
      cell(count(value), "number"), cell(bar));
  });
  const box = table("Bins", [["Bin"], ["Count", "number"], [make("span", { class: "unseen" }, "Bar")]], rows, "");
  box.classList.add("bins");
  box.setAttribute("data-test", "statistic-value");
  return box;
}
