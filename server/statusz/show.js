// Numbers as people read them, and the page's small parts.

const SVG = "http://www.w3.org/2000/svg";

export function scaled(number, unit, step = 1000) {
  const names = step === 1024
    ? ["", "Ki", "Mi", "Gi", "Ti"] : ["", "k", "M", "G", "T", "P"];
  let power = 0;
  while (Math.abs(number) >= step && power < names.length - 1) {
    number /= step;
    ++power;
  }
  const digits = power === 0 && Number.isInteger(number)
    ? 0 : Math.abs(number) < 100 ? 1 : 0;
  return `${number.toFixed(digits)} ${names[power]}${unit}`.trim();
}

export function bytes(number) {
  return scaled(number, "B", 1024);
}

export function seconds(number) {
  if (Number.isNaN(number)) return "-";
  if (number === Infinity) return "over 60 s";
  if (number === 0) return "0 s";
  if (number < 1e-3) return `${(number * 1e6).toPrecision(3)} µs`;
  if (number < 1) return `${(number * 1e3).toPrecision(3)} ms`;
  return `${number.toPrecision(3)} s`;
}

// An element with text; attributes by name.
export function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, v] of Object.entries(attributes)) made.setAttribute(key, v);
  return made;
}

// Attributes that tie a shown number to the sample of /metrics it is.
export function source(family, labels, number) {
  const names = Object.entries(labels).map(([k, v]) => `${k}="${v}"`);
  return {
    "data-metric": family + (names.length ? `{${names.join(",")}}` : ""),
    "data-value": number,
  };
}

// A table row; the first cell is its header.
export function row(cells) {
  const made = document.createElement("tr");
  cells.forEach((cell, i) => {
    const td = cell instanceof Node && cell.nodeName === "TD"
      ? cell : element(i === 0 ? "th" : "td");
    if (i === 0) td.setAttribute("scope", "row");
    if (td !== cell) td.append(cell);
    made.append(td);
  });
  return made;
}

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, v] of Object.entries(attributes)) made.setAttribute(key, v);
  return made;
}

// A line over `values`, oldest first; NaN is a gap. At most `width` of them.
export function spark(values, width, label) {
  const plot = svg("svg", {
    class: "spark", viewBox: `0 0 ${width} 30`, preserveAspectRatio: "none",
    role: "img", "aria-label": label,
  });
  const most = Math.max(...values.filter(Number.isFinite), 1e-9);
  let points = [];
  const flush = () => {
    if (points.length === 1) points.push(points[0].replace(/^[\d.]+/, (x) =>
      String(Number(x) + 1)));
    if (points.length) plot.append(svg("polyline", {points: points.join(" ")}));
    points = [];
  };
  values.forEach((v, i) => {
    if (!Number.isFinite(v)) return flush();
    const x = width - values.length + i;
    points.push(`${x},${(29 - 28 * v / most).toFixed(1)}`);
  });
  flush();
  return plot;
}

// Horizontal bars for [name, count]; names and counts are text in the plot.
export function bars(rows, label) {
  const height = 18;
  const plot = svg("svg", {
    class: "bars", viewBox: `0 0 300 ${Math.max(rows.length, 1) * height}`,
    role: "img", "aria-label": label,
  });
  const most = Math.max(...rows.map(([, count]) => count), 1);
  rows.forEach(([name, count], i) => {
    const top = i * height;
    const text = svg("text", {x: 78, y: top + 13, "text-anchor": "end"});
    text.textContent = name;
    const width = 160 * count / most;
    const number = svg("text", {x: 90 + width, y: top + 13});
    number.textContent = String(count);
    plot.append(text, svg("rect", {x: 84, y: top + 3, width, height: 12}),
      number);
  });
  return plot;
}
