// The picture of the data path, with made-up numbers: what it draws in each arrangement, with errors, without requests, and with thousands
// of Services. The page is the real one; the API is played by this file. Pictures go to VG_ARTIFACTS, or target/browser.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { ended, here, listening, play, until } from "./stage.mjs";

const assets = join(here, "../../crates/dashboard/assets");
const pictures = process.env.VG_ARTIFACTS ?? join(here, "../../target/browser");
mkdirSync(pictures, { recursive: true });

const rates = (cache, direct, own, hits = 0, errors = [0, 0, 0]) => ({
  cache: { requests: cache, errors: errors[0] },
  direct: { requests: direct, errors: errors[1] },
  own: { requests: own, errors: errors[2] },
  hits,
});
const listener = (name, protocol, port) => ({ name, protocol, port, hostname: "*", socket: `${protocol.toLowerCase()}-${port}`, address: `0.0.0.0:${port}`, routes: 3 });
const gateway = (name, more) => ({
  name: "default/web",
  serving: true,
  draining: false,
  arrangement: { name, why: name === "Front" ? "dataPath: Auto" : "user VCL" },
  listeners: [listener("plain", "HTTP", 80), listener("secure", "HTTPS", 443)],
  certificates: [],
  counts: { hosts: 3, routes: 5, rules: 7, services: 4, endpoints: 9 },
  cache: { used: 763_904, objects: 746, stored: 576, limit: 268_435_456, transient: 763_328, transient_limit: 0, evicted: 0 },
  ...more,
});
const busy = {
  sockets: [
    { name: "https-443", ...rates(840, 310, 14, 790, [0, 40, 0]) },
    { name: "http-80", ...rates(60, 55, 31, 50) },
  ],
  services: [
    { name: "default/shop:80", ...rates(700, 20, 0, 660) },
    { name: "default/api-with-quite-a-long-name:8080", ...rates(0, 250, 0) },
    { name: "default/images:80", ...rates(200, 0, 0, 180, [1, 0, 0]) },
    { name: "default/cart:80", ...rates(0, 95, 0, 0, [0, 40, 0]) },
  ],
};
const many = {
  sockets: [{ name: "https-443", ...rates(0, 5_008, 0) }],
  services: Array.from({ length: 8 }, (_, n) => ({ name: `team-${n}/service-${n}:80`, ...rates(0, 20 - n, 0) })),
  other_services: { count: 4_992, ...rates(0, 4_876, 0) },
};
const none = { sockets: [], services: [] };
const long = Array.from({ length: 30 }, (_, n) => listener(`listener-${n}`, "HTTP", 8000 + n));
const scenes = {
  front: [gateway("Front"), busy],
  varnish: [gateway("Varnish"), { ...busy, sockets: [{ name: "http-80", ...rates(900, 0, 31, 840, [41, 0, 0]) }] }],
  idle: [gateway("Front"), none],
  many: [gateway("Front", { counts: { hosts: 1, routes: 5_000, rules: 5_000, services: 5_000, endpoints: 5_000 } }), many],
  listeners: [gateway("Front", { listeners: long }), { ...none, sockets: [{ name: "http-8007", ...rates(0, 1, 0) }] }],
};

