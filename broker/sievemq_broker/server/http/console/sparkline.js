// A line as large as a word.

import { svg } from "./dom.js";

const WIDTH = 96;
const HEIGHT = 24;

/**
 * @param {number[]} values oldest first.
 * @param {string} label accessible name.
 */
export function sparkline(values, label) {
  const points = values.filter(Number.isFinite);
  const top = Math.max(...points, 1);
  const step = WIDTH / Math.max(points.length - 1, 1);
  const line = points.map(
    (value, i) => `${(i * step).toFixed(1)},${(HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1)}`,
  );
  return svg(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      width: WIDTH,
      height: HEIGHT,
      role: "img",
      "aria-label": label,
      preserveAspectRatio: "none",
    },
    line.length > 1 && svg("polygon", { class: "area", points: `0,${HEIGHT} ${line.join(" ")} ${WIDTH},${HEIGHT}` }),
    line.length > 1 && svg("polyline", { class: "line", points: line.join(" ") }),
  );
}
