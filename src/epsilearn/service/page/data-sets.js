/* The place of all data sets. */

import { shownBudget } from "./budget.js";
import { get } from "./calls.js";
import { actions, button, make } from "./elements.js";
import { dataSetAddress } from "./places.js";
import { startRegistering } from "./register.js";
import { isHolder } from "./session.js";
import { several } from "./words.js";

export async function allView() {
  const found = await get("/api/datasets");
  const register = isHolder() ? actions(button("Register a data set", "register-open",
    (event) => startRegistering(event.currentTarget), "primary")) : null;
  const fault = make("p", { class: "fault", role: "alert", id: "register-fault", "data-test": "fault" });
  const none = isHolder() ? "There is no data set yet. Register one to begin."
    : "There is no data set for this key yet.";
  return [
    make("div", { class: "heading" }, make("h1", {}, "Data sets"), register), fault,
    make("p", { class: "lead soft" },
      "Each has one budget. Whatever is released from it, to whomever, is debited there, and the budget never " +
      "grows back."),
    found.length ? make("ul", { class: "cards" }, found.map((one) => make("li", {}, dataSetCard(one))))
      : make("p", {}, none),
  ];
}

function dataSetCard(summary) {
  const link = make("a", { href: dataSetAddress(summary.name), "data-test": "dataset-link" }, summary.name);
  return make("article", { class: "card", "data-test": "dataset", "data-name": summary.name },
    make("h2", {}, link), make("p", { class: "soft" }, several(summary.rows, "row", "rows")),
      shownBudget(summary.name, summary.balance));
}
