// Plots as SVG. In: numbers. Out: elements. The caller shows the same figures as text.

import { h } from "./dom.js";
import { clock, valued } from "./words.js";

/** A small line of the last values, for the eye alone. */
export function spark(values) {
  if (values.length < 2) return null;
  const most = Math.max(1, ...values);
  const step = 100 / (values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(2)} ${(34 - (value / most) * 32).toFixed(2)}`);
  const line = `M${points.join("L")}`;
  return h("svg", { class: "spark", viewBox: "0 0 100 36", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path", { class: "area", d: `${line}L100 36L0 36Z` }), h("path", { d: line }));
}

/** One bar a look; those at which something was down stand out. */
export function bars(down, label) {
  const width = 100 / Math.max(1, down.length);
  return h("svg", { class: "bars", viewBox: "0 0 100 22", preserveAspectRatio: "none", role: "img", "aria-label": label },
    down.map((bad, index) => h("rect", {
      class: bad ? "down" : null, x: (index * width).toFixed(2), y: bad ? 0 : 6,
      width: (width * 0.8).toFixed(2), height: bad ? 22 : 16,
    })));
}

const WIDTH = 640, HEIGHT = 200, EDGE = 4;

/** Where time and value stand; and times without readings (`holes`). points: [µs, value]. What is
 * written stands beside the picture, so that it is as large on a phone. */
export function plot(points, unit, label) {
  const times = points.map(([time]) => time), values = points.map(([, value]) => value);
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (time) => ((time - from) / Math.max(1, to - from)) * WIDTH;
  const y = (value) => low === high ? HEIGHT / 2 : EDGE + ((high - value) / (high - low)) * (HEIGHT - 2 * EDGE);
  const at = (time, value) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
  const gaps = holes(times);
  const starts = new Set([0, ...gaps.map(([index]) => index)]);
  const path = points.map(([time, value], index) => `${starts.has(index) ? "M" : "L"}${at(time, value)}`).join("");
  const line = (height) => h("path", { class: "grid", d: `M0 ${height}H${WIDTH}` });
  const words = (value) => h("span", {}, valued({ value, unit }));
  return h("div", { class: "axes" },
    h("div", { class: "y" }, words(high), low === high ? null : words(low)),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      gaps.map(([, begin, end]) => h("rect", { class: "gap", x: x(begin).toFixed(1), y: 0, width: (x(end) - x(begin)).toFixed(1), height: HEIGHT })),
      line(EDGE), line(HEIGHT - EDGE), h("path", { d: path }),
      h("path", { class: "last", d: `M${at(...points[points.length - 1])}h0.01` })),
    h("div", { class: "x" }, h("span", {}, clock(from)), h("span", {}, clock(to))));
}

/** [index, begin, end] of each time without readings. */
export function holes(times) {
  const distances = times.slice(1).map((time, index) => time - times[index]);
  const usual = [...distances].sort((a, b) => a - b)[Math.floor(distances.length / 2)] ?? 0;
  return distances.flatMap((distance, index) =>
    usual > 0 && distance > 3 * usual ? [[index + 1, times[index], times[index + 1]]] : []);
}
