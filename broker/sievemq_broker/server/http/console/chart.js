// A chart over time, drawn in SVG: lines, a scale, the time below, and the values under the pointer or the arrow keys.

import { h, put, say, svg } from "./dom.js";
import { clock, rate, time as moment } from "./format.js";

const HEIGHT = 200;
const LEFT = 52;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 26;
const GAP = 3; // usual steps between two samples from which on some are missing
const LEAST_GAP = 3_000; // ms
const LONG = 43_200_000; // ms from which on times have a date
const APART = 90; // px between the texts of two marks

export class Chart {
  /**
   * @param {{title: string, lines: {name: string, key: string}[], format: (value: number) => string}} given the lines
   *   have names in the legend, and keys in the samples.
   */
  constructor({ title, lines, format }) {
    this.title = title;
    this.lines = lines;
    this.format = format;
    this.samples = [];
    this.marks = [];
    this.span = 0;
    this.at = null;
    this.canvas = svg("svg", { class: "chart", role: "img", tabindex: "0", height: HEIGHT });
    this.values = lines.map(() => h("b"));
    this.moment = h("span", { class: "dim moment" });
    this.node = h(
      "figure",
      { class: "card figure" },
      h(
        "figcaption",
        h("h2", title),
        this.moment,
        h(
          "ul",
          { class: "legend" },
          lines.map((line, i) => h("li", { class: `series${i}` }, h("i"), line.name, " ", this.values[i])),
        ),
      ),
      this.canvas,
    );
    this.canvas.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.#choose(null));
    this.canvas.addEventListener("blur", () => this.#choose(null));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe(this.canvas);
  }

  /**
   * @param {{time: number}[]} samples oldest first; `time` is ms since 1970. Where some are missing no line is drawn.
   * @param {{time: number, text: string, cuts: boolean}[]} marks what happened; no line crosses one that cuts.
   * @param {number} span ms that are shown; 0 for what the samples cover.
   */
  update(samples, marks = [], span = 0) {
    const from = span ? (samples.at(-1)?.time ?? 0) - span : 0;
    this.samples = samples.filter(({ time }) => time >= from);
    this.marks = marks;
    this.span = span;
    if (this.at !== null && this.at >= this.samples.length) this.at = null;
    this.#draw();
  }

  #point(x) {
    const width = this.canvas.clientWidth - LEFT - RIGHT;
    const share = Math.min(1, Math.max(0, (x - LEFT) / width));
    const wanted = this.#from + share * (this.#until - this.#from);
    let nearest = null;
    this.samples.forEach((sample, i) => {
      if (nearest === null || Math.abs(sample.time - wanted) < Math.abs(this.samples[nearest].time - wanted))
        nearest = i;
    });
    this.#choose(nearest);
  }

