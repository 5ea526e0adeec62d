/* A data set's budget as a bar with its text. */

import { make } from "./elements.js";
import { number, percent, price, several, SPACE } from "./words.js";

/** A bar that can be shown a new balance; a part that is being added is drawn in another colour. */
export function budgetBar(name) {
  const gone = make("span");
  const added = make("span", { class: "added" });
  const meter = make("div", {
    class: "meter", role: "meter", "data-test": "meter", "aria-label": `Budget of ${name}`, "aria-valuemin": "0",
      "aria-valuemax": "100",
  }, gone, added);
  const text = make("p", { class: "text", "data-test": "budget-text" });
  const more = make("p", { class: "soft" });
  const node = make("div", { class: "budget", "data-test": "budget", "data-name": name }, meter, text, more);
  const show = (balance, before = null) => {
    const from = before ? before.used : balance.used;
    gone.style.width = `${Math.min(1, from) * 100}%`;
    gone.classList.toggle("full", balance.used >= 1);
    added.style.width = `${Math.max(0, Math.min(1, balance.used) - from) * 100}%`;
    meter.setAttribute("aria-valuenow", (Math.min(1, balance.used) * 100).toPrecision(3));
    meter.setAttribute("aria-valuetext", budgetText(balance));
    text.textContent = budgetText(balance);
    more.textContent = budgetNote(balance);
  };
  return { node, show };
}

function budgetText(balance) {
  const rule = `rule${SPACE}${balance.rule}`;
  if (balance.rule === "pure") {
    const spent = `epsilon${SPACE}${number(balance.spent_epsilon)} of${SPACE}${number(balance.epsilon)} spent`;
    return `${spent}, ${percent(balance.used)} used; ${rule}`;
  }
  // Under the other rules debits add up to less than their plain sum, so the sum is told apart.
  return `${percent(balance.used)} of ${price(balance.epsilon, balance.delta)} used; ${rule}`;
}

function budgetNote(balance) {
  const debits = several(balance.debits, "debit", "debits");
  if (balance.remaining_epsilon <= 0) return `${debits}; nothing is left`;
  const rest = `epsilon${SPACE}${number(balance.remaining_epsilon)}`;
  if (balance.rule === "pure") {
    const deltas = balance.delta
      ? `, delta${SPACE}${number(balance.spent_delta)} of${SPACE}${number(balance.delta)}` : "";
    return `${debits}${deltas}; ${rest} left`;
  }
  const sum = balance.debits ? `, epsilon${SPACE}${number(balance.spent_epsilon)} as a plain sum` : "";
  return `${debits}${sum}; one more of up to ${rest} fits`;
}

export function shownBudget(name, balance, before = null) {
  const bar = budgetBar(name);
  bar.show(balance, before);
  return bar.node;
}
