// The page. What it shows comes from /api; whatever is text stays text.
import { describe, draw, rows as pathRows, summary } from "/picture.js";
import { chart, plot } from "/plot.js";

const PAGE = 50;
const EVENTS = 300;
// Gateways whose data path is drawn, the busiest first; all are in the table.
const PICTURES = 4;
const $ = (id) => document.getElementById(id);
const seen = { state: null, kept: 180, totals: new Map(), paths: new Map(), rules: new Map(), offset: 0, rows: [], total: 0, event: 0, live: false };

// An element with attributes and children. Texts become text nodes: nothing is ever parsed as HTML.
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

async function ask(path, options) {
  const response = await fetch(path, { cache: "no-store", ...options });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

const number = (value, digits = 1) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: value >= 100 ? 0 : digits });
const percent = (value) => (value === null || value === undefined ? "–" : `${number(100 * value)} %`);
const milliseconds = (value) => (value === null || value === undefined ? "–" : `${number(value)} ms`);
const bytes = (value) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(value)} ${units[unit]}`;
};
const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });
const plural = (count, one, many = `${one}s`) => `${number(count, 0)} ${count === 1 ? one : many}`;

function fill(table, rows, empty) {
  const body = table.tBodies[0];
  const columns = table.tHead.rows[0].cells.length;
  body.replaceChildren(...(rows.length > 0 ? rows : [el("tr", {}, el("td", { colspan: columns, class: "empty" }, empty))]));
}

// ---- what is served

function stateOf(gateway) {
  if (gateway.draining) return ["warning", "draining"];
  if (!gateway.serving) return ["error", "not serving"];
  if (gateway.refused) return ["warning", "serving, but the newest configuration is refused"];
  if (gateway.listeners.some((listener) => !listener.address)) return ["warning", "serving, not all listeners"];
  return ["good", "serving"];
}

function gatewayCard(gateway) {
  const [kind, word] = stateOf(gateway);
  const { counts } = gateway;
  const facts = [
    ["Data path", gateway.arrangement?.name ? `${gateway.arrangement.name} (${gateway.arrangement.why})` : "–"],
    ["Listeners", number(gateway.listeners.length)],
    ["Routes", `${number(counts.routes)} (${plural(counts.rules, "match", "matches")}, ${plural(counts.hosts, "host")})`],
    ["Endpoints", `${number(counts.endpoints)} of ${plural(counts.services, "Service")}`],
  ];
  if (gateway.last_reload) facts.push(["Last reload", `${clock(gateway.last_reload.at)}, ${milliseconds(gateway.last_reload.milliseconds)}`]);
  if (gateway.last_change) {
    const { at, milliseconds: took, steps } = gateway.last_change;
    const parts = steps.map((step) => `${step.name} ${milliseconds(step.milliseconds)}`).join(", ");
    facts.push(["Last change", `${clock(at)}, served after ${milliseconds(took)} (${parts})`]);
  }
  if (gateway.cache) {
    const { used, objects, stored, limit, transient, transient_limit, evicted } = gateway.cache;
    const of = (value, most) => (most > 0 ? `${bytes(value)} of ${bytes(most)} (${percent(value / most)})` : `${bytes(value)}, no limit`);
    facts.push(["Cache", `${plural(objects, "object")} in ${bytes(used)}${evicted > 0 ? `, ${plural(evicted, "object")} evicted` : ""}`]);
    facts.push(["Storage", of(stored, limit)]);
    facts.push(["Transient", `${of(transient, transient_limit)}; objects with a TTL below 10 s, and uncached responses`]);
  }
  return el(
    "article",
    { class: "card", "data-gateway": gateway.name },
    el("h3", {}, gateway.name),
    el("p", { class: `state ${kind}` }, word),
    gateway.refused ? el("p", { class: "notice warning" }, gateway.refused) : null,
    (gateway.problems ?? []).map((problem) => el("p", { class: "notice warning" }, problem)),
    el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
  );
}

function listenerRow(gateway, listener) {
  return el(
    "tr",
    {},
    el("td", {}, gateway.name),
    el("th", { scope: "row" }, listener.name),
    el("td", {}, listener.protocol),
    el("td", { class: "number" }, String(listener.port)),
    el("td", {}, listener.hostname),
    listener.address ? el("td", { class: "good" }, listener.address) : el("td", { class: "error" }, "not open"),
    el("td", { class: "number" }, number(listener.routes, 0)),
  );
}

function certificateRow(gateway, certificate, now) {
  const days = (certificate.not_after * 1000 - now) / 86_400_000;
  const kind = days < 0 ? "error" : days < 14 ? "warning" : "good";
  const left = days < 0 ? "expired" : days < 2 ? `${number(days * 24, 0)} hours` : `${number(Math.floor(days), 0)} days`;
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, certificate.names.join(", ") || "no names"),
    el("td", {}, certificate.secret || "–"),
    el("td", {}, gateway.name),
    el("td", {}, certificate.sockets.join(", ")),
    el("td", { class: "number" }, new Date(certificate.not_after * 1000).toISOString().slice(0, 16).replace("T", " ")),
    el("td", { class: kind }, left),
  );
}

function tlsTable(gateways) {
  const all = gateways.flatMap((gateway) => (gateway.tls_hosts ?? []).map((host) => ({ gateway, host })));
  if (all.length === 0) return [];
  const row = ({ gateway, host }) =>
    el("tr", {}, el("th", { scope: "row" }, host.hostname), el("td", {}, host.socket), el("td", {}, gateway.name), el("td", {}, host.mode), el("td", {}, backends(host.groups)));
  const head = ["Host", "Socket", "Gateway", "TLS", "Endpoints"].map((name) => el("th", { scope: "col" }, name));
  return [
    el("h3", { id: "tls-title" }, "By TLS alone (TLSRoutes)"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "tls-title" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, all.map(row)))),
  ];
}

function streamTable(gateways) {
  const all = gateways.flatMap((gateway) => (gateway.streams ?? []).map((stream) => ({ gateway, stream })));
  if (all.length === 0) return [];
  const count = (number) => el("td", { class: "number" }, number.toLocaleString("en"));
  const row = ({ gateway, stream }) =>
    el("tr", {}, el("th", { scope: "row" }, `${stream.kind} ${stream.route || "(none)"}`), el("td", {}, gateway.name), count(stream.connections), count(stream.open), count(stream.bytes_in), count(stream.bytes_out), count(stream.lost));
  const head = ["Route", "Gateway", "Connections", "Open", "Bytes in", "Bytes out", "Lost"].map((name) => el("th", { scope: "col" }, name));
  return [
    el("h3", { id: "stream-title" }, "TCPRoutes and UDPRoutes"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "stream-title" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, all.map(row)))),
  ];
}

function showState(state) {
  seen.state = state;
  $("version").textContent = [state.version, state.engine].filter(Boolean).join(" · ");
  const { gateways } = state;
  $("gateway-list").replaceChildren(...(gateways.length > 0 ? gateways.map(gatewayCard) : [el("p", { class: "empty" }, "No Gateway is served.")]));
  fill($("listener-table"), gateways.flatMap((gateway) => gateway.listeners.map((listener) => listenerRow(gateway, listener))), "No listener.");
  fill($("certificate-table"), gateways.flatMap((gateway) => gateway.certificates.map((one) => certificateRow(gateway, one, state.now))), "No certificate is shown to clients.");
  $("tls-routes").replaceChildren(...tlsTable(gateways), ...streamTable(gateways));
  $("purge").hidden = !state.allow_actions;
  showPaths();
  for (const name of seen.paths.keys()) if (!gateways.some((gateway) => gateway.name === name)) seen.paths.delete(name);
  for (const name of seen.totals.keys()) if (!gateways.some((gateway) => gateway.name === name)) seen.totals.delete(name);
}

// ---- the data path

const NO_TRAFFIC = { sockets: [], services: [] };

function showPaths() {
  const gateways = (seen.state?.gateways ?? []).filter((gateway) => gateway.serving || seen.paths.has(gateway.name));
  const all = gateways.map((gateway) => {
    const path = seen.paths.get(gateway.name) ?? { picture: NO_TRAFFIC, inFront: gateway.arrangement?.name === "Front" };
    const described = describe(gateway, path);
    const busy = described.ways.reduce((total, way) => total + way.total.requests, 0);
    return { gateway, described, busy, uncounted: path.uncounted, arrangement: path.inFront ? "Front" : "Varnish" };
  });
  const drawn = [...all].sort((one, other) => other.busy - one.busy).slice(0, PICTURES);
  const width = $("pictures").clientWidth;
  const figures = drawn.map(({ gateway, described, uncounted, arrangement }) => {
    const caption = [el("strong", {}, gateway.name), ` data path ${arrangement}${gateway.arrangement?.why ? ` (${gateway.arrangement.why})` : ""}`];
    if (uncounted) return el("p", { class: "empty" }, ...caption, ": requests are not counted, as metrics.perRoute is false.");
    const picture = draw(described, summary(gateway.name, arrangement, described), width);
    return el("figure", { "data-gateway": gateway.name }, el("figcaption", {}, ...caption), el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `data path of ${gateway.name}` }, picture));
  });
  if (all.length > drawn.length) figures.push(el("p", { class: "quiet" }, `${plural(all.length - drawn.length, "Gateway")} with fewer requests: in the table.`));
  $("pictures").replaceChildren(...(figures.length > 0 ? figures : [el("p", { class: "empty" }, "No Gateway is served.")]));
  if (!$("path-details").open) return;
  const row = ({ gateway }, { from, to, requests, errors, hits }) =>
    el(
      "tr",
      {},
      el("td", {}, gateway.name),
      el("th", { scope: "row" }, from),
      el("td", {}, to),
      el("td", { class: "number" }, number(requests)),
      el("td", { class: errors > 0 ? "number error" : "number" }, number(errors)),
      el("td", { class: "number" }, percent(hits)),
    );
  fill($("path-table"), all.flatMap((one) => pathRows(one.described).map((path) => row(one, path))), "No Gateway is served.");
}

// ---- routes

const HEALTH = { up: ["good", "up"], failing: ["error", "failing"], untried: ["quiet", "untried"] };

function backends(groups) {
  if (groups.length === 0) return "–";
  return el(
    "ul",
    {},
    groups.map((group) => {
      const share = groups.length > 1 ? ` ${number(group.share)} %` : "";
      const name = group.name || "not valid";
      const endpoints = group.endpoints.slice(0, 5).map((endpoint) => {
        const [kind, word] = HEALTH[endpoint.health] ?? HEALTH.untried;
        return el("li", { class: "endpoint" }, `${endpoint.address} `, el("span", { class: kind }, word));
      });
      if (group.endpoints.length > 5) endpoints.push(el("li", { class: "quiet" }, `and ${group.endpoints.length - 5} more`));
      if (group.endpoints.length === 0) endpoints.push(el("li", { class: "error" }, "no endpoints"));
      return el("li", {}, el("span", {}, `${name}${share}${group.tls ? ", TLS" : ""}`), el("ul", {}, endpoints));
    }),
  );
}

const ruleKey = (gateway, kind, route, rule) => [gateway, kind, route, rule].join("\n");
const COLUMNS = [
  ["rate", (value) => number(value ?? 0), "requests a second", 1],
  ["hits", percent, "hit ratio", 1],
  ["p95", milliseconds, "latency, p95", 1],
  ["errors", (value) => number(value ?? 0), "errors a second", 1],
];

function last(values) {
  for (let place = values.length - 1; place >= Math.max(0, values.length - 5); place -= 1) if (values[place] !== null) return values[place];
  return null;
}

function traffic(cells, series) {
  COLUMNS.forEach(([column, format, label, most], place) => {
    const values = series?.[column] ?? [];
    if (values.length === 0) {
      cells[place].replaceChildren(el("span", { class: "quiet" }, "–"));
      return;
    }
    const now = format(column === "rate" || column === "errors" ? values.at(-1) : last(values));
    cells[place].replaceChildren(el("span", { class: "number" }, now), plot(`${label}, last ${seen.kept / 60} minutes; now ${now}`, values, seen.kept, most));
  });
}

function routeRow(row) {
  const rule = row.rule_name ? `rule ${row.rule} ${row.rule_name}` : `rule ${row.rule}`;
  const hosts = row.hosts.length > 3 ? `${row.hosts.slice(0, 3).join(", ")} and ${row.hosts.length - 3} more` : row.hosts.join(", ");
  const cells = COLUMNS.map(() => el("td", { class: "number" }));
  const key = ruleKey(row.gateway, row.kind, row.route, row.rule);
  if (row.traffic) seen.rules.set(key, row.traffic);
  traffic(cells, row.traffic);
  row.cells = cells;
  row.key = key;
  return el(
    "tr",
    {},
    el("td", {}, hosts),
    el("td", {}, el("code", {}, row.conditions), ...(row.filters ?? []).map((text) => el("div", { class: "quiet" }, text))),
    el("th", { scope: "row" }, `${row.kind} ${row.route}`, el("div", { class: "quiet" }, `${rule}, Gateway ${row.gateway}`)),
    el("td", {}, backends(row.groups)),
    el("td", {}, row.cache ?? el("span", { class: "quiet" }, "bypassed"), row.way ? el("div", { class: "quiet" }, `way: ${row.way}`) : null),
    cells,
  );
}

async function loadRoutes() {
  const query = new URLSearchParams({ q: $("route-query").value, limit: PAGE, offset: seen.offset });
  const found = await ask(`/api/routes?${query}`);
  if (seen.offset > 0 && found.rows.length === 0) {
    seen.offset = 0;
    return loadRoutes();
  }
  showRoutes(found);
}

function showRoutes({ rows, total }) {
  seen.rules.clear();
  seen.rows = rows;
  seen.total = total;
  fill($("route-table"), rows.map(routeRow), $("route-query").value ? "No route fits the filter." : "No route.");
  const end = seen.offset + rows.length;
  $("route-count").textContent = total === 0 ? "" : total > PAGE ? `${seen.offset + 1} to ${end} of ${number(total, 0)}` : plural(total, "match", "matches");
  $("previous").disabled = seen.offset === 0;
  $("next").disabled = end >= total;
  document.querySelector(".pager").hidden = total <= PAGE;
}

// ---- numbers

function showTotals() {
  const cards = [];
  for (const [name, { series, inFlight, uncounted }] of seen.totals) {
    if (uncounted) {
      cards.push(el("p", { class: "empty" }, `${name}: requests are not counted (metrics.perRoute is false), ${number(inFlight, 0)} in flight.`));
      continue;
    }
    for (const [column, format, label, most] of COLUMNS) {
      const values = series[column];
      const now = format(column === "rate" || column === "errors" ? values.at(-1) : last(values));
      cards.push(
        el(
          "article",
          { class: "card", "data-column": column },
          el("h3", {}, label[0].toUpperCase() + label.slice(1)),
          el("p", { class: "quiet" }, column === "rate" ? `${name}, ${number(inFlight, 0)} in flight` : name),
          el("p", { class: "number" }, now),
          chart(`${label} of ${name}, last ${seen.kept / 60} minutes; now ${now}`, values, seen.kept, most, format),
        ),
      );
    }
  }
  $("totals").replaceChildren(...(cards.length > 0 ? cards : [el("p", { class: "empty" }, "Waiting for data.")]));
}

async function loadTraffic() {
  showTraffic(await ask("/api/traffic"));
}

function showTraffic({ kept, gateways }) {
  seen.kept = kept;
  seen.totals = new Map(gateways.map(({ gateway, total, in_flight, per_route }) => [gateway, { series: total, inFlight: in_flight, uncounted: !per_route }]));
  for (const { gateway, picture, in_front, per_route } of gateways) seen.paths.set(gateway, { picture, inFront: in_front, uncounted: !per_route });
  showTotals();
  showPaths();
}

const SILENT = { rate: 0, errors: 0, hits: null, mean: null, p95: null };

function append(series, point) {
  for (const column of Object.keys(SILENT)) {
    series[column].push(point[column]);
    if (series[column].length > seen.kept) series[column].shift();
  }
}

function takeSecond(second) {
  const total = seen.totals.get(second.gateway) ?? { series: { rate: [], errors: [], hits: [], mean: [], p95: [] } };
  append(total.series, second.total);
  total.inFlight = second.in_flight;
  total.uncounted = second.uncounted ?? false;
  seen.totals.set(second.gateway, total);
  const points = new Map(second.rules.map((rule) => [ruleKey(second.gateway, rule.kind, rule.route, rule.rule), rule]));
  const told = new Set();
  for (const row of seen.rows.filter((row) => row.gateway === second.gateway)) {
    const point = points.get(row.key);
    if (!seen.rules.has(row.key)) {
      if (!point) continue;
      seen.rules.set(row.key, { rate: [], errors: [], hits: [], mean: [], p95: [] });
    }
    const series = seen.rules.get(row.key);
    if (!told.has(row.key)) append(series, point ?? SILENT);
    told.add(row.key);
    if (!document.hidden) traffic(row.cells, series);
  }
  seen.paths.set(second.gateway, { picture: second.picture, inFront: second.in_front, uncounted: second.uncounted ?? false });
  if (!document.hidden) {
    showTotals();
    showPaths();
  }
}

// ---- events

function showEvent(entry) {
  const list = $("event-list");
  seen.event = Math.max(seen.event, entry.id);
  const about = entry.gateway ? `${entry.gateway}: ` : "";
  list.prepend(
    el(
      "li",
      { class: entry.severity, "data-id": entry.id },
      el("time", { datetime: new Date(entry.at).toISOString() }, clock(entry.at)),
      el("span", { class: `kind ${entry.severity}` }, entry.severity === "info" ? entry.kind : `${entry.severity}: ${entry.kind}`),
      el("span", { class: "text" }, about + entry.text),
    ),
  );
  while (list.children.length > EVENTS) list.lastElementChild.remove();
}

// ---- questions

async function explain(event) {
  event.preventDefault();
  const form = new FormData(event.target);
  const query = new URLSearchParams({ method: form.get("method"), host: form.get("host"), path: form.get("path") });
  for (const line of form.get("headers").split("\n").filter((line) => line.trim())) query.append("header", line);
  try {
    const all = await ask(`/api/explain?${query}`);
    const article = (one) =>
      el(
        "article",
        {},
        el("h3", {}, `Gateway ${one.gateway}, ${one.socket}, ${one.listener}`),
        el(
          "dl",
          {},
          [["Path", one.path], ["Host", one.host], ["Route", one.route], ["Answer", one.answer], ["Problem", one.problem], ["Way", one.way], ["Cache", one.cache]]
            .filter(([, value]) => value)
            .map(([name, value]) => [el("dt", {}, name), el("dd", { "data-fact": name.toLowerCase() }, value)]),
        ),
        one.others.length > 0
          ? el("details", {}, el("summary", {}, `Why not the others (${one.others.length + one.more})`), el("ul", {}, one.others.map(({ rule, why }) => el("li", {}, `${rule}: ${why}`))))
          : null,
      );
    $("explained").replaceChildren(...(all.length > 0 ? all.map(article) : [el("p", { class: "empty" }, "No Gateway has a listener for this.")]));
  } catch (error) {
    $("explained").replaceChildren(el("p", { class: "notice error" }, error.message));
  }
}

async function purge(event) {
  event.preventDefault();
  const form = new FormData(event.target);
  const text = (name) => form.get(name).trim();
  const body = { method: form.get("soft") ? "SoftPurge" : "Purge" };
  if (text("host")) body.hostname = text("host");
  if (text("path")) body.paths = [text("path")];
  if (text("tag")) body.tags = [text("tag")];
  const headers = { "content-type": "application/json", "x-varnish-gateway": "dashboard" };
  try {
    const done = await ask("/api/purge", { method: "POST", headers, body: JSON.stringify(body) });
    $("purged").replaceChildren(...done.map(({ gateway, summary }) => el("p", {}, `Gateway ${gateway}: ${summary}`)));
  } catch (error) {
    $("purged").replaceChildren(el("p", { class: "notice error" }, error.message));
  }
}

// ---- dark and light

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  };
  const show = (chosen) => {
    const dark = chosen ? chosen === "dark" : system.matches;
    if (chosen) document.documentElement.dataset.theme = chosen;
    $("theme").setAttribute("aria-pressed", String(dark));
  };
  show(stored());
  system.addEventListener("change", () => show(document.documentElement.dataset.theme));
  $("theme").addEventListener("click", () => {
    const chosen = $("theme").getAttribute("aria-pressed") === "true" ? "light" : "dark";
    try {
      localStorage.setItem("theme", chosen);
    } catch {
      // It holds for this page, then.
    }
    show(chosen);
  });
}

// ---- the whole

// One at a time; what is asked for meanwhile is asked for once more.
function once(work) {
  let running = false;
  let again = false;
  return async () => {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      do {
        again = false;
        await work();
      } while (again);
    } catch (error) {
      lost(error.message);
    } finally {
      running = false;
    }
  };
}

function lost(why) {
  seen.live = false;
  $("connection").className = "lost";
  $("connection").textContent = why;
}

// Health and the cache's fill change without an event. Without events, numbers are asked for, too.
setInterval(() => {
  if (document.hidden) return;
  refresh();
  if (!seen.live) measure();
}, 10_000);

const refresh = once(async () => {
  showState(await ask("/api/state"));
  await loadRoutes();
});

const measure = once(loadTraffic);

function start() {
  refresh();
  measure();
}

// What the server wrote into the page: drawn before anything else is asked for.
function showFirst() {
  const text = $("first").textContent;
  if (!text) return false;
  const { state, routes, traffic, journal } = JSON.parse(text);
  showState(state);
  showRoutes(routes);
  showTraffic(traffic);
  journal.forEach(showEvent);
  return true;
}

function follow() {
  // The page may have events already.
  const events = new EventSource(`/api/events?after=${seen.event}`);
  events.addEventListener("open", () => {
    $("connection").className = "";
    $("connection").textContent = "live";
    seen.live = true;
    // Something may have changed since.
    start();
  });
  events.addEventListener("error", () => lost("no connection; what is shown may be old"));
  events.addEventListener("entry", (event) => showEvent(JSON.parse(event.data)));
  events.addEventListener("second", (event) => takeSecond(JSON.parse(event.data)));
  events.addEventListener("changed", refresh);
}

theme();
$("route-filter").addEventListener("submit", (event) => event.preventDefault());
let waiting;
$("route-query").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    seen.offset = 0;
    refresh();
  }, 200);
});
$("previous").addEventListener("click", () => {
  seen.offset = Math.max(0, seen.offset - PAGE);
  refresh();
});
$("next").addEventListener("click", () => {
  seen.offset += PAGE;
  refresh();
});
$("explain-form").addEventListener("submit", explain);
$("purge-form").addEventListener("submit", purge);
$("only-problems").addEventListener("change", (event) => $("event-list").classList.toggle("only-problems", event.target.checked));
$("path-details").addEventListener("toggle", showPaths);
window.addEventListener("resize", showPaths);
// Without waiting for the stream of events: it may take a moment to open.
if (!showFirst()) start();
follow();
