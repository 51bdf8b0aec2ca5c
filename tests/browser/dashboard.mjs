// The dashboard in a browser: what it shows, how it follows changes, by keyboard, dark and light, wide and narrow. Every wait has a
// deadline; whatever was started ends with this. Pictures go to VG_ARTIFACTS, or target/browser.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createServer, request as ask } from "node:http";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { certificates, ended, freePort, gateway, here, listening, play, secret, serve, until, write } from "./stage.mjs";

const pictures = process.env.VG_ARTIFACTS ?? join(here, "../../target/browser");
mkdirSync(pictures, { recursive: true });

const get = (port, host, path) =>
  new Promise((resolve, reject) => {
    ask({ port, host: "127.0.0.1", path, headers: { host }, agent: false }, (response) => {
      response.resume();
      response.on("end", () => resolve(response));
    })
      .on("error", reject)
      .end();
  });

const route = (name, host, path, service) => `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: ${name}}
spec:
  parentRefs: [{name: web}]
  hostnames: [${host}]
  rules: [{matches: [{path: {value: ${path}}}], backendRefs: [{name: ${service}, port: 80}]}]
`;
const controller = "{controllerName: varnish-software.com/gateway}";

async function start(more) {
  const board = await freePort();
  const lines = [`dashboard: http://127.0.0.1:${board}/`, "Gateway default/web: reloaded"];
  const stop = await serve(lines, "--dashboard", `127.0.0.1:${board}`, ...more);
  return { url: `http://localhost:${board}/`, stop };
}

