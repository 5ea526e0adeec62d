/* Calling the server with the key of the session, and telling what went wrong. */

import { session } from "./session.js";
import { sentence } from "./words.js";

class Failure extends Error {}

let keyRefused = () => {};

/** What to do with the server's words when it no longer takes the key. Given from outside, because signing out
    needs the places of the page, and those call the server. */
export function onKeyRefused(handler) {
  keyRefused = handler;
}

/** Ask the server. A key that is no longer valid signs out, wherever it is noticed. */
export async function ask(method, path, body) {
  const key = session.key;
  const headers = { Authorization: `Bearer ${key}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Failure("The server cannot be reached. Is it running, and are you connected?");
  }
  if (response.ok) return response;
  const text = await refusal(response);
  if (response.status === 401 && key === session.key) keyRefused(text);
  throw new Failure(text);
}

async function refusal(response) {
  try {
    return sentence((await response.json()).error);
  } catch {
    return `The server answered ${response.status} and said no more.`;
  }
}

export const get = async (path) => (await ask("GET", path)).json();
export const post = async (path, body) => (await ask("POST", path, body)).json();
export const dataSetPath = (name) => `/api/datasets/${encodeURIComponent(name)}`;
export const releasePath = (id) => `/api/releases/${encodeURIComponent(id)}`;

export function told(error) {
  if (error instanceof Failure) return error.message;
  console.error(error);
  return "Something went wrong in this page. Reload it and look whether the budget has moved.";
}