  #key(event) {
    const last = this.samples.length - 1;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || last < 0) return;
    event.preventDefault();
    this.#choose(Math.min(last, Math.max(0, (this.at ?? last) + step)));
  }

  #choose(at) {
    this.at = at;
    this.#draw();
  }

  get #from() {
    return this.span ? this.#until - this.span : (this.samples[0]?.time ?? 0);
  }

  get #until() {
    return this.samples.at(-1)?.time ?? 1;
  }

  #draw() {
    const width = this.canvas.clientWidth;
    const shown = this.samples[this.at ?? this.samples.length - 1];
    this.values.forEach((node, i) => say(node, shown ? this.format(shown[this.lines[i].key] ?? 0) : "–"));
    say(this.moment, this.at === null || !shown ? "" : this.#when(shown.time));
    const words = this.lines.map((line, i) => `${line.name} ${this.values[i].textContent}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: ${words}`);
    if (!width) return;
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const top = ceiling(
      Math.max(0, ...this.samples.flatMap((sample) => this.lines.map(({ key }) => sample[key] ?? 0))),
    );
    const span = Math.max(this.#until - this.#from, 1);
    const x = (time) => LEFT + ((time - this.#from) / span) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    put(
      this.canvas,
      this.#scale(top, y, width),
      this.#times(x, width),
      this.#curves(x, y),
      this.#marks(x, width),
      shown && this.at !== null && this.#cross(shown, x, y),
    );
  }

  #scale(top, y, width) {
    return [0, 0.5, 1].map((share) =>
      svg(
        "g",
        { class: "scale" },
        svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(share * top), y2: y(share * top) }),
        svg("text", { x: LEFT - 8, y: y(share * top) + 4, "text-anchor": "end" }, this.format(share * top)),
      ),
    );
  }

  #times(x, width) {
    if (this.samples.length === 0) {
      return svg(
        "text",
        { class: "waiting", x: (LEFT + width) / 2, y: HEIGHT / 2, "text-anchor": "middle" },
        "Collecting samples…",
      );
    }
    const shares = width < 420 ? [0, 1] : [0, 0.5, 1];
    const anchors = { 0: "start", 0.5: "middle", 1: "end" };
    return shares.map((share) => {
      const time = this.#from + share * (this.#until - this.#from);
      return svg("text", { class: "time", x: x(time), y: HEIGHT - 6, "text-anchor": anchors[share] }, this.#when(time));
    });
  }

  #when(time) {
    return this.#until - this.#from >= LONG ? moment(time).slice(5, 16) : clock(time);
  }

  #curves(x, y) {
    const cuts = this.marks.filter((mark) => mark.cuts).map(({ time }) => time);
    return this.lines.map(({ key }, i) => {
      const known = this.samples.filter((sample) => Number.isFinite(sample[key]));
      return svg(
        "g",
        { class: `series${i}` },
        unbroken(known, cuts).map((part) => {
          const [{ time, [key]: value }] = part;
          if (part.length === 1) return svg("circle", { class: `series${i}`, cx: x(time), cy: y(value), r: 2 });
          const points = part.map((sample) => `${x(sample.time).toFixed(1)},${y(sample[key]).toFixed(1)}`).join(" ");
          const area = `${x(part[0].time)},${y(0)} ${points} ${x(part.at(-1).time)},${y(0)}`;
          return [svg("polygon", { class: "area", points: area }), svg("polyline", { class: "line", points })];
        }),
      );
    });
  }

  // Of marks that are close together the newest has a text; all have it as their title.
  #marks(x, width) {
    const seen = this.marks.filter(({ time }) => time >= this.#from && time <= this.#until);
    let free = Infinity;
    return seen
      .sort((one, other) => other.time - one.time)
      .map(({ time, text }) => {
        const at = x(time);
        const isLast = free === Infinity && at > width - RIGHT - APART;
        const shown = isLast || free - at > APART;
        if (shown) free = isLast ? at - APART : at;
        const place = { x: at + (isLast ? -4 : 4), y: TOP + 10, "text-anchor": isLast ? "end" : "start" };
        return svg(
          "g",
          { class: "event" },
          svg("title", `${this.#when(time)} ${text}`),
          svg("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }),
          shown && svg("text", place, text.length > 18 ? `${text.slice(0, 17)}…` : text),
        );
      });
  }

  #cross(shown, x, y) {
    return [
      svg("line", { class: "cross", x1: x(shown.time), x2: x(shown.time), y1: TOP, y2: HEIGHT - BOTTOM }),
      this.lines.map(({ key }, i) =>
        svg("circle", { class: `series${i}`, cx: x(shown.time), cy: y(shown[key] ?? 0), r: 3.5 }),
      ),
    ];
  }
}

/** The samples in parts without a gap: none between two of a part is missing, nor is there a cut. */
export function unbroken(samples, cuts = []) {
  const steps = samples.slice(1).map(({ time }, i) => time - samples[i].time);
  const usual = [...steps].sort((one, other) => one - other)[Math.floor(steps.length / 2)] ?? 0;
  const parts = [];
  samples.forEach((sample, i) => {
    const before = samples[i - 1]?.time;
    const isCut = before === undefined || sample.time - before > Math.max(GAP * usual, LEAST_GAP);
    if (isCut || cuts.some((time) => time > before && time <= sample.time)) parts.push([]);
    parts.at(-1).push(sample);
  });
  return parts;
}

/** The samples of a series as the API gives it. */
export function samplesOf({ times, depth, in_flight: inFlight, in_rate: incoming, out_rate: outgoing }) {
  return times.map((time, i) => ({
    time,
    depth: depth[i],
    in_flight: inFlight[i],
    in_rate: incoming[i],
    out_rate: outgoing[i],
  }));
}

/** What comes in and goes out per second. */
export function ratesChart() {
  const lines = [
    { name: "in", key: "in_rate" },
    { name: "out", key: "out_rate" },
  ];
  return new Chart({ title: "Rates", lines, format: rate });
}

// The next round figure, at least 2 so that the middle of a scale of counts is a whole number.
function ceiling(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 5, 6, 8].map((n) => n * power).find((n) => n >= value) ?? 10 * power;
}
