/* Forms: inputs with their labels and hints, and reading what was filled in. */

import { make, nextNumber } from "./elements.js";

export function field(label, input, hint = "", attributes = {}) {
  if (!input.id) input.id = `field-${nextNumber()}`;
  const help = hint ? make("p", { class: "hint", id: `${input.id}-hint` }, hint) : null;
  if (help) input.setAttribute("aria-describedby", help.id);
  return make("div", { class: "field", ...attributes }, make("label", { for: input.id }, label), input, help);
}

export function numberInput(name, value, attributes = {}) {
  return make("input", { type: "number", name, value, step: "any", required: true, inputmode: "decimal",
    ...attributes });
}

export function textInput(name, attributes = {}) {
  return make("input", { type: "text", name, autocomplete: "off", spellcheck: "false", ...attributes });
}

/** A select; options are pairs of value and text, or plain texts. */
export function select(name, options, chosen, attributes = {}) {
  const made = options.map((option) => {
    const [value, text] = Array.isArray(option) ? option : [option, option];
    return make("option", { value, selected: value === chosen }, text);
  });
  return make("select", { name, ...attributes }, made);
}

export function choice(type, name, value, label, attributes = {}) {
  const input = make("input", { type, name, value, id: `field-${nextNumber()}`, ...attributes });
  return make("div", { class: "choice" }, input, make("label", { for: input.id }, label));
}

export function form(test, submit, ...children) {
  return make("form", {
    "data-test": test,
    submit: (event) => {
      event.preventDefault();
      submit(event.currentTarget);
    },
  }, ...children);
}

export const valueOf = (holder, name) => holder.elements[name].value;
export const numberOf = (holder, name) => Number(valueOf(holder, name));
