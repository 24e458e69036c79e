// Small SVG charts. Colours come from the style sheet's variables.
const NAMESPACE = "http://www.w3.org/2000/svg";

export function element(name, attributes, text) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Lines over time: series is a list of {values, colour}, oldest value first. */
export function lines(svg, series, label) {
  const width = 320, height = 130, left = 38, bottom = 14;
  const top = Math.max(1e-9, ...series.flatMap((one) => one.values));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-label", `${label}: ${series.map((one) => round(one.values.at(-1) ?? 0)).join(", ")}`);
  svg.replaceChildren();
  for (const share of [0, 0.5, 1]) {
    const y = height - bottom - share * (height - bottom - 8);
    svg.append(element("line", { x1: left, x2: width, y1: y, y2: y, stroke: "var(--line)" }));
    svg.append(element("text", { x: left - 4, y: y + 4, "text-anchor": "end" }, round(top * share)));
  }
  for (const { values, colour } of series) {
    const step = (width - left) / Math.max(1, values.length - 1);
    const points = values.map((v, i) => `${left + i * step},${height - bottom - (v / top) * (height - bottom - 8)}`);
    svg.append(element("polyline", { points: points.join(" "), fill: "none", stroke: colour, "stroke-width": 2 }));
  }
}

/** Bars side by side, with a label under each. */
export function bars(svg, values, labels, label, colour = "var(--blue)") {
  const width = 320, height = 130, bottom = 18;
  const top = Math.max(1, ...values), step = width / Math.max(1, values.length);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-label", `${label}: ${values.map((v, i) => `${labels[i]} ${v}`).join(", ")}`);
  svg.replaceChildren();
  values.forEach((value, i) => {
    const tall = (value / top) * (height - bottom - 14);
    svg.append(element("rect", { x: i * step + 2, y: height - bottom - tall, width: Math.max(1, step - 4), height: tall, fill: colour, rx: 2 }));
    if (values.length <= 16) svg.append(element("text", { x: (i + 0.5) * step, y: height - 5, "text-anchor": "middle" }, labels[i]));
  });
}

export function round(number) {
  if (number === 0) return "0";
  return Math.abs(number) >= 100 ? Math.round(number).toLocaleString("en") : Number(number.toPrecision(3)).toString();
}
