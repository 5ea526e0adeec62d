/* Making elements: plain ones, drawn ones, and the small pieces that all places are built from. */

import { STATES } from "./words.js";

let counter = 0;

/** A number that no other element of the page has, for the ids that tie labels and hints to their elements. */
export const nextNumber = () => ++counter;

/** An element. Text goes in as text nodes only, so nothing from the server is ever read as HTML. */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

export function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function button(text, test, click, kind = "") {
  return make("button", { type: click ? "button" : "submit", class: kind || null, "data-test": test, click }, text);
}

export function actions(...buttons) {
  return make("div", { class: "actions" }, ...buttons);
}

export function faultBox() {
  return make("p", { class: "fault", role: "alert", "data-test": "fault" });
}

export function part(title, extra, ...children) {
  const heading = make("h2", {}, title);
  const top = extra ? make("div", { class: "heading" }, heading, extra) : heading;
  return make("section", { class: "part" }, top, ...children);
}

export function facts(pairs, attributes = {}) {
  const shown = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== "");
  return make("dl", { class: "facts", ...attributes }, shown.flatMap(([name, value, test]) => [
    make("dt", {}, name), make("dd", { "data-test": test }, value),
  ]));
}

export function state(word, attributes = {}) {
  const [text, kind] = STATES[word] || [word, ""];
  return make("span", { class: `state ${kind}`.trim(), ...attributes }, text);
}

export function moment(text) {
  const date = new Date(text);
  const shown = date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const title = date.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  return make("time", { datetime: text, title }, shown);
}
