/* What index.html brings and every place shares: elements by id, the line for screen readers, the heading. */

export const byId = (id) => document.getElementById(id);

export function announce(text) {
  byId("announcement").textContent = text;
}

export function focusHeading() {
  const heading = byId("view").querySelector("h1");
  if (!heading) return;
  heading.setAttribute("tabindex", "-1");
  heading.focus({ preventScroll: true });
}
