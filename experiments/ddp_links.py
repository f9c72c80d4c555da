#!/usr/bin/env python3
"""What a training step's exchange takes on links of given bandwidths, for each communication hook, and what passes at the interface.

    sudo experiments/ddp_links.py --python .venv/bin/python --machines 2 --mbit 100 1000 --steps 6 [-- arguments of ddp_resnet18.py]

Each process runs in a network namespace of its own, joined by a bridge; the bandwidth is shaped where a namespace sends (tc, tbf). Bytes
are those of the namespace's interface, headers and acknowledgements included, without those of a step whose hook sends nothing (batch
norm's buffers, which torch sends in any case). The exchange's time is that of a step, the median of all, less that of such a step. Where plain DDP is not
among `--hooks`, bytes are compared to a ring all-reduce's without headers. Needs root, iproute2 and the Python package with torch.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).parents[1] / "python" / "examples" / "ddp_resnet18.py"
HOOKS = {
    "silent": ["--hook", "silent"],
    "none": ["--hook", "none"],
    "bf16": ["--hook", "bf16"],
    "powersgd 1": ["--hook", "powersgd", "--rank", "1"],
    "powersgd 4": ["--hook", "powersgd", "--rank", "4"],
    "core q 12": ["--hook", "core", "--ratio", "12"],
    "core 4bit 37": ["--hook", "core", "--wire", "4bit", "--ratio", "37"],
}


def run(*command):
    subprocess.run([str(part) for part in command], check=True)


class Links:
    """Namespaces `cw0`, `cw1`, ... with an interface `eth0` each, on one bridge."""

    def __init__(self, machines, mbit):
        self.machines = machines
        self.close()
        run("ip", "link", "add", "cwbridge", "type", "bridge")
        run("ip", "link", "set", "cwbridge", "up")
        for k in range(machines):
            run("ip", "netns", "add", f"cw{k}")
            run("ip", "link", "add", f"cwveth{k}", "type", "veth", "peer", "name", "eth0", "netns", f"cw{k}")
            run("ip", "link", "set", f"cwveth{k}", "master", "cwbridge", "up")
            inside = ["ip", "netns", "exec", f"cw{k}"]
            run(*inside, "ip", "addr", "add", f"10.77.0.{k + 1}/24", "dev", "eth0")
            run(*inside, "ip", "link", "set", "eth0", "up")
            run(*inside, "ip", "link", "set", "lo", "up")
            burst = f"{max(64, int(mbit / 8))}kb"
            run(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit", "burst", burst, "latency", "400ms")

    def close(self):
        for k in range(self.machines):
            subprocess.run(["ip", "netns", "del", f"cw{k}"], stderr=subprocess.DEVNULL)
            subprocess.run(["ip", "link", "del", f"cwveth{k}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", "cwbridge"], stderr=subprocess.DEVNULL)

    def train(self, python, arguments):
        """The result of process 0."""
        with tempfile.NamedTemporaryFile("r") as result:
            processes = [
                subprocess.Popen(
                    ["ip", "netns", "exec", f"cw{k}", python, str(SCRIPT), *arguments, "--json", result.name],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={
                        **os.environ, "RANK": str(k), "LOCAL_RANK": "0", "WORLD_SIZE": str(self.machines),
                        "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": "eth0",
                        "RAYON_NUM_THREADS": "1",
                    },
                )
                for k in range(self.machines)
            ]  # fmt: skip
            for process in processes:
                process.wait(timeout=900)
            written = result.read()
            if not written:
                sys.exit(f"no result: {' '.join(processes[0].args)}")
            return json.loads(written)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--mbit", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=3, help="steps before these, which are not measured")
    parser.add_argument("--hooks", nargs="+", default=list(HOOKS)[1:], choices=list(HOOKS)[1:])
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    print("| Mbit/s | hook | s per step | s of the exchange | MB at the interface, per step | MB counted by the hook | fewer than plain |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for mbit in given.mbit:
        links = Links(given.machines, mbit)
        try:
            still = plain = None
            steps = ["--steps", str(given.steps + given.warm_up), "--warm-up", str(given.warm_up)]
            for name in ["silent", *given.hooks]:
                result = links.train(given.python, [*HOOKS[name], *steps, *given.arguments])
                seconds, passed = result["median_seconds"], result["interface_bytes_per_step"] / 1e6
                if name == "silent":
                    still = seconds, passed
                    print(f"| {mbit} | nothing sent | {seconds:.3f} | | | | |", flush=True)
                    continue
                exchange, passed = seconds - still[0], passed - still[1]
                plain = passed if name == "none" else plain or result["dense_bytes_per_step"] / 1e6
                counted = f"{result['counted_bytes_per_step'] / 1e6:.4f}" if result["counted_bytes_per_step"] else ""
                print(f"| {mbit} | {name} | {seconds:.3f} | {exchange:.3f} | {passed:.4f} | {counted} | {plain / passed:.0f} |", flush=True)
        finally:
            links.close()


main()
