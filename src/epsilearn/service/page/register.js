/* The holder's dialog that registers a data set: a form, then a review, because the budget is fixed for good. */

import { whileBusy } from "./busy.js";
import { get, post } from "./calls.js";
import { cancelButton, openDialog, whileLocked } from "./dialogs.js";
import { actions, button, facts, faultBox, make } from "./elements.js";
import { choice, field, form, numberInput, numberOf, select, textInput, valueOf } from "./forms.js";
import { byId } from "./frame.js";
import { dataSetAddress, move } from "./places.js";
import { price, RULES } from "./words.js";

export function startRegistering(pressed) {
  whileBusy(pressed, "Looking for files\u2026", byId("register-fault"), async () => {
    const { files } = await get("/api/files");
    const steps = openDialog("register-dialog");
    const filling = registerForm(files, (asked) => reviewRegistration(steps, filling, asked), steps);
    steps.show("Register a data set", filling);
  });
}

function registerForm(files, next, steps) {
  const tables = files.filter((name) => !name.endsWith(".toml"));
  const schemas = files.filter((name) => name.endsWith(".toml"));
  const fault = faultBox();
  if (!tables.length) fault.textContent = "The server's folder of tables has no file that could be registered.";
  return form("register-form", (filled) => next(registrationOf(filled)),
    make("div", { class: "fields" },
      field("Name", textInput("name", { required: true, maxlength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*",
        title: "Letters, digits, dots, underscores and hyphens" }),
        "How analysts will know it. Letters, digits, dots, hyphens."),
      field("Table", select("file", tables, tables[0], { required: true }),
        "A file in the server's folder of tables."),
      schemaFields(schemas),
      field("Epsilon", numberInput("epsilon", "2", { min: "0.000001", max: "1000" }),
        "The total, for everything that is ever released from it."),
      field("Delta", numberInput("delta", "1e-5", { min: "0", max: "0.999999" }),
        "0, or well below one in the number of rows."),
      field("Rule", select("rule", Object.entries(RULES), ""), "How debits add up.", { class: "field whole" })),
    fault, actions(cancelButton(steps), button("Review", "register-review", null, "primary")));
}

/** The schema: a file of the server, or text; only the one that was chosen is shown and required. */
function schemaFields(schemas) {
  const file = field("Schema file", select("schema_file", schemas, schemas[0], { required: true }));
  const placeholder = "version = 1\n\n[columns.age]\nbounds = [0, 120]";
  const text = field("Schema text",
    make("textarea", { name: "schema_toml", spellcheck: "false", required: true, placeholder }));
  const choose = (source) => {
    for (const [box, shown] of [[file, source === "file"], [text, source === "text"]]) {
      box.hidden = !shown;
      box.querySelector("select, textarea").disabled = !shown;
    }
  };
  const change = (event) => choose(event.target.value);
  choose(schemas.length ? "file" : "text");
  return make("fieldset", { class: "whole" }, make("legend", {}, "What is public about it"),
    choice("radio", "source", "file", "a TOML file on the server",
      { checked: schemas.length > 0, disabled: !schemas.length, change }),
    choice("radio", "source", "text", "TOML pasted here", { checked: !schemas.length, change }), file, text);
}

function registrationOf(filled) {
  const source = valueOf(filled, "source") === "file" ? "schema_file" : "schema_toml";
  const asked = {
    name: valueOf(filled, "name"), file: valueOf(filled, "file"), [source]: valueOf(filled, source),
    epsilon: numberOf(filled, "epsilon"), delta: numberOf(filled, "delta"),
  };
  if (valueOf(filled, "rule")) asked.rule = valueOf(filled, "rule");
  return asked;
}

function reviewRegistration(steps, filling, asked) {
  const fault = faultBox();
  const confirm = button("Register, and fix the budget", "confirm",
    () => whileLocked(steps, confirm, "Reading every row\u2026", fault, async () => {
    await post("/api/datasets", asked);
    steps.close();
    await move(dataSetAddress(asked.name));
  }), "primary");
  const rule = asked.rule || (asked.delta ? "zcdp" : "pure");
  steps.show(`Register ${asked.name}?`,
    facts([["Table", asked.file], ["Schema", asked.schema_file || "pasted text"],
      ["Total budget", price(asked.epsilon, asked.delta)], ["Rule", rule]]),
    make("p", { class: "note" },
      "The budget is fixed for good: it cannot be raised, reset or given another rule later, by anybody. Every row " +
      "of the file is read once and checked against the schema."),
    fault, actions(button("Back", "back", () => steps.show("Register a data set", filling)), confirm));
}
