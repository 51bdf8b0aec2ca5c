"""Requests to the Gateway: one at a time, and a steady light load beside them."""

import http.client
import random
import socket
import ssl
import threading
import time


# By hostname, the certificate (DER) that must be shown: then all requests go by HTTPS.
CERTIFICATES = {}


def tls_connection(address, hostname):
    """Without a check of its issuer: the certificate itself is compared."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPConnection(address, 443, timeout=10)
    connection.sock = context.wrap_socket(socket.create_connection((address, 443), timeout=10), server_hostname=hostname)
    if connection.sock.getpeercert(binary_form=True) != CERTIFICATES[hostname]:
        connection.close()
        raise http.client.HTTPException("another certificate")
    return connection


class Client:
    """One connection, opened again when it ends; by HTTPS it is for one host."""

    def __init__(self, address):
        self.address = address
        self.connection = None
        self.hostname = None

    def status(self, hostname, path):
        """The answer's status, or why there was none."""
        try:
            if CERTIFICATES and self.hostname != hostname:
                self.close()
            if self.connection is None:
                self.hostname = hostname
                if CERTIFICATES:
                    self.connection = tls_connection(self.address, hostname)
                else:
                    self.connection = http.client.HTTPConnection(self.address, timeout=10)
            self.connection.request("GET", path, headers={"Host": hostname})
            answer = self.connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return f"{type(error).__name__}: {error}"

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


class Load:
    """`rate` requests a second to routes that exist, a new connection for every tenth: whatever is not 200 has failed."""

    def __init__(self, address, routes, rate=50):
        self.client, self.routes, self.rate = Client(address), routes, rate
        self.requests, self.failed, self.slowest_ms = 0, [], 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self):
        due = time.monotonic()
        while not self.stop.is_set():
            if self.requests % 10 == 0:
                self.client.close()
            hostname, path = random.choice(self.routes)
            begun = time.monotonic()
            status = self.client.status(hostname, path)
            self.slowest_ms = max(self.slowest_ms, (time.monotonic() - begun) * 1000)
            self.requests += 1
            if status != 200:
                self.failed.append(f"{hostname}{path}: {status}")
            due = max(due + 1 / self.rate, time.monotonic() - 0.1)
            self.stop.wait(max(0, due - time.monotonic()))

    def result(self):
        return {
            "requests": self.requests,
            "failed": len(self.failed),
            "first_failures": self.failed[:5],
            "slowest_ms": round(self.slowest_ms, 1),
        }


def all_answer(address, routes, patience):
    """Seconds until every one of these routes has answered 200; raises where one does not in time."""
    begun, client, left = time.monotonic(), Client(address), list(routes)
    while left:
        answers = {pair: client.status(*pair) for pair in left}
        left = [pair for pair, status in answers.items() if status != 200]
        if left and time.monotonic() - begun > patience:
            hostname, path = left[0]
            raise RuntimeError(f"{len(left)} routes do not answer 200 after {patience} s, as {hostname}{path}: {answers[left[0]]}")
        if left:
            time.sleep(0.2)
    return time.monotonic() - begun
