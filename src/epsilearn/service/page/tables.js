/* Tables and their cells. */

import { actions, button, make } from "./elements.js";
import { count } from "./words.js";

const SHOWN_AT_FIRST = 25;

/** A table in a box of its own that scrolls; the box can be reached by keyboard. */
export function table(label, heads, rows, empty) {
  if (!rows.length) return make("p", { class: "soft" }, empty);
  const head = heads.map(([text, kind]) => make("th", { scope: "col", class: kind || null }, text));
  const body = make("tbody", {}, rows.slice(0, SHOWN_AT_FIRST));
  const box = make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label },
    make("table", {}, make("thead", {}, make("tr", {}, head)), body));
  if (rows.length <= SHOWN_AT_FIRST) return box;
  const more = button(`Show all ${count(rows.length)}`, "show-all", () => {
    body.replaceChildren(...rows);
    more.remove();
    box.focus();
  });
  return make("div", {}, box, actions(more));
}

export function cell(content, kind = null) {
  return make("td", { class: kind }, ...[content].flat());
}

export function rowHead(content) {
  return make("th", { scope: "row" }, content);
}
