"""Runs command lines of the AWS CLI for tests, all in one process: the CLI takes half a second to start.

A connection to the printed port sends the number of arguments, then the API's URL and the arguments, each ended by a NUL. The
answer is the exit code in a line of its own, then standard output. What the CLI writes to standard error goes to that of this
process and, as the last line, to the answer of a failed command.
"""

import contextlib
import io
import socketserver
import sys

import awscli.clidriver
from awscli.customizations import toplevelbool

awscli.clidriver.disable_crt_logging()
awscli.clidriver.disable_crt_logging = lambda: None  # once is enough, and takes as long as a command

validate = toplevelbool.validate_boolean_mutex_groups


def validate_own(boolean_pairs, parsed_args, **kwargs):
    """In one process the CLI checks --OPTION and --no-OPTION of an operation with all later operations too."""
    own = [pair for pair in boolean_pairs if hasattr(parsed_args, pair[0].py_name)]
    validate(own, parsed_args, **kwargs)


toplevelbool.validate_boolean_mutex_groups = validate_own

clients = {}


def new_driver():
    """The CLI creates a client for each command, which takes longer than the rest of it: one an endpoint is enough."""
    driver = awscli.clidriver.create_clidriver()
    create = driver.session.create_client

    def create_client(*args, **kwargs):
        key = repr((args, sorted(kwargs.items())))
        if key not in clients:
            clients[key] = create(*args, **kwargs)
        return clients[key]

    driver.session.create_client = create_client
    return driver


def drivers():
    """A driver for each command. Each command leaves handlers of events to its driver (register in toplevelbool.py,
    paginate.py and others), which make all later commands slower, so a driver is for some commands only."""
    while True:
        driver = new_driver()
        for _ in range(200):
            yield driver


driver = drivers()


def run(url, args):
    # IAM has one endpoint, so commands may leave out the region, except with --endpoint-url. A driver that has run a command with a
    # region would have kept that.
    if args[:1] == ["iam"] and "--region" not in args:
        args = args + ["--region", "us-east-1"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = next(driver).main(args + ["--endpoint-url", url])
        except SystemExit as e:
            code = e.code
    return code or 0, out.getvalue(), err.getvalue()


class Handler(socketserver.StreamRequestHandler):
    def words(self):
        received, count = b"", None
        while count is None or received.count(b"\0") <= count:
            part = self.request.recv(1 << 16)
            if not part:
                raise EOFError
            received += part
            if count is None and b"\0" in received:
                count = int(received[: received.index(b"\0")])
        return [word.decode() for word in received.split(b"\0")[1 : count + 1]]

    def handle(self):
        url, *args = self.words()
        code, out, err = run(url, args)
        if code:
            print(" ".join(["aws", *args]), err.strip(), file=sys.stderr, flush=True)
        self.wfile.write(f"{code}\n{out}".encode())


server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
