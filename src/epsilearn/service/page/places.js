/* Places, in location.hash: "#/" all data sets, "#/datasets/NAME", "#/releases/ID", "#/keys", "#/log".
   Going to one, reading it again, and the links between them. */

import { whileBusy } from "./busy.js";
import { told } from "./calls.js";
import { closeDialogs } from "./dialogs.js";
import { actions, button, faultBox, make } from "./elements.js";
import { byId, focusHeading } from "./frame.js";
import { markNavigation } from "./navigation.js";
import { session } from "./session.js";

let visit = 0; // every change of place has its number, so that late answers for an earlier one are dropped
let views = {};

/** The views by the names of their places. Given from outside, because views lead to other places themselves. */
export function useViews(given) {
  views = given;
}

/** Whether the page is still where it was at the visit with this number. */
export const isCurrent = (mine) => mine === visit;

/** Nothing is shown any more: answers that are still under way are dropped. */
export function leave() {
  visit += 1;
}

function placeOf(hash) {
  const [name, rest] = hash.replace(/^#\/?/, "").split("/");
  try {
    if ((name === "datasets" || name === "releases") && rest) return { name, which: decodeURIComponent(rest) };
  } catch {
    // An address that somebody has cut short: show all data sets.
  }
  return { name: name === "keys" || name === "log" ? name : "all", which: null };
}

/** Show the place in the address. The old one stays until the new one is there. */
export async function go(moved) {
  if (!session.me) return;
  closeDialogs();
  const mine = ++visit;
  const place = placeOf(location.hash);
  const view = byId("view");
  markNavigation(place.name);
  if (!view.childElementCount) view.replaceChildren(make("p", { class: "loading" }, "Loading\u2026"));
  view.setAttribute("aria-busy", "true");
  let content;
  try {
    content = await views[place.name](place.which, mine);
  } catch (error) {
    content = troubleView(told(error));
  }
  if (mine !== visit) return;
  view.replaceChildren(...content);
  view.removeAttribute("aria-busy");
  const heading = view.querySelector("h1");
  document.title = `${heading.textContent} \u2013 epsilearn`;
  if (moved) {
    window.scrollTo(0, 0);
    focusHeading();
  }
}

export function move(address) {
  if (location.hash === address) return go(true);
  location.hash = address; // "hashchange" does the rest
  return Promise.resolve();
}

function troubleView(text) {
  const fault = faultBox();
  fault.textContent = text;
  return [make("h1", {}, "This cannot be shown"), fault,
    actions(button("Try again", "try-again", () => go(true)), make("a", { href: "#/" }, "All data sets"))];
}

export function trail(...links) {
  const items = links.map(([address, text]) => make("li", {}, make("a", { href: address }, text)));
  return make("nav", { class: "trail", "aria-label": "Where this is" }, make("ol", {}, items));
}

export const dataSetAddress = (name) => `#/datasets/${encodeURIComponent(name)}`;
export const releaseAddress = (id) => `#/releases/${encodeURIComponent(id)}`;

export function refreshButton() {
  const fault = faultBox();
  const pressed = button("Refresh", "refresh", () => whileBusy(pressed, "Refreshing\u2026", fault, async () => {
    await go(false);
    byId("view").querySelector("[data-test=refresh]")?.focus();
  }));
  return pressed;
}
