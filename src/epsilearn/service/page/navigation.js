/* The links at the top of the page: which are offered, and which one is marked. */

import { make } from "./elements.js";
import { byId } from "./frame.js";
import { isHolder, session } from "./session.js";

function placesOffered() {
  const offered = [["datasets", "#/", "Data sets"]];
  if (isHolder()) offered.push(["keys", "#/keys", "Keys"]);
  // The log speaks of all data sets, so only keys for all may read it.
  if (isHolder() && session.me.datasets === null) offered.push(["log", "#/log", "Log"]);
  return offered;
}

export function showNavigation() {
  const links = placesOffered().map(([name, address, text]) => make("li", {},
    make("a", { href: address, "data-test": `nav-${name}` }, text)));
  byId("nav").replaceChildren(make("ul", {}, links));
  byId("nav").hidden = false;
}

export function markNavigation(name) {
  const exact = name !== "datasets" && name !== "releases";
  const current = name === "keys" || name === "log" ? name : "datasets";
  for (const link of byId("nav").querySelectorAll("a")) {
    if (link.dataset.test === `nav-${current}`) link.setAttribute("aria-current", exact ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
}