async function main() {
  const origin = createServer((request, response) => {
    if (request.url.startsWith("/broken")) response.statusCode = 503;
    response.end("hello");
  });
  const [port, tls, endpoint] = [await freePort(), await freePort(), await listening(origin)];
  const listeners = [
    `{name: plain, protocol: HTTP, port: ${port}}`,
    `{name: secret, protocol: HTTPS, port: ${tls}, hostname: shop.test, tls: {certificateRefs: [{name: cert}]}}`,
  ];
  write(
    "all.yaml",
    `${gateway(listeners, endpoint).replace(controller, `${controller.slice(0, -1)}, parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: front}}`)}apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: front}
spec: {dataPath: Auto}
---
${secret(certificates("certificates"))}---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {name: shop}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}
  forcedTTL: 1h
${route("shop", "shop.test", "/", "origin")}${route("broken", "shop.test", "/broken", "origin")}`,
  );
  const { url, stop } = await start([]);

  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"], timeout: 90_000 });
  ended.push(() => browser.close());
  const context = await browser.newContext({ colorScheme: "light", viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(90_000);
  const [elsewhere, complaints] = [[], []];
  page.on("request", (request) => request.url().startsWith(url) || elsewhere.push(request.url()));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  const began = Date.now();
  await page.goto(url);
  await page.locator("#pictures svg.path").waitFor();
  console.log(`the data path was drawn after ${Date.now() - began} ms`);
  const text = (selector) => page.locator(selector).innerText();
  const shows = async (what, selector, part) => {
    const there = until(`${what}: ${part}`, async () => (await text(selector)).includes(part));
    await there.catch(async (error) => {
      throw new Error(`${error.message}, but:\n${await text(selector)}`);
    });
  };

  await shows("the Gateway", "#gateway-list", "default/web");
  await shows("it serves", "#gateway-list", "serving");
  await shows("its endpoints", "#gateway-list", "1 of 1 Service");
  await shows("a listener", "#listener-table", `127.0.0.1:${port}`);
  await shows("the other", "#listener-table", "HTTPS");
  await shows("a route", "#route-table", "HTTPRoute default/shop");
  await shows("its endpoint", "#route-table", `127.0.0.1:${endpoint}`);
  await shows("its cache policy", "#route-table", "3600 s");
  await shows("the certificate", "#certificate-table", "shop.test");
  await shows("its Secret", "#certificate-table", "default/cert");
  await shows("an event", "#event-list", "reloaded");
  assert.equal(await page.locator("#connection").innerText(), "live");
  console.log("ok: what is served is shown");

  write("more.yaml", route("more", "more.test", "/more", "origin"));
  await shows("a new route, without a reload of the page", "#route-table", "HTTPRoute default/more");
  await shows("its event", "#event-list", "HTTPRoute default/more: accepted");
  write("bad.yaml", route("bad", "bad.test", "/bad", "nowhere"));
  await shows("a failure and its reason", "#event-list", "nowhere");
  await page.locator("#only-problems").check();
  assert.equal(await page.locator("#event-list li.info:visible").count(), 0);
  assert.ok((await page.locator("#event-list li.warning:visible").count()) > 0);
  await page.locator("#only-problems").uncheck();
  await page.locator("#route-query").fill("more.test");
  await until("the filter", async () => (await page.locator("#route-table tbody tr").count()) === 1);
  await page.locator("#route-query").fill("");
  await until("all again", async () => (await page.locator("#route-table tbody tr").count()) > 2);
  console.log("ok: changes are followed, and events tell the reason");

  const busy = page.locator("#route-table tbody tr", { hasText: "default/shop" });
  await until("traffic is plotted", async () => {
    for (let n = 0; n < 5; n += 1) await get(port, "shop.test", "/page");
    await get(port, "shop.test", "/broken");
    return (await busy.locator("svg.plot").count()) === 4 && /[1-9]/.test(await busy.locator("td").nth(4).innerText());
  });
  await until("hits and errors are", async () => {
    for (let n = 0; n < 5; n += 1) await get(port, "shop.test", "/page");
    await get(port, "shop.test", "/broken");
    const broken = page.locator("#route-table tbody tr", { hasText: "default/broken" });
    return /[1-9].* %/.test(await busy.locator("td").nth(5).innerText()) && /[1-9]/.test(await broken.locator("td").nth(7).innerText());
  });
  await until("the whole too", async () => (await page.locator("#totals svg.plot").count()) === 4);
  await shows("the endpoint's health", "#route-table", "up");
  await until("the cache's fill", async () => /[1-9]\d* objects? in [1-9]/.test(await text("#gateway-list")));
  console.log("ok: requests, hits, latency and errors are plotted");

  await page.locator("#path-details summary").click();
  await until("all ways are drawn", async () => {
    for (let n = 0; n < 5; n += 1) await get(port, "shop.test", "/page");
    await get(port, "shop.test", "/broken");
    await get(port, "nobody.test", "/");
    const lines = await page.locator("#pictures svg.path .line:not(.idle) title").allTextContents();
    return ["plain → Cache", "plain → Direct", "plain → Own", "Direct → default/origin:80"].every((line) => lines.some((title) => title.startsWith(line)));
  });
  assert.ok((await page.locator("#pictures svg.path .line.many").count()) > 0, "errors have their colour");
  await shows("the same as a table", "#path-table", "default/origin:80");
  await shows("the arrangement", "#pictures", "data path Front (dataPath: Auto)");
  await shows("the way of a route", "#route-table", "way: direct");
  await page.locator("#path").screenshot({ path: join(pictures, "dashboard-path.png") });
  console.log("ok: the data path is drawn with its ways");

  // By keyboard alone: the first stop skips to the content, and every stop can be seen.
  await page.reload();
  await shows("the page again", "#route-table", "HTTPRoute default/shop");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none");
  await page.locator("#explain-form [name=host]").focus();
  await page.keyboard.type("shop.test");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("/broken/1");
  await page.keyboard.press("Enter");
  await shows("the explanation", "#explained", "HTTPRoute default/broken, rule 0");
  await shows("the way", "#explained", "direct: the rule has no cache policy");
  await page.locator("#explained summary").first().focus();
  await page.keyboard.press("Enter");
  await shows("why not the other", "#explained", "default/shop");
  await page.locator("#explain-form [name=path]").fill("no-slash");
  await page.keyboard.press("Enter");
  await shows("a mistake", "#explained", "must begin with");
  console.log("ok: a request is explained, by keyboard");

  const snapshot = await page.evaluate(() => {
    const names = (selector) => [...document.querySelectorAll(selector)];
    return {
      landmarks: ["header", "nav", "main", "footer"].filter((name) => !document.querySelector(name)),
      unlabelled: names("input, textarea, select").filter((field) => !field.labels?.length).map((field) => field.id || field.name),
      headless: names("table").filter((table) => !table.querySelector("thead th[scope=col]")).length,
      unnamed: names("section").filter((section) => !document.getElementById(section.getAttribute("aria-labelledby"))).length,
      plots: names("svg.plot").filter((plot) => !plot.getAttribute("aria-label")).length,
      live: names("[aria-live=polite], [role=status], [role=log]").length,
      inline: names("script:not([src]):not([type='application/json']), style, [style], [onclick]").length,
    };
  });
  assert.deepEqual({ ...snapshot, live: snapshot.live >= 3 }, { landmarks: [], unlabelled: [], headless: 0, unnamed: 0, plots: 0, live: true, inline: 0 });
  console.log("ok: landmarks, labels, headers of tables and live regions are there");

  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await background();
  assert.notEqual(dark, light);
  await picture(browser, page, "dashboard-dark");
  await page.locator("#theme").click();
  assert.equal(await background(), light, "the button goes before the system");
  await page.reload();
  assert.equal(await background(), light, "and is remembered");
  await page.locator("#theme").click();
  assert.equal(await background(), dark);
  for (const scheme of ["light", "dark"]) {
    await page.evaluate((scheme) => (document.documentElement.dataset.theme = scheme), scheme);
    assert.deepEqual(await contrast(page), [], `texts that are hard to read in ${scheme}`);
  }
  await page.evaluate(() => (document.documentElement.dataset.theme = "light"));
  console.log("ok: dark and light, by the system and by the button");

  await shows("the page again", "#route-table", "HTTPRoute default/shop");
  for (const [name, width] of [["wide", 1280], ["narrow", 400]]) {
    await page.setViewportSize({ width, height: 900 });
    const boxes = await page.evaluate(() => ({
      overflow: document.documentElement.scrollWidth - window.innerWidth,
      sections: [...document.querySelectorAll("header, section:not([hidden]), footer")].map((element) => {
        const { top, bottom, width } = element.getBoundingClientRect();
        return { id: element.id || element.tagName, top, bottom, width };
      }),
    }));
    assert.ok(boxes.overflow <= 0, `${name}: ${boxes.overflow} pixels too wide`);
    boxes.sections.slice(1).forEach((section, place) => {
      assert.ok(section.top >= boxes.sections[place].bottom - 1, `${name}: ${section.id} lies over ${boxes.sections[place].id}`);
      assert.ok(section.width > 0 && section.bottom > section.top, `${name}: ${section.id} is empty`);
    });
    await picture(browser, page, `dashboard-${name}`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  console.log("ok: it fits 1280 and 400 pixels, and pictures are not blank");

  assert.equal(await page.locator("#purge").isVisible(), false);
  // A page of a stranger gets nothing, neither by script nor in a frame.
  const stranger = createServer((_, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end(`<iframe src="${url}"></iframe>`);
  });
  const other = await context.newPage();
  await other.goto(`http://127.0.0.1:${await listening(stranger)}/`);
  const stolen = await other.evaluate(async (url) => {
    const read = await fetch(`${url}api/state`).then((answer) => answer.text(), () => "refused");
    const sent = await fetch(`${url}api/state`, { mode: "no-cors" }).then((answer) => answer.type, () => "refused");
    return { read, sent };
  }, url);
  assert.equal(stolen.read, "refused");
  const framed = other.frames().find((frame) => frame !== other.mainFrame());
  assert.ok(!(await framed.content()).includes("route-table"));
  await other.close();
  console.log("ok: pages of others get nothing");

  assert.deepEqual(complaints.filter((text) => !text.includes("400 (Bad Request)")), [], "the browser complains");
  await stop();
  await shows("the end of the connection", "#connection", "no connection");

  const acting = await start(["--allow-actions"]);
  await get(port, "shop.test", "/kept");
  assert.equal((await get(port, "shop.test", "/kept")).headers["x-cache"], "HIT");
  await page.goto(acting.url);
  await page.locator("#purge-form [name=host]").fill("shop.test");
  await page.locator("#purge-form [name=path]").fill("/kept");
  await page.locator("#purge-form button").click();
  await shows("what was purged", "#purged", "1 object purged");
  await shows("its event", "#event-list", "shop.test/kept");
  assert.equal((await get(port, "shop.test", "/kept")).headers["x-cache"], "MISS");
  console.log("ok: the purge button is there with --allow-actions, and purges");
  assert.deepEqual(elsewhere.filter((at) => !at.startsWith(acting.url)), [], "nothing is fetched from elsewhere");
}

// A picture of the whole page, with more than a few colours in it.
async function picture(browser, page, name) {
  const png = await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
  const blank = await browser.newPage();
  const colours = await blank.evaluate(async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const { data: pixels } = context.getImageData(0, 0, image.width, image.height);
    const seen = new Set();
    for (let at = 0; at < pixels.length; at += 4) seen.add((pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2]);
    return seen.size;
  }, png.toString("base64"));
  await blank.close();
  assert.ok(colours > 20, `${name}: ${colours} colours`);
}

// Texts whose contrast with what is behind them is below 4.5 (WCAG AA).
function contrast(page) {
  return page.evaluate(() => {
    const rgb = (text) => text.match(/[\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => {
      const linear = [r, g, b].map((value) => value / 255).map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
      return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = rgb(getComputedStyle(at).backgroundColor);
        if (colour.length < 4 || colour[3] > 0) return colour;
      }
      return [255, 255, 255];
    };
    const bad = [];
    for (const element of document.querySelectorAll("h1, h2, h3, p, small, a, th, td, dt, dd, li, label, button:enabled, code, time, span")) {
      const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      if (!own || element.closest("[hidden]")) continue;
      const [one, two] = [luminance(rgb(getComputedStyle(element).color)), luminance(behind(element))].sort((a, b) => b - a);
      const ratio = (one + 0.05) / (two + 0.05);
      if (ratio < 4.5) bad.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
    }
    return [...new Set(bad)];
  });
}

await play(main);
