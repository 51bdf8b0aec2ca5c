// What the dashboard shows first, before its event stream opens and before it asks for anything: a Gateway with traffic, one with 5,000
// routes, and one with failures. Pictures go to VG_ARTIFACTS, or target/browser; VG_DOCS_PICTURES=1 writes the one of README, too.
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { Agent, createServer, request as ask } from "node:http";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { dir, ended, freePort, gateway, here, listening, play, serve, until, write } from "./stage.mjs";

const ROUTES = 5_000;
const pictures = process.env.VG_ARTIFACTS ?? join(here, "../../target/browser");
mkdirSync(pictures, { recursive: true });

const agent = new Agent({ keepAlive: true, maxSockets: 8 });
const get = (port, host, path) =>
  new Promise((resolve) => {
    const done = (response) => (response.resume(), response.on("end", () => resolve(response.statusCode)));
    ask({ port, host: "127.0.0.1", path, headers: { host }, agent }, done).on("error", () => resolve(0)).end();
  });

const service = (name, endpoint) => `---
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ${name}, labels: {kubernetes.io/service-name: ${name}}}
addressType: IPv4
ports: [{port: ${endpoint}}]
endpoints: [{addresses: ["127.0.0.1"]}]
`;
const route = (name, host, path, backend) => `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: ${name}}
spec:
  parentRefs: [{name: web}]
  hostnames: [${host}]
  rules: [{matches: [{path: {value: ${path}}}], backendRefs: [{name: ${backend}, port: 80}]}]
`;
const policy = (name) => `---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {name: ${name}}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: ${name}}
  forcedTTL: 1m
`;
// As fast as the documents of all scenes are read.
const classes = (text) =>
  text.replace(
    "{controllerName: varnish-software.com/gateway}",
    "{controllerName: varnish-software.com/gateway, parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: front}}",
  ) + `apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: front}
spec: {dataPath: Auto}
`;

// A `serve` of these manifests alone: where its dashboard is, and how to stop it.
async function start(text, line) {
  for (const file of readdirSync(join(dir, "manifests"))) rmSync(join(dir, "manifests", file));
  write("all.yaml", text);
  const board = await freePort();
  const stop = await serve([`dashboard: http://127.0.0.1:${board}/`, line], "--dashboard", `127.0.0.1:${board}`);
  return { url: `http://localhost:${board}/`, stop };
}

