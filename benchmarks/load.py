"""How many requests per second `hetplan loadtest` sends on time, to a server in another process that answers at once.

    python benchmarks/load.py [--seconds 5] [--rates 500 3000 6000 9000]

Poisson arrivals. Per rate: the sender's share of a core, how late requests were sent, response times, connections.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from typing import Any

import numpy as np

from hetplan.executor.serving.process import ask_for_short_turns
from hetplan.measure.load_send import Target, send_load


class AtOnce(asyncio.Protocol):
    """Answers each request as soon as it is there."""

    REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nhetplan-outcome: served\r\nhetplan-quality: 0.9\r\n\r\n"

    def connection_made(self, transport: Any) -> None:
        self.transport, self.rest = transport, b""

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while (end := self.rest.find(b"\r\n\r\n")) >= 0:
            length = int(self.rest[:end].lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.rest) < end + 4 + length:
                return
            self.rest = self.rest[end + 4 + length :]
            self.transport.write(self.REPLY)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(AtOnce, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[500, 3000, 6000, 9000])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve())
        return
    ask_for_short_turns()
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1/a"
        print("asked/s  sent/s  cores  late p50  late p99  response p50  response p99  ms, connections, not answered")
        for rate in asked.rates:
            due = np.cumsum(np.random.default_rng(0).exponential(1 / rate, int(rate * asked.seconds)))
            spent, began = time.process_time(), time.monotonic()
            target = Target("a", url, due, np.zeros(len(due), np.int32), [b'{"at": {"batch": 1}}'])
            (sent,) = send_load([target])
            cores = (time.process_time() - spent) / (time.monotonic() - began)
            late, response = np.percentile(sent.late_ms, [50, 99]), np.percentile(sent.response_ms, [50, 99])
            lost = int((sent.status != 200).sum())
            print(
                f"{rate:7.0f} {len(due) / due[-1]:7.0f} {cores:6.2f} {late[0]:9.3f} {late[1]:9.3f} {response[0]:13.3f} "
                f"{response[1]:13.3f}  {sent.connections}, {lost}", flush=True,
            )  # fmt: skip
        server.terminate()


if __name__ == "__main__":
    main()
