"""scripts/bench slow-readers [--varnishd COMMAND] [--readers N] [--seconds N] [--limit MIB]: what slow clients of large answers that are not kept cost.

Starts an origin and a varnishd with the storages and parameters of a pod with that memory limit (translate/src/parameters/storage.rs,
chaperone/src/storage.rs), lets clients read 100 MB each at 2 KiB a second, sends other requests meanwhile, and reads the memory of
varnishd's child. Prints a table. Exits with 1 where memory is above the limit, or, on a Varnish with transit_buffer, another request failed.

COMMAND may be another Varnish: "chroot ROOT varnishd". Everything is on loopback, and ends with this script.
"""
import argparse, asyncio, os, re, shlex, shutil, signal, socket, subprocess, tempfile, time

LARGE = 100_000_000
BLOCK = b"x" * 65536


async def origin(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1]
            size = LARGE if path.startswith(b"/large") else 30_000
            keep = b"max-age=600" if path.startswith(b"/hit") else b"no-store"
            writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: %s\r\nContent-Length: %d\r\n\r\n" % (keep, size))
            while size > 0:
                n = min(size, len(BLOCK))
                writer.write(BLOCK[:n])
                await writer.drain()
                size -= n
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def connect(port, buffer=None):
    sock = socket.socket()
    if buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=4096)


async def slow(port, n, until, count):
    writer = None
    # One after the other: this script is the origin, too.
    await asyncio.sleep(n * 0.02)
    try:
        reader, writer = await connect(port, 4096)
        writer.write(b"GET /large?%d HTTP/1.1\r\nHost: a\r\n\r\n" % n)
        first = await asyncio.wait_for(reader.readline(), until - time.monotonic())
        if b" 200 " not in first:
            count["refused"] += 1
            return
        count["answered"] += 1
        while time.monotonic() < until:
            if not await asyncio.wait_for(reader.read(2048), max(0.1, until - time.monotonic())):
                count["cut"] += 1
                return
            await asyncio.sleep(1)
        count["to the end"] += 1
    except asyncio.TimeoutError:
        count["to the end"] += 1
    except OSError:
        count["cut"] += 1
    finally:
        if writer:
            writer.transport.abort()


async def other(port, path, until, result):
    while time.monotonic() < until:
        begun = time.monotonic()
        try:
            reader, writer = await connect(port)
            writer.write(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path)
            body = await asyncio.wait_for(reader.read(-1), 10)
            writer.close()
            ok = body.startswith(b"HTTP/1.1 200") and len(body) > 30_000
        except (OSError, asyncio.TimeoutError):
            ok = False
        result.append((ok, time.monotonic() - begun))
        await asyncio.sleep(0.1)


def memory(pid):
    text = open(f"/proc/{pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) >> 10


def child_of(pid):
    return int(open(f"/proc/{pid}/task/{pid}/children").read().split()[0])


async def measure():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--varnishd", default="varnishd")
    args.add_argument("--readers", type=int, default=500)
    args.add_argument("--seconds", type=int, default=60)
    args.add_argument("--limit", type=int, default=1024, help="MiB")
    args = args.parse_args()
    rest = args.limit - 128
    cache, transient = rest // 8 * 5, rest // 8
    transit = min(max(transient * 1024 // 4096, 32), 1024)
    server = await asyncio.start_server(origin, "127.0.0.1", 0, backlog=2048)
    origin_port = server.sockets[0].getsockname()[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = shlex.split(args.varnishd)
    root = command[1] if command[0] == "chroot" else ""
    work = tempfile.mkdtemp(prefix="slow-readers.", dir=f"{root}/tmp")
    os.chmod(work, 0o755)
    inside = work[len(root):]
    with open(f"{work}/a.vcl", "w") as vcl:
        vcl.write(
            f'vcl 4.1; backend o {{ .host = "127.0.0.1"; .port = "{origin_port}"; }}\n'
            'sub vcl_recv { if (req.url !~ "^/hit") { return (pass); } }\n'
        )
    version = subprocess.run([*command, "-V"], capture_output=True, text=True).stderr.split("(")[1].split(" ")[0]
    known = subprocess.run([*command, "-x", "parameter"], capture_output=True, text=True).stdout
    command += ["-F", "-n", f"{inside}/v", "-a", f"127.0.0.1:{port}", "-f", f"{inside}/a.vcl", "-s", f"malloc,{cache}m"]
    command += ["-s", f"Transient=malloc,{transient}m", "-p", "fetch_maxchunksize=256k", "-p", "thread_pool_max=5000"]
    back_pressure = "transit_buffer" in known
    if back_pressure:
        command += ["-p", f"transit_buffer={transit}k"]
    varnishd = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                (await connect(port))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        child = child_of(varnishd.pid)
        before = most = memory(child)
        until = time.monotonic() + args.seconds
        count = {"answered": 0, "refused": 0, "cut": 0, "to the end": 0}
        readers = [asyncio.create_task(slow(port, n, until, count)) for n in range(args.readers)]
        hits, passes = [], []
        others = [asyncio.create_task(other(port, b"/hit", until, hits)), asyncio.create_task(other(port, b"/small", until, passes))]
        while time.monotonic() < until:
            await asyncio.sleep(0.2)
            most = max(most, memory(child))
        await asyncio.gather(*readers, *others)
        lived = child_of(varnishd.pid) == child
    finally:
        varnishd.send_signal(signal.SIGTERM)
        varnishd.wait(30)
        shutil.rmtree(work, ignore_errors=True)
        server.close()

    def told(all):
        good = sorted(took for ok, took in all if ok)
        p95 = f"{good[int(len(good) * 0.95)] * 1000:.0f} ms" if good else "-"
        return f"{len(good)} of {len(all)}, p95 {p95}"

    print(f"| {version}, {args.readers} slow readers of {LARGE // 1_000_000} MB for {args.seconds} s | |\n|---|---|")
    print(f"| storages | {cache} MiB cache, {transient} MiB Transient, limit {args.limit} MiB |")
    print(f"| transit_buffer | {f'{transit} KiB' if back_pressure else 'not known to this version'} |")
    print(f"| memory of varnishd's child, before and at most | {before} MiB, {most} MiB |")
    print(f"| slow readers | {count['answered']} answered, {count['refused']} with 503, {count['cut']} cut off, {count['to the end']} until the end |")
    print(f"| hits meanwhile | {told(hits)} |\n| passes of 30 KB meanwhile | {told(passes)} |")
    print(f"| varnishd's child lived | {'yes' if lived else 'no'} |")
    unharmed = all(ok for ok, _ in hits) and (not back_pressure or all(ok for ok, _ in passes) and count["cut"] + count["refused"] == 0)
    return 0 if most < args.limit and lived and unharmed else 1


def main():
    return asyncio.run(measure())
