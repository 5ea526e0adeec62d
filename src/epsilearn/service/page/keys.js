/* The place of the keys: who has one, and revoking it. */

import { ask, get } from "./calls.js";
import { confirmFirst } from "./dialogs.js";
import { actions, button, make, moment } from "./elements.js";
import { startKey } from "./make-key.js";
import { go } from "./places.js";
import { session } from "./session.js";
import { signOut } from "./sign-in.js";
import { cell, rowHead, table } from "./tables.js";

export async function keysView() {
  const { keys } = await get("/api/keys");
  const heads = [["Name"], ["Role"], ["For"], ["Made"], ["Expires"], ["State"],
    [make("span", { class: "unseen" }, "Actions")]];
  return [
    make("div", { class: "heading" }, make("h1", {}, "Keys"),
      actions(button("Make a key", "create-key-open", (event) => startKey(event.currentTarget), "primary"))),
    make("p", { class: "fault", role: "alert", id: "key-fault", "data-test": "fault" }),
    make("p", { class: "soft lead" },
      "A key says who calls and what they may do. Only a digest of it is stored, so a lost key is replaced, not " +
      "found."),
    table("Keys", heads, keys.map(keyRow), "There are no keys."),
  ];
}

function keyRow(key) {
  const over = key.expires && Date.parse(key.expires) <= Date.now();
  const standing = key.revoked ? "revoked" : over ? "expired" : "valid";
  const mark = make("span", { class: standing === "valid" ? "state good" : "state" }, standing);
  const own = key.id === session.me.key ? " (this one)" : "";
  const end = key.revoked ? null : button("Revoke", "revoke", () => confirmRevoking(key), "quiet");
  if (end) end.setAttribute("aria-label", `Revoke the key of ${key.name}`);
  return make("tr", { "data-test": "key-row", "data-key": key.id },
    rowHead(`${key.name}${own}`), cell(key.role),
      cell(key.datasets ? key.datasets.join(", ") : "every data set", "text"),
      cell([moment(key.created), make("div", { class: "soft" }, `by ${key.who}`)]),
    cell(key.expires ? moment(key.expires) : "never"), cell(mark), cell(end, "act"));
}

function confirmRevoking(key) {
  const own = key.id === session.me.key ? " It is the key you are signed in with: you will be signed out." : "";
  confirmFirst({
    test: "revoke-dialog", title: `Revoke the key of ${key.name}?`, action: "Revoke it for good",
      running: "Revoking\u2026",
    content: [make("p", {}, `It stops working at once and for good.${own}`)],
    work: async () => {
      await ask("DELETE", `/api/keys/${encodeURIComponent(key.id)}`);
      if (own) signOut("You have revoked your own key.");
      else await go(false);
    },
  });
}
