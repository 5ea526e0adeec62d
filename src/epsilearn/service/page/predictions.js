/* The form that asks a release for one prediction, and its answer. */

import { whileBusy } from "./busy.js";
import { post, releasePath } from "./calls.js";
import { twoClasses } from "./columns.js";
import { actions, button, faultBox, make, part } from "./elements.js";
import { choice, field, form, numberInput, select } from "./forms.js";
import { number } from "./words.js";

export function predictionPart(context) {
  const { release } = context;
  const fault = faultBox();
  const result = make("div", { "aria-live": "polite" });
  const pressed = button("Predict", "predict-button", null, "primary");
  const inputs = release.columns.map(pointField);
  const filling = form("predict-form", () => whileBusy(pressed, "Asking\u2026", fault, async () => {
    const row = Object.fromEntries(inputs.map((one) => [one.name, one.read()]));
    const { answers } = await post(`${releasePath(release.id)}/predict`, { rows: [row] });
    result.replaceChildren(predictionBox(context, answers[0]));
    await context.refresh();
  }), make("div", { class: "fields" }, inputs.map((one) => one.node)), fault, actions(pressed));
  filling.className = "panel";
  return part(`Try a prediction of ${release.target}`, null,
    make("p", { class: "soft" }, "Nothing more is debited, however often you ask."), filling, result);
}

/** An input for one column of a point, and how to read it. */
function pointField(column) {
  return column.categories ? categoryField(column) : numberField(column);
}

function categoryField(column) {
  const options = column.categories.map((value, index) => [String(index), String(value)]);
  if (column.missing !== null) options.push(["missing", `missing (counts as ${column.missing})`]);
  const input = select(null, options, "0", { "data-column": column.name });
  // Options carry positions, so that true, 1 and "1" stay what they are.
  const read = () => (input.value === "missing" ? null : column.categories[Number(input.value)]);
  return { name: column.name, read, node: field(column.name, input) };
}

function numberField(column) {
  const [low, high] = column.bounds || [null, null];
  const middle = column.bounds ? Number(((low + high) / 2).toPrecision(4)) : 0;
  const input = numberInput(null, String(middle), { min: low, max: high, "data-column": column.name });
  const node = field(column.name, input, column.bounds ? `${number(low)} to ${number(high)}` : "");
  if (column.missing === null) return { name: column.name, read: () => Number(input.value), node };
  const gone = choice("checkbox", null, "missing", `missing (counts as ${column.missing})`, {
    "data-missing": column.name, change: (event) => { input.disabled = event.target.checked; },
  });
  node.append(gone);
  return { name: column.name, read: () => (input.disabled ? null : Number(input.value)), node };
}

function predictionBox({ release, details }, answer) {
  const value = typeof answer.prediction === "number" ? number(answer.prediction) : String(answer.prediction);
  const target = details.columns.find((column) => column.name === release.target);
  const above = target && twoClasses(target)
    ? `; above 0 it says ${target.categories[1]}, otherwise ${target.categories[0]}` : "";
  const source = answer.private ? "The private model answered."
    : "The public hypothesis answered; the private model was not needed.";
  return make("div", { class: "answer", "data-test": "prediction" },
    make("p", { class: "value" }, make("small", {}, `${release.target}: `),
      make("span", { "data-test": "prediction-value" }, value)),
    answer.score === null ? null : make("p", {}, "Score ",
      make("span", { "data-test": "prediction-score" }, number(answer.score)), `${above}.`),
    answer.private === null ? null : make("p", { "data-test": "prediction-source" }, source));
}
