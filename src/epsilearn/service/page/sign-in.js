/* Signing in and out. The form itself is in index.html; it stays hidden until this has looked for a kept key. */

import { whileBusy } from "./busy.js";
import { get, told } from "./calls.js";
import { closeDialogs } from "./dialogs.js";
import { announce, byId } from "./frame.js";
import { showNavigation } from "./navigation.js";
import { go, leave } from "./places.js";
import { session } from "./session.js";

const KEY_STORE = "epsilearn-key";

async function signIn(key) {
  session.key = key;
  session.me = await get("/api/me");
  sessionStorage.setItem(KEY_STORE, key);
  const only = session.me.datasets ? `, for ${session.me.datasets.join(", ")}` : "";
  const role = session.me.role === "holder" ? "data holder" : "analyst";
  byId("who-text").textContent = `${session.me.name}, ${role}${only}`;
  byId("who").hidden = false;
  byId("sign-in").hidden = true;
  byId("sign-in-key").value = "";
  showNavigation();
  announce(`Signed in as ${byId("who-text").textContent}`);
}

export function signOut(message = "") {
  const wasIn = session.me !== null;
  session.key = session.me = null;
  sessionStorage.removeItem(KEY_STORE);
  leave();
  closeDialogs();
  byId("who").hidden = byId("nav").hidden = true;
  byId("view").replaceChildren();
  byId("sign-in").hidden = false;
  byId("sign-in-fault").textContent = message;
  document.title = "Sign in \u2013 epsilearn";
  if (wasIn) byId("sign-in-key").focus();
}

function submitKey(event) {
  event.preventDefault();
  const key = byId("sign-in-key").value.trim();
  const fault = byId("sign-in-fault");
  // Anything else cannot be sent in a header at all.
  if (!/^[!-~]+$/.test(key)) {
    fault.textContent = "This is not a key: keys are letters, digits and underscores.";
    return;
  }
  whileBusy(byId("sign-in-button"), "Signing in\u2026", fault, async () => {
    await signIn(key);
    await go(true);
  });
}

function toggleKey() {
  const input = byId("sign-in-key");
  const shown = input.type === "password";
  input.type = shown ? "text" : "password";
  byId("sign-in-show").textContent = shown ? "Hide" : "Show";
  byId("sign-in-show").setAttribute("aria-pressed", String(shown));
}

export function listenForKeys() {
  byId("sign-in-form").addEventListener("submit", submitKey);
  byId("sign-in-show").addEventListener("click", toggleKey);
  byId("sign-out").addEventListener("click", () => {
    // Whoever signs in next begins at the beginning.
    history.replaceState(null, "", location.pathname);
    signOut();
  });
}

/** Go on with the key that this tab has kept over a reload, or ask for one. */
export async function resume() {
  const kept = sessionStorage.getItem(KEY_STORE);
  if (!kept) return signOut();
  try {
    await signIn(kept);
  } catch (error) {
    return signOut(told(error));
  }
  return go(false);
}
