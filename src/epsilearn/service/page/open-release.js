/* The holder's dialog that opens a release: a form for each kind, then the bill, before anything is debited. */

import { shownBudget } from "./budget.js";
import { whileBusy } from "./busy.js";
import { dataSetPath, post } from "./calls.js";
import { targets, twoClasses } from "./columns.js";
import { cancelButton, openDialog, whileLocked } from "./dialogs.js";
import { actions, button, faultBox, make } from "./elements.js";
import { field, form, numberInput, select, textInput } from "./forms.js";
import { move, releaseAddress } from "./places.js";
import { meaningPart } from "./promise.js";
import { KERNELS, KINDS, MODELS, number, price } from "./words.js";

export function startOpening(details) {
  const steps = openDialog("open-release-dialog");
  const filling = openingForm(details, steps);
  steps.show(`Open a release of ${details.name}`, filling);
}

function openingForm(details, steps) {
  const fault = faultBox();
  const about = make("p", { class: "hint" });
  const rest = make("div", { class: "fields" });
  const kind = select("kind", Object.entries(KINDS).map(([name, words]) => [name, words.name]), "process");
  const show = button("Show the bill", "show-bill", null, "primary");
  const change = () => {
    about.textContent = KINDS[kind.value].about;
    rest.replaceChildren(...openingFields(kind.value, details));
  };
  kind.addEventListener("change", change);
  change();
  const filling = form("open-release-form", (filled) => whileBusy(show, "Working out the bill\u2026", fault,
    async () => {
    const asked = openingOf(filled);
    showBill(steps, filling, details, asked, await post(`${dataSetPath(details.name)}/bill`, asked));
  }), make("div", { class: "fields" }, field("Kind", kind, "", { class: "field whole" })), about, rest, fault,
    actions(cancelButton(steps), show));
  return filling;
}

function openingFields(kind, details) {
  const epsilon = field("Epsilon", numberInput("epsilon", suggestion(details.balance),
    { min: "0.000001", max: "1000" }),
    kind === "statistics" ? "For all statistics of this release together." : "What is debited, once.");
  const note = field("Note", textInput("note", { maxlength: 200 }),
    "Optional. Written into the ledger, for all to see.", { class: "field whole" });
  if (kind === "statistics") return [epsilon, note];
  const delta = field("Delta", numberInput("delta", kind === "model" ? "0" : "1e-6",
    { min: kind === "model" ? "0" : "1e-30", max: "0.999999" }));
  const alpha = field("Alpha", numberInput("alpha", "",
    { required: false, min: "1e-12", max: "1000000", placeholder: "automatic" }),
    "Regularisation. Empty: chosen from public numbers.");
  return [...(kind === "model" ? modelFields(details) : learningFields(kind, details)), epsilon, delta, alpha, note];
}

/** Round, not above 1, and not more than a half of what is left: a start to think from. */
function suggestion(balance) {
  const half = balance.remaining_epsilon / 2;
  return half >= 1 ? "1" : String(Number(Math.max(half, 0.01).toPrecision(1)));
}

function learningFields(kind, details) {
  const names = targets(details.columns, (column) => !column.categories || column.categories.length === 2);
  const target = field("Target", select("target", names, names[names.length - 1], { required: true }),
    "What is predicted: a number or one of two classes.");
  const points = field("Different points", numberInput("max_points", "1000", { min: "1", max: "20000", step: "1" }),
    "That may ever be asked.");
  const kernel = select("kernel", Object.entries(KERNELS), "rbf");
  if (kind === "interactive") {
    return [target, field("Kernel", kernel),
      field("Questions", numberInput("questions", "1000", { min: "1", max: "1000000", step: "1" }),
        "Different points that may ever be asked."),
      field("Chance of failure", numberInput("failure", "0.05", { min: "0.000001", max: "0.999999" }),
        "That some answer is further off than promised.")];
  }
  kernel.addEventListener("change", () => { points.hidden = kernel.value !== "rbf"; });
  return [target, field("Kernel", kernel), points];
}

function modelFields(details) {
  const target = make("select", { name: "target", required: true });
  const model = select("model", Object.entries(MODELS), "logistic");
  const kernel = field("Kernel", select("kernel", Object.entries(KERNELS).slice(0, 2), "rbf"));
  const fits = {
    linear: (column) => !column.categories, lasso: (column) => !column.categories, landmark: () => true,
    logistic: (column) => column.categories, svm: twoClasses, "sparse-logistic": twoClasses,
  };
  const change = () => {
    const names = targets(details.columns, fits[model.value]);
    const before = names.includes(target.value) ? target.value : names[names.length - 1];
    target.replaceChildren(...names.map((name) => make("option", { value: name, selected: name === before }, name)));
    kernel.hidden = model.value !== "landmark";
    // The server refuses a kernel for models that have none.
    if (kernel.hidden) kernel.querySelector("select").value = "rbf";
  };
  model.addEventListener("change", change);
  change();
  return [field("Model", model), field("Target", target, "Those that this model can predict."), kernel];
}

function openingOf(filled) {
  const asked = {};
  for (const input of filled.elements) {
    if (!input.name) continue;
    if (input.name === "alpha") asked.alpha = input.value === "" ? "auto" : Number(input.value);
    else asked[input.name] = input.type === "number" ? Number(input.value) : input.value;
  }
  return asked;
}

function showBill(steps, filling, details, asked, bill) {
  const fault = faultBox();
  const words = bill.debited_now ? `Debit epsilon ${number(bill.epsilon)} and open`
    : `Allow epsilon ${number(bill.epsilon)} and open`;
  const confirm = button(words, "open-release",
    () => whileLocked(steps, confirm, "Opening\u2026", fault, async () => {
    const made = await post(`${dataSetPath(details.name)}/releases`, asked);
    steps.close();
    // The release's own page follows the opening, so that a reload does not lose sight of it.
    await move(releaseAddress(made.id));
  }), "primary");
  const what = KINDS[asked.kind].title(asked.target);
  const when = bill.debited_now
    ? "It is debited at once and never comes back, even if the release is closed."
    : "Nothing is debited now. The second bar shows the budget if all of it is asked for.";
  steps.show("The bill",
    make("div", { "data-test": "bill" },
      make("p", {}, make("strong", {}, `${what}: ${price(bill.epsilon, bill.delta)}.`), ` ${when}`),
      make("div", { class: "compare" },
        make("h3", {}, "Before"), shownBudget(details.name, bill.before), make("h3", {}, "After"),
          shownBudget(details.name, bill.after, bill.before)),
      meaningPart(bill.meaning)),
    fault, actions(button("Back", "back", () => steps.show(`Open a release of ${details.name}`, filling)), confirm));
}
