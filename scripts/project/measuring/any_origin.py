"""An origin at every loopback address, for 10,000 endpoints: 1 KiB for every request, one request a connection.

Bound to the loopback device, since it listens on all addresses. It closes, so that 10,000 endpoints do not keep as
many connections, and their buffers, open.
"""

import socket
import sys
import threading

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: public, max-age=3600\r\n"
    b"Content-Length: 1024\r\nConnection: close\r\n\r\n" + b"x" * 1024
)


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                more = connection.recv(65536)
                if not more:
                    break
                asked += more
            else:
                connection.sendall(ANSWER)


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
listener.bind(("0.0.0.0", int(sys.argv[1])))
listener.listen(1024)
threads = [threading.Thread(target=serve, args=(listener,)) for _ in range(8)]
for thread in threads:
    thread.start()
