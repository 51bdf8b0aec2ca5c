// What a browser makes of our listeners. Every wait has a deadline; whatever was started ends with this.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, renameSync, writeFileSync, mkdirSync, chmodSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createProbe } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const program = process.argv[2];
const dir = mkdtempSync(join(tmpdir(), "vg-browser-"));
chmodSync(dir, 0o755);
const ended = [];

const freePort = () =>
  new Promise((resolve) => {
    const probe = createProbe().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });

const certificates = (name) => {
  const at = join(dir, name);
  mkdirSync(at);
  execFileSync("bash", [join(here, "certificates.sh"), at]);
  const read = (file) => readFileSync(join(at, file), "utf8");
  return { ca: join(at, "ca.crt"), chain: read("leaf.crt"), key: read("leaf.key") };
};

const indent = (text) => text.trimEnd().split("\n").map((line) => `    ${line}`).join("\n");
const secret = ({ chain, key }) =>
  `apiVersion: v1\nkind: Secret\nmetadata: {name: cert}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n${indent(chain)}\n  tls.key: |\n${indent(key)}\n`;
const write = (name, text) => {
  writeFileSync(join(dir, "aside"), text);
  renameSync(join(dir, "aside"), join(dir, "manifests", name));
};

const until = async (what, test) => {
  const deadline = Date.now() + 30_000;
  while (Date.now() < deadline) {
    if (await test()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`waited in vain: ${what}`);
};

async function main() {
  const origin = createServer((request, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end(`<title>${request.headers.host} ${request.headers["x-forwarded-proto"]}</title>`);
  });
  await new Promise((resolve) => origin.listen(0, "127.0.0.1", resolve));
  ended.push(() => origin.close());
  const port = await freePort();
  const good = certificates("good");
  mkdirSync(join(dir, "manifests"));
  const listener = (name) =>
    `    - {name: ${name}, protocol: HTTPS, port: ${port}, hostname: ${name}.test, tls: {certificateRefs: [{name: cert}]}}`;
  write(
    "all.yaml",
    `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: varnish}
spec: {controllerName: varnish-software.com/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: varnish
  listeners:
${listener("shop")}
${listener("cart")}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: all}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: origin, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: origin}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: origin, labels: {kubernetes.io/service-name: origin}}
addressType: IPv4
ports: [{port: ${origin.address().port}}]
endpoints: [{addresses: ["127.0.0.1"]}]
`,
  );
  write("cert.yaml", secret(good));
  const serve = spawn(program, ["serve", "--bind", "127.0.0.1", "-f", join(dir, "manifests"), "--state-dir", join(dir, "state")]);
  ended.push(() => serve.kill());
  let log = "";
  serve.stdout.on("data", (text) => (log += text));
  serve.stderr.on("data", (text) => (log += text));
  await until("the gateway listens", () => log.includes(`:${port} (https-${port})`));

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
  });
  ended.push(() => browser.close());
  const page = await browser.newPage();

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

let failed = false;
try {
  await main();
} catch (error) {
  failed = true;
  console.error(error);
} finally {
  for (const end of ended.reverse()) await end();
  await new Promise((resolve) => setTimeout(resolve, 1500));
  rmSync(dir, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
