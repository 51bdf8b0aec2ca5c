// What tests in a browser stand on: a directory with manifests, certificates, a `serve`, and an end for all that was started.
import { execFileSync, spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const here = dirname(fileURLToPath(import.meta.url));
export const dir = mkdtempSync(join(tmpdir(), "vg-browser-"));
chmodSync(dir, 0o755);
mkdirSync(join(dir, "manifests"));

// Functions to call at the end, the last first.
export const ended = [];

export const freePort = () =>
  new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });

export const until = async (what, test) => {
  const deadline = Date.now() + 90_000;
  while (Date.now() < deadline) {
    if (await test()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`waited in vain: ${what}`);
};

// In one piece, for every reader.
export const write = (name, text) => {
  writeFileSync(join(dir, "aside"), text);
  renameSync(join(dir, "aside"), join(dir, "manifests", name));
};

export const listening = async (server) => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  ended.push(() => server.close());
  return server.address().port;
};

export const certificates = (name) => {
  const at = join(dir, name);
  mkdirSync(at);
  execFileSync("bash", [join(here, "certificates.sh"), at]);
  const read = (file) => readFileSync(join(at, file), "utf8");
  return { ca: join(at, "ca.crt"), chain: read("leaf.crt"), key: read("leaf.key") };
};

const indent = (text) => text.trimEnd().split("\n").map((line) => `    ${line}`).join("\n");

export const secret = ({ chain, key }) => `apiVersion: v1
kind: Secret
metadata: {name: cert}
type: kubernetes.io/tls
stringData:
  tls.crt: |
${indent(chain)}
  tls.key: |
${indent(key)}
`;

// GatewayClass, Gateway `web`, and Service `origin` with one endpoint.
export const gateway = (listeners, origin) => `apiVersion: gateway.networking.k8s.io/v1
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
${listeners.map((listener) => `    - ${listener}`).join("\n")}
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
ports: [{port: ${origin}}]
endpoints: [{addresses: ["127.0.0.1"]}]
---
`;

// `serve` of the manifests, once its log has all of these lines; and how to stop it.
export const serve = async (lines, ...more) => {
  const state = mkdtempSync(join(dir, "state-"));
  chmodSync(state, 0o755);
  const program = spawn(process.argv[2], ["serve", "--bind", "127.0.0.1", "-f", join(dir, "manifests"), "--state-dir", state, ...more]);
  const gone = new Promise((resolve) => program.on("exit", resolve));
  const stop = async () => {
    program.kill();
    await gone;
  };
  ended.push(stop);
  let log = "";
  program.stdout.on("data", (text) => (log += text));
  program.stderr.on("data", (text) => (log += text));
  await until(`the gateway says: ${lines.join("; ")}`, () => lines.every((line) => log.includes(line)));
  return stop;
};

// Whatever was started ends with it.
export const play = async (main) => {
  let failed = false;
  try {
    await main();
  } catch (error) {
    failed = true;
    console.error(error);
  } finally {
    for (const end of ended.reverse()) await end();
    rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 500 });
  }
  process.exit(failed ? 1 : 0);
};