async function main() {
  let scene = scenes.front;
  const kept = 180;
  const wave = Array.from({ length: kept }, (_, n) => 1200 + 120 * Math.sin(n / 9));
  const total = { rate: wave, errors: wave.map((value) => value / 30), hits: wave.map(() => 0.93), mean: wave.map((value) => value / 100), p95: wave.map((value) => value / 40) };
  const types = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
  // As in crates/dashboard/src/answer.rs.
  const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
  const server = createServer((request, response) => {
    const [shown, picture] = scene;
    const inFront = shown.arrangement.name === "Front";
    const api = {
      "/api/state": { version: "0.0.0", started: 0, now: Date.now(), allow_actions: false, gateways: [shown] },
      "/api/routes": { total: 0, rows: [] },
      "/api/traffic": { kept, gateways: [{ gateway: shown.name, in_flight: 12, per_route: true, total, in_front: inFront, picture }] },
    };
    const path = new URL(request.url, "http://localhost").pathname;
    response.setHeader("Content-Security-Policy", policy);
    // The stream of events never opens: the page must show what there is without it.
    if (path === "/api/events") return;
    if (api[path]) {
      response.setHeader("Content-Type", "application/json");
      response.end(JSON.stringify(api[path]));
      return;
    }
    const file = path === "/" ? "index.html" : path.slice(1);
    response.setHeader("Content-Type", types[file.split(".").pop()] ?? "text/plain");
    response.end(readFileSync(join(assets, file)));
  });
  const url = `http://127.0.0.1:${await listening(server)}/`;
  ended.push(() => server.closeAllConnections());

  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"], timeout: 90_000 });
  ended.push(() => browser.close());
  const open = async (name, options = {}) => {
    scene = scenes[name];
    const context = await browser.newContext({ colorScheme: options.dark ? "dark" : "light", viewport: { width: options.width ?? 1280, height: 900 } });
    const page = await context.newPage();
    page.setDefaultTimeout(90_000);
    const complaints = [];
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    await page.goto(url);
    await page.locator("svg.path").waitFor();
    await page.locator("#totals svg.plot").first().waitFor();
    await page.screenshot({ path: join(pictures, `picture-${name}${options.dark ? "-dark" : ""}${options.width ? `-${options.width}` : ""}.png`) });
    const texts = () => page.locator("svg.path text").allTextContents();
    const lines = (kind) => page.locator(`svg.path .line.${kind}`).count();
    const close = async () => {
      assert.deepEqual(complaints, [], `${name}: the browser complains`);
      await context.close();
    };
    return { page, texts, lines, close };
  };

  const front = await open("front");
  const texts = (await front.texts()).join("\n");
  for (const part of ["plain", "HTTPS port 443", "Cache", "Direct", "Own", "default/shop:80", "93.3 % hits", "365/s, 40 errors/s", "60/s fetched from Services", "20/s, 1 error/s"]) assert.ok(texts.includes(part), `${part} in\n${texts}`);
  const label = await front.page.locator("svg.path").getAttribute("aria-label");
  assert.equal(
    label,
    "Gateway default/web, data path Front: 1,310 requests per second from 2 listeners (cache 900/s with 93.3 % hits, direct 365/s, own 45/s) to 4 Services, 40 errors per second",
  );
  assert.equal(await front.page.locator("svg.path").getAttribute("role"), "img");
  // A tenth of the direct requests of one listener, and most of one Service, fail; few of another.
  assert.deepEqual([await front.lines("many"), await front.lines("some"), await front.lines("idle")], [3, 0, 0]);
  const width = (title) => front.page.locator("svg.path .line", { hasText: title }).getAttribute("stroke-width");
  assert.ok(Number(await width("secure → Cache")) > 10 * Number(await width("plain → Cache")), "widths are requests per second");
  await front.page.locator("#path-details summary").focus();
  await front.page.keyboard.press("Enter");
  await until("the table", async () => (await front.page.locator("#path-table tbody tr").count()) > 8);
  const table = await front.page.locator("#path-table").innerText();
  for (const part of ["listener secure, HTTPS port 443", "Direct\tdefault/cart:80\t95\t40", "Cache\tall\t900\t0\t93.3 %"]) assert.ok(table.includes(part), `${part} in\n${table}`);
  const facts = await front.page.locator("#gateway-list").innerText();
  for (const part of ["746 objects in 746 KiB", "576 B of 256 MiB", "Transient", "Front (dataPath: Auto)"]) assert.ok(facts.includes(part), `${part} in\n${facts}`);
  await front.close();
  console.log("ok: listeners, ways and Services are drawn with their rates and errors, and as a table");

  const dark = await open("front", { dark: true });
  await dark.close();
  const varnish = await open("varnish");
  const words = (await varnish.texts()).join("\n");
  assert.ok(words.includes("varnishd") && !words.includes("Direct"), words);
  await varnish.close();
  const idle = await open("idle");
  assert.ok((await idle.texts()).join("\n").includes("4 Services"));
  assert.ok((await idle.lines("idle")) > 0 && (await idle.lines("ok")) === 0);
  await idle.close();
  console.log("ok: the Varnish arrangement and a Gateway without requests are drawn");

  const thousands = await open("many");
  assert.ok((await thousands.texts()).includes("4,992 other Services"));
  assert.ok((await thousands.page.locator("svg.path .box").count()) < 20);
  await thousands.close();
  const ports = await open("listeners");
  const drawn = (await ports.texts()).join("\n");
  assert.ok(drawn.includes("listener-7") && drawn.includes("and 22 more without requests"), drawn);
  await ports.close();
  const narrow = await open("front", { width: 400 });
  assert.ok((await narrow.page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)) <= 0, "it is too wide");
  await narrow.close();
  console.log("ok: thousands of Services, many listeners and narrow screens fit");
}

await play(main);
