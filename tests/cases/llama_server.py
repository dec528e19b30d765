"""llama.cpp's server, from the package xllamacpp: MODEL PORT MOST_SEQS MOST_TOKENS ROOM; one thread computes."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    import xllamacpp

    model, *numbers = sys.argv[1:]
    said = xllamacpp.CommonParams()
    said.model.path = model
    said.port, said.n_parallel, said.n_batch, said.n_ctx = map(int, numbers)
    said.n_ubatch = said.n_batch
    said.cpuparams.n_threads = said.cpuparams_batch.n_threads = 1
    said.cache_ram_mib, said.cache_prompt = 0, False  # what is measured is computed
    server = xllamacpp.Server(said)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    sys.exit(0)


if __name__ == "__main__":
    main()
