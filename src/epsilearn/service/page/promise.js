/* The promise of a release in words: what it is, what noise it takes, what it means, what it rests on. */

import { make, part } from "./elements.js";
import { KINDS, number, percent, price, SPACE } from "./words.js";

export function promiseBox(release) {
  const rows = release.guarantee ? release.guarantee.rows_per_person : 1;
  const whose = rows > 1 ? `up to ${rows} rows of one person` : "one person's row";
  const kind = release.guarantee ? "promise" : "promise pending";
  return make("div", { class: kind, "data-test": "promise" },
    make("strong", {}, `Epsilon${price(release.epsilon, release.delta).slice(7)} for ${whose}`),
    make("p", {}, promiseText(release)), noiseText(release));
}

function promiseText(release) {
  if (release.guarantee) return KINDS[release.kind].promise;
  const failed = " Nothing was released. The list of what was spent shows whether it was debited.";
  return `This is what was asked for.${release.status === "failed" ? failed : ""}`;
}

function noiseText(release) {
  const target = release.target;
  if (release.tolerance !== null) {
    const sure = percent(1 - release.settings.failure);
    return make("p", {},
      `With a chance of ${sure}, no answer's score is further than ${number(release.tolerance)} from what the ` +
      "private model itself would say.");
  }
  if (release.noise_deviation === null) return null;
  const size = number(release.noise_deviation);
  if (release.kind === "model") return make("p", {},
    `The noise behind it has a standard deviation of ${size}; the report says what that does to the model.`);
  return make("p", {},
    `The score of each answer about ${target} carries Gaussian noise with a standard deviation of at most ${size}: ` +
    `in 95${SPACE}% of cases it moves the score by less than ${number(1.96 * release.noise_deviation)}.`);
}

export function meaningPart(sentences) {
  const [first, ...rest] = sentences;
  const items = rest.map((one) => make("li", {}, one));
  return make("div", { class: "meaning", "data-test": "meaning" }, make("p", {}, first), make("ul", {}, items));
}

export function explanationPart(release) {
  if (!release.meaning.length) return [];
  const { assumptions, theorem } = release.guarantee;
  const rests = release.kind === "statistics" ? null
    : make("details", {}, make("summary", {}, "What the promise rests on"),
    make("p", {}, `Theorem: ${theorem}.`), make("ul", {}, assumptions.map((one) => make("li", {}, one))));
  return [part("What the promise means", null, meaningPart(release.meaning), rests)];
}
