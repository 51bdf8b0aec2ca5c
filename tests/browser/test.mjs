// What a browser makes of our listeners. Every wait has a deadline; whatever was started ends with this.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { certificates, dir, ended, freePort, gateway, listening, play, secret, serve, until, write } from "./stage.mjs";

async function main() {
  const origin = createServer((request, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end(`<title>${request.headers.host} ${request.headers["x-forwarded-proto"]}</title>`);
  });
  const port = await freePort();
  const good = certificates("good");
  const listener = (name) => `{name: ${name}, protocol: HTTPS, port: ${port}, hostname: ${name}.test, tls: {certificateRefs: [{name: cert}]}}`;
  write(
    "all.yaml",
    `${gateway([listener("shop"), listener("cart")], await listening(origin))}apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: all}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: origin, port: 80}]}]
`,
  );
  write("cert.yaml", secret(good));
  await serve([`:${port} (https-${port})`]);

  // Chromium reads the CAs of its user out of an NSS database.
  const home = join(dir, "home");
  const nss = join(home, ".pki", "nssdb");
  mkdirSync(nss, { recursive: true });
  execFileSync("certutil", ["-d", `sql:${nss}`, "-N", "--empty-password"]);
  execFileSync("certutil", ["-d", `sql:${nss}`, "-A", "-t", "C,,", "-n", "test", "-i", good.ca]);
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--host-resolver-rules=MAP *.test 127.0.0.1"],
    env: { ...process.env, HOME: home },
    timeout: 90_000,
  });
  ended.push(() => browser.close());
  const page = await browser.newPage();
  page.setDefaultTimeout(90_000);

  const shop = await page.goto(`https://shop.test:${port}/`);
  assert.equal(shop.status(), 200);
  assert.equal(await page.title(), `shop.test:${port} https`);
  const protocol = await page.evaluate(() => performance.getEntriesByType("navigation")[0].nextHopProtocol);
  assert.equal(protocol, "h2");
  const details = await shop.securityDetails();
  assert.equal(details.protocol, "TLS 1.3");
  console.log("ok: the page comes by HTTP/2 and TLS 1.3, and its CA is believed");

  // One certificate for both names: the browser takes the connection of the first for the second, gets 421, and asks again.
  const cart = await page.goto(`https://cart.test:${port}/`);
  assert.equal(cart.status(), 200);
  assert.equal(await page.title(), `cart.test:${port} https`);
  console.log("ok: a name of another listener is asked for on a connection of its own");

  write("cert.yaml", secret(certificates("stranger")));
  await until("a certificate of another CA is shown, and refused", async () => {
    const context = await browser.newContext();
    const fresh = await context.newPage();
    const refused = await fresh.goto(`https://shop.test:${port}/new`).then(() => false, (error) => /ERR_CERT/.test(error.message));
    await context.close();
    return refused;
  });
  console.log("ok: a rotated certificate of a CA that it does not know is refused");
}

await play(main);
