// The data path of one Gateway: listeners → ways → Services. Widths are requests per second, colours are errors.
const SVG = "http://www.w3.org/2000/svg";
const NARROWEST = 640;
const GAP = 12;
const HEAD = 26;
// Pixels for all requests together.
const THICK = 120;
// Listeners that are drawn, at most.
const MOST = 8;
// Share of responses with 5xx that makes a line red.
const MANY = 0.05;

const WORDS = {
  hot: ["Hot", "out of the front's own memory"],
  cache: ["Cache", "asked for GET with a cache policy"],
  direct: ["Direct", "straight to endpoints, uncached"],
  own: ["Own", "redirects, 404 and the like"],
  varnishd: ["varnishd", "every request goes through VCL"],
};

const ZERO = { requests: 0, errors: 0 };
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value >= 100 ? 0 : 1 });
const rate = (value) => `${number(value)}/s`;
const errors = (value) => `${number(value)} ${number(value) === "1" ? "error" : "errors"}/s`;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const severity = ({ requests, errors }) => (!(errors > 0) ? "ok" : errors < MANY * requests ? "some" : "many");
const flow = (requests, errors) => ({ requests, errors: Math.min(requests, errors) });
const add = (...all) => flow(sum(all.map((one) => one.requests)), sum(all.map((one) => one.errors)));

// What there is to draw: boxes of three columns, and lines between neighbours.
export function describe(gateway, { picture, inFront }) {
  const all = [...picture.sockets, ...(picture.other_sockets ? [picture.other_sockets] : [])];
  const hot = all.some((rates) => rates.hot?.requests > 0) ? ["hot"] : [];
  const ways = inFront ? [...hot, "cache", "direct", "own"] : ["varnishd"];
  const of = (rates, way) => (way === "varnishd" ? add(rates.cache ?? ZERO, rates.direct ?? ZERO, rates.own ?? ZERO) : (rates[way] ?? ZERO));
  const known = new Map();
  for (const listener of gateway?.listeners ?? []) {
    if (listener.protocol === "TLS") continue;
    const names = known.get(listener.socket)?.names ?? [];
    known.set(listener.socket, { names: [...names, listener.name], protocol: listener.protocol, port: listener.port });
  }
  const socket = (name, rates) => {
    const listener = known.get(name);
    const title = !listener ? name || "any listener" : listener.names.length > 1 ? `${listener.names.length} listeners` : listener.names[0];
    return { title, note: listener ? `${listener.protocol} port ${listener.port}` : "", flows: ways.map((way) => of(rates, way)), hits: rates.hits ?? 0 };
  };
  const busy = picture.sockets.map((one) => socket(one.name, one));
  const quiet = [...known.keys()].filter((name) => !picture.sockets.some((one) => one.name === name));
  const idle = quiet.splice(Math.max(0, MOST - busy.length)).length;
  const listeners = [...busy, ...quiet.map((name) => socket(name, {}))];
  if (picture.other_sockets) listeners.push({ ...socket("", picture.other_sockets), title: `${number(picture.other_sockets.count)} others` });
  // Hits end at the cache.
  const reached = (rates) =>
    ways.map((way) => {
      if (way === "own" || way === "hot") return ZERO;
      const all = way === "varnishd" ? add(rates.cache, rates.direct) : of(rates, way);
      return way === "direct" ? all : flow(Math.max(0, all.requests - (rates.hits ?? 0)), all.errors);
    });
  const services = picture.services.map((one) => ({ title: one.name || "no valid backend", note: "", flows: reached(one) }));
  if (picture.other_services) services.push({ title: `${number(picture.other_services.count)} other Services`, note: "", flows: reached(picture.other_services) });
  const hits = sum([...listeners.map((one) => one.hits)]);
  const middle = ways.map((way, place) => {
    const all = add(...listeners.map((one) => one.flows[place]));
    const [title, note] = WORDS[way];
    const asked = way === "cache" || way === "varnishd";
    return { way, title, note, total: all, hits: asked && all.requests > 0 ? hits / all.requests : null };
  });
  return { ways: middle, listeners, idle, services, more: Math.max(0, (gateway?.counts?.services ?? 0) - picture.services.length - (picture.other_services?.count ?? 0)) };
}

// One sentence for those who do not see the picture.
export function summary(name, arrangement, { ways, listeners, services }) {
  const total = add(...ways.map((way) => way.total));
  const parts = ways.map((way) => `${way.title.toLowerCase()} ${rate(way.total.requests)}${way.hits === null ? "" : ` with ${number(100 * way.hits)} % hits`}`);
  const count = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;
  return `Gateway ${name}, data path ${arrangement}: ${number(total.requests)} requests per second from ${count(listeners.length, "listener")} (${parts.join(", ")}) to ${count(services.length, "Service")}, ${number(total.errors)} errors per second`;
}

// The same as rows of a table: from, to, requests, errors, hits.
export function rows({ ways, listeners, services }) {
  const of = (from, to, flow, hits = null) => ({ from, to, ...flow, hits });
  return [
    ...listeners.flatMap((one) => one.flows.map((flow, place) => of(`listener ${one.title}${one.note ? `, ${one.note}` : ""}`, ways[place].title, flow))),
    ...ways.map((way) => of(way.title, "all", way.total, way.hits)),
    ...services.flatMap((one) => one.flows.map((flow, place) => of(ways[place].title, one.title, flow)).filter((row) => row.to && row.requests > 0)),
  ];
}

