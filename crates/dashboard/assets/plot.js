// Small plots: one line over the last minutes, drawn as SVG.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 200;
const HEIGHT = 40;

// `points` are numbers or null, one a second, the newest last; `most` is the least that the top may stand for.
export function plot(label, points, length, most = 0) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "plot");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const top = Math.max(most, ...points.map((value) => value ?? 0)) || 1;
  const x = (place) => (WIDTH * (length - points.length + place)) / Math.max(1, length - 1);
  const y = (value) => HEIGHT - 2 - ((HEIGHT - 4) * value) / top;
  let line = "";
  let area = "";
  let begun = null;
  points.forEach((value, place) => {
    if (value === null) {
      if (begun !== null) area += `L${x(place - 1).toFixed(1)} ${HEIGHT}Z`;
      begun = null;
      return;
    }
    const at = `${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
    // A point alone has no length: it gets a little.
    line += begun === null ? `M${at}h.5` : `L${at}`;
    area += begun === null ? `M${x(place).toFixed(1)} ${HEIGHT}L${at}` : `L${at}`;
    begun ??= place;
  });
  if (begun !== null) area += `L${x(points.length - 1).toFixed(1)} ${HEIGHT}Z`;
  for (const [kind, path] of [["area", area], ["line", line]]) {
    const element = document.createElementNS(SVG, "path");
    element.setAttribute("class", kind);
    element.setAttribute("d", path);
    svg.append(element);
  }
  return svg;
}

// A plot with its scale: the largest value, 0, and the time.
export function chart(label, points, length, most, format) {
  const top = Math.max(most, ...points.map((value) => value ?? 0)) || 1;
  const part = (name, text) => {
    const element = document.createElement("span");
    element.className = name;
    element.textContent = text;
    return element;
  };
  const element = document.createElement("div");
  element.className = "chart";
  const minutes = length / 60;
  element.append(part("top", format(top)), part("bottom", "0"), plot(label, points, length, most), part("from", `${minutes} minutes ago`), part("to", "now"));
  return element;
}
