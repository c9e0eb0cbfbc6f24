#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What mpirun takes for ssh between two guests, which have no sshd. For tests: whoever reaches the port may run anything.

    remote_shell.py serve             runs what it is asked for, until it is told to end
    remote_shell.py then COMMAND…     runs the command here, then tells the other guest to end; the command's status
    remote_shell.py HOST COMMAND…     runs it there, with its output here; its status
"""

import os
import socket
import subprocess
import sys
import threading
import time

PORT = 5140
PATIENCE = 120  # s, until the other guest serves
END = b"\0end"


def answer(connection):
    command = connection.makefile("rb").readline().rstrip(b"\n")
    if command == END:
        os._exit(0)
    status = subprocess.run(["/bin/sh", "-c", command.decode()], stdin=subprocess.DEVNULL, stdout=connection, stderr=connection, check=False).returncode
    connection.sendall(b"\0%d" % (status & 255))
    connection.shutdown(socket.SHUT_RDWR)  # whatever it has started may still have it open


def serve():
    listener = socket.create_server(("", PORT))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def ask(host, command):
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection((host, PORT), timeout=10)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
    connection.settimeout(None)
    connection.sendall(command + b"\n")
    text = b""
    while part := connection.recv(65536):
        text += part
        said, mark, status = text.partition(b"\0")
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
        text = mark + status
    return int(text[1:] or 255)


def main():
    if sys.argv[1] == "serve":
        serve()
    if sys.argv[1] == "then":
        status = subprocess.run(sys.argv[2:], check=False).returncode
        try:
            ask("node1", END)
        except OSError as problem:
            print(f"remote_shell: node1: {problem}")
        return status
    return ask(sys.argv[1], " ".join(sys.argv[2:]).encode())


if __name__ == "__main__":
    sys.exit(main())