function make(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const cut = (text, width, character = 7.6) => {
  const most = Math.max(4, Math.floor(width / character));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
};

// A box with up to three lines of text.
function box({ x, y, width, height, title, lines, kind, full }) {
  const group = make("g", { class: `box ${kind}` }, make("title", {}, document.createTextNode(full)));
  group.append(make("rect", { x, y, width, height, rx: 6 }));
  const all = [[title, "name", 8.2], ...lines];
  const first = y + (height - 17 * all.length) / 2 + 13;
  all.forEach(([text, style, character], place) => {
    const shown = cut(text, width - 20, character);
    group.append(make("text", { x: x + 10, y: first + 17 * place, class: style }, document.createTextNode(shown)));
  });
  return group;
}

export function draw(described, label, available) {
  const { ways, listeners, services, idle, more } = described;
  const width = Math.max(NARROWEST, Math.floor(available));
  const boxes = [Math.min(210, width * 0.23), Math.min(270, width * 0.3), Math.min(330, width * 0.3)];
  const left = [1, (boxes[0] + width - boxes[2] - boxes[1]) / 2, width - boxes[2] - 1];
  const total = Math.max(sum(ways.map((way) => way.total.requests)), sum(services.flatMap((one) => one.flows.map((flow) => flow.requests))));
  const thick = ({ requests }) => (requests > 0 ? Math.max(1.5, (THICK * requests) / total) : 0);
  const numbers = (all) => [[`${rate(all.requests)}${all.errors > 0 ? `, ${errors(all.errors)}` : ""}`, `rate ${severity(all)}`, 7.2]];

  const start = listeners.map((one) => {
    const all = add(...one.flows);
    return { ...one, all, lines: [...(one.note ? [[one.note, "note", 6.6]] : []), ...numbers(all)], sides: [0, sum(one.flows.map(thick))] };
  });
  const middle = ways.map((way, place) => {
    const hits = way.hits === null ? "" : `, ${number(100 * way.hits)} % hits`;
    const [[text, style, character]] = numbers(way.total);
    const sides = [sum(listeners.map((one) => thick(one.flows[place]))), sum(services.map((one) => thick(one.flows[place])))];
    const fetched = sum(services.map((one) => one.flows[place].requests));
    const ends = way.hits === null ? [] : [[`${rate(fetched)} fetched from Services`, "note", 6.6]];
    return { ...way, all: way.total, lines: [[way.note, "note", 6.6], [text + hits, style, character], ...ends], sides };
  });
  const nothing = { title: more === 1 ? "1 Service" : `${number(more)} Services`, flows: [], all: flow(0, 0), lines: [["no requests in the last 5 s", "note", 6.6]], sides: [0, 0] };
  const end = services.map((one) => {
    const all = add(...one.flows);
    return { ...one, all, lines: numbers(all), sides: [sum(one.flows.map(thick)), 0] };
  });
  if (end.length === 0) end.push(nothing);
  else if (more > 0) end.push({ ...nothing, title: more === 1 ? "1 more Service" : `${number(more)} more Services` });

  const columns = [start, middle, end];
  for (const one of columns.flat()) one.height = Math.max(20 + 17 * (1 + one.lines.length), Math.max(...one.sides) + 16);
  const heights = columns.map((column) => sum(column.map((one) => one.height)) + GAP * Math.max(0, column.length - 1));
  const height = HEAD + Math.max(...heights) + 2 + (idle > 0 ? 20 : 0);
  const svg = make("svg", { class: "path", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height });
  ["Listeners", "How they are served", "Services"].forEach((text, place) => {
    svg.append(make("text", { x: left[place], y: 14, class: "head" }, document.createTextNode(text)));
  });
  const lines = make("g", {});
  svg.append(lines);
  columns.forEach((column, place) => {
    let y = HEAD + (height - HEAD - 2 - (idle > 0 ? 20 : 0) - heights[place]) / 2;
    for (const one of column) {
      [one.x, one.y, one.width] = [left[place], y, boxes[place]];
      one.in = y + (one.height - one.sides[0]) / 2;
      one.out = y + (one.height - one.sides[1]) / 2;
      y += one.height + GAP;
      const kind = one.way ?? (place === 0 ? "listener" : "service");
      svg.append(box({ ...one, kind, full: [one.title, ...one.lines.map(([text]) => text)].join(", ") }));
    }
  });
  if (idle > 0) svg.append(make("text", { x: 0, y: height - 4, class: "note" }, document.createTextNode(`and ${number(idle)} more without requests`)));

  const line = (from, to, amount) => {
    const wide = thick(amount);
    const [y1, y2] = wide > 0 ? [from.out + wide / 2, to.in + wide / 2] : [from.y + from.height / 2, to.y + to.height / 2];
    if (wide > 0) {
      from.out += wide;
      to.in += wide;
    }
    const [x1, x2] = [from.x + from.width, to.x];
    const bend = (x1 + x2) / 2;
    const attributes = { d: `M${x1} ${y1.toFixed(1)}C${bend} ${y1.toFixed(1)} ${bend} ${y2.toFixed(1)} ${x2} ${y2.toFixed(1)}` };
    const text = `${from.title} → ${to.title}: ${rate(amount.requests)}, ${errors(amount.errors)}`;
    if (wide > 0) attributes["stroke-width"] = wide.toFixed(1);
    lines.append(make("path", { class: wide > 0 ? `line ${severity(amount)}` : "line idle", ...attributes }, make("title", {}, document.createTextNode(text))));
  };
  // From top to bottom on both sides, so that lines cross as little as possible.
  for (const one of start) one.flows.forEach((amount, place) => line(one, middle[place], amount));
  middle.forEach((way, place) => {
    for (const one of end.slice(0, services.length)) if (one.flows[place].requests > 0) line(way, one, one.flows[place]);
    if (services.length === 0 && way.way !== "own" && way.way !== "hot") line(way, end[0], ZERO);
  });
  return svg;
}
