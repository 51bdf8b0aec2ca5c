"""Sends back what comes, by TCP and UDP: echo.py PORT NAME. Each answer begins with the name."""

import socket
import sys
import threading

PORT, NAME = int(sys.argv[1]), sys.argv[2].encode()


def serve_tcp():
    with socket.create_server(("127.0.0.1", PORT)) as listener:
        while True:
            threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()


def answer(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(NAME + b": " + data)


def serve_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", PORT))
        while True:
            data, client = server.recvfrom(65536)
            server.sendto(NAME + b": " + data, client)


threading.Thread(target=serve_tcp).start()
serve_udp()