// The page with an API that never answers: what it shows then is in the page itself.
async function first(browser, url, parts) {
  const context = await browser.newContext({ colorScheme: "light", viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const [asked, complaints] = [[], []];
  await page.route("**/api/**", (request) => void asked.push(new URL(request.request().url()).pathname));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  const began = Date.now();
  await page.goto(url);
  await page.locator("#pictures svg.path").first().waitFor();
  console.log(`shown after ${Date.now() - began} ms`);
  for (const [selector, part] of parts) {
    const text = await page.locator(selector).innerText();
    assert.ok(text.includes(part), `${selector} should have ${part}:\n${text}`);
  }
  assert.ok((await page.locator("#event-list li").count()) > 0, "events");
  assert.deepEqual(asked.filter((path) => path !== "/api/events"), [], "nothing but the event stream was asked for");
  assert.deepEqual(complaints, [], "the browser complains");
  await context.close();
}

async function picture(browser, url, name, options = {}) {
  const context = await browser.newContext({ colorScheme: options.dark ? "dark" : "light", viewport: { width: 1280, height: options.height ?? 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  await page.goto(url);
  await until("the stream is open", async () => (await page.locator("#connection").innerText()) === "live");
  await options.ready?.(page);
  const path = join(pictures, `${name}.png`);
  await page.screenshot({ path });
  await context.close();
  return path;
}

async function withTraffic(browser, endpoint) {
  const port = await freePort();
  const { url, stop } = await start(
    `${classes(gateway([`{name: http, protocol: HTTP, port: ${port}}`], endpoint))}${["shop", "images", "api"].map((name) => service(name, endpoint)).join("")}${route("shop", "shop.example.com", "/", "shop")}${policy("shop")}${route("images", "shop.example.com", "/images", "images")}${policy("images")}${route("api", "shop.example.com", "/api", "api")}`,
    "Gateway default/web: reloaded",
  );
  let busy = true;
  let count = 0;
  const load = (async () => {
    while (busy) {
      const some = 4 + Math.round(3 * Math.sin(Date.now() / 3_000));
      const paths = Array.from({ length: some }, (_, n) => ["/", `/p/${count % 400}`, `/images/${count % 40}`, `/api/${n}`][(count + n) % 4]);
      count += some;
      const answers = await Promise.all(paths.map((path) => get(port, "shop.example.com", path)));
      assert.ok(answers.every((status) => status === 200), `${paths} ${answers}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  try {
    await until("some seconds are counted", async () => {
      const answer = await (await fetch(`${url}api/traffic`)).json();
      return answer.gateways[0]?.total.rate.filter((value) => value > 0).length > 12;
    });
    await first(browser, url, [
      ["#gateway-list", "serving"],
      ["#listener-table", String(port)],
      ["#route-table", "HTTPRoute default/shop"],
      ["#route-table", `127.0.0.1:${endpoint}`],
      ["#totals", "Requests a second"],
      ["#path", "default/shop:80"],
    ]);
    const light = await picture(browser, url, "dashboard-traffic");
    const dark = await picture(browser, url, "dashboard-traffic-dark", { dark: true });
    if (process.env.VG_DOCS_PICTURES) {
      copyFileSync(light, join(here, "../../docs/pictures/dashboard.png"));
      copyFileSync(dark, join(here, "../../docs/pictures/dashboard-dark.png"));
    }
  } finally {
    busy = false;
    await load;
    await stop();
  }
  console.log("ok: a Gateway with traffic is shown at once");
}

async function withManyRoutes(browser, endpoint) {
  const port = await freePort();
  const routes = Array.from({ length: ROUTES }, (_, n) => route(`route-${String(n).padStart(4, "0")}`, `host-${n % 500}.example.com`, `/part-${n}`, "origin"));
  const { url, stop } = await start(`${classes(gateway([`{name: http, protocol: HTTP, port: ${port}}`], endpoint))}${routes.join("")}`, "Gateway default/web: reloaded");
  await until("the newest route answers", async () => (await get(port, `host-${(ROUTES - 1) % 500}.example.com`, `/part-${ROUTES - 1}`)) === 200);
  const html = await (await fetch(url)).text();
  assert.ok(html.length < 400_000, `the page has ${html.length} bytes: it must not grow with the routes`);
  await first(browser, url, [
    ["#gateway-list", `${ROUTES.toLocaleString("en")} (`],
    ["#route-count", `1 to 50 of ${ROUTES.toLocaleString("en")}`],
    ["#route-table", "HTTPRoute default/route-"],
  ]);
  await picture(browser, url, "dashboard-5000-routes", {
    ready: async (page) => {
      await page.locator("#route-query").fill("part-4321");
      await until("the filter", async () => (await page.locator("#route-table tbody tr").count()) === 1);
    },
  });
  await stop();
  console.log("ok: a Gateway with 5,000 routes is shown at once, by a page of the same size");
}

async function withFailures(browser, endpoint) {
  const [port, closed] = [await freePort(), await freePort()];
  // Another process has this port.
  const taken = await listening(createServer());
  const listeners = [`{name: http, protocol: HTTP, port: ${port}}`, `{name: taken, protocol: HTTP, port: ${taken}}`];
  const { url, stop } = await start(
    `${classes(gateway(listeners, endpoint))}${service("down", closed)}${route("down", "shop.example.com", "/down", "down")}${route("nowhere", "shop.example.com", "/nowhere", "nowhere")}`,
    "nowhere",
  );
  await until("requests fail", async () => {
    await get(port, "shop.example.com", "/down");
    await get(port, "shop.example.com", "/nowhere");
    const answer = await (await fetch(`${url}api/traffic`)).json();
    return answer.gateways[0]?.total.errors.filter((value) => value > 0).length > 2;
  });
  await first(browser, url, [
    ["#listener-table", "not open"],
    ["#gateway-list", "serving, not all listeners"],
    ["#route-table", "HTTPRoute default/down"],
    ["#route-table", `127.0.0.1:${closed}`],
    ["#event-list", "nowhere"],
    ["#totals", "Errors a second"],
  ]);
  await picture(browser, url, "dashboard-failures");
  await stop();
  console.log("ok: failures are shown at once: a closed listener, an endpoint that is down, a Service that does not exist");
}

async function main() {
  const origin = createServer((_, response) => response.end("hello".repeat(200)));
  const endpoint = await listening(origin);
  ended.push(() => origin.closeAllConnections(), () => agent.destroy());
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"], timeout: 90_000 });
  ended.push(() => browser.close());
  await withTraffic(browser, endpoint);
  await withManyRoutes(browser, endpoint);
  await withFailures(browser, endpoint);
}

await play(main);
