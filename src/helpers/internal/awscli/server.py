"""Runs command lines of the AWS CLI for tests, all in one process: the CLI takes half a second to start.

A connection to the printed port sends the number of arguments, then the API's URL and the arguments, each ended by a NUL. The
answer is the exit code in a line of its own, then standard output. What the CLI writes to standard error goes to that of this
process and, as the last line, to the answer of a failed command.
"""

import contextlib
import io
import socketserver
import sys

from awscli.clidriver import create_clidriver

driver = create_clidriver()


def run(url, args):
    """The CLI reuses parsed options of some operations, so an attribute that is missing then means: start afresh."""
    global driver
    for attempt in (1, 2):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = driver.main(args + ["--endpoint-url", url])
            except SystemExit as e:
                code = e.code
        if code == 0 or "'Namespace' object has no attribute" not in err.getvalue() or attempt == 2:
            return code or 0, out.getvalue(), err.getvalue()
        driver = create_clidriver()


class Handler(socketserver.StreamRequestHandler):
    def text(self):
        value = b""
        while not value.endswith(b"\0"):
            byte = self.rfile.read(1)
            if not byte:
                raise EOFError
            value += byte
        return value[:-1].decode()

    def handle(self):
        count = int(self.text())
        url, *args = [self.text() for _ in range(count)]
        code, out, err = run(url, args)
        if code:
            print(" ".join(["aws", *args]), err.strip(), file=sys.stderr, flush=True)
        self.wfile.write(f"{code}\n{out}".encode())


server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
