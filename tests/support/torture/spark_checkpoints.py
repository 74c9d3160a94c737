"""Spark queries to which everything happens: `python -m tests.support.torture.spark_checkpoints --minutes 20`.

A query copies a topic, run after run. Drivers, Python workers, executors and the broker are killed with -9 at random or
at a step of the sink's protocol; tasks fail, are too slow, or are run twice; zombies go on after the next run. Between
runs the checkpoint may be replaced by an older copy of itself, or lose its newest offsets and commits. A run must
either write nothing that is wrong or stop with an error that says what to do; then that is done. After each run that
ends well nothing may stand open in the output, nor hold back its readers; at the end every record is there once.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Callable

import psutil

from tests.spark.standalone import SPECULATION, Standalone
from tests.support.torture.judging import tell
from tests.support.torture.spark_world import SINK, Run, World, killer_environment

REPORTED_ERRORS = ("CheckpointRolledBackError", "BatchChangedError")
STEPS = ("Claim", "ReadDecisions", "ListTransactions", "BeginTask", "WriteDecision", "EndTransactions", "VerifyClaim")
ZOMBIE_MOST_S = 60.0
# A batch of the situation "lost" has to be complete within this; one of "too slow" takes longer.
SHORT_TIMEOUT_MS = 8000
LATE_S = 14.0


class Torture:
    """One run of it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._chance = random.Random(seed)

    def situations(self) -> dict[str, Callable[[], None]]:
        found = {
            "healthy": self._healthy_run,
            "killed": self._killed,
            "killed at a step": self._killed_at_a_step,
            "zombie": self._zombie,
            "broker killed": self._broker_killed,
            "workers killed": self._workers_killed,
            "two drivers": self._two_drivers,
            "fails for good": self._fails_for_good,
            "put back": self._put_back,
            "offsets lost": self._offsets_lost,
            "speculation": self._speculation,
        }
        if self.world.keeps_prepared or self.world.guarantee == "timed":
            found["too slow"] = self._too_slow
        if self.world.guarantee == "timed":
            found["lost"] = self._lost
        return found

    def run(self, minutes: float, only: list[str]) -> None:
        world = self.world
        situations = self.situations()
        names = only or list(situations)
        world.begin()
        try:
            end = time.monotonic() + minutes * 60
            while time.monotonic() < end:
                world.produce(self._chance.randint(50, 600))
                name = self._chance.choice(names)
                if name in {"put back", "offsets lost"} and not world.copies:
                    name = "healthy"
                world.happened[name] += 1
                before = len(world.anomalies)
                situations[name]()
                if len(world.anomalies) == before:
                    world.compare(name)
                for anomaly in world.anomalies[before:]:
                    print(f"{name}: {anomaly}", flush=True)
                print(f"{(end - time.monotonic()) / 60:.1f} min left after {name!r}", flush=True)
            world.produce(100)
            self._healthy_run()
            world.compare("everything")
        finally:
            world.end()

    # --- situations; each ends with a run that ends well ---

    def _healthy_run(self) -> None:
        """To the end, with a second try where a fault of before costs one."""
        world = self.world
        for _ in range(3):
            code, output = self._start().wait()
            if code == 0:
                world.nobody_waits("a run that ended well")
                copy = world.folder / f"copy-{len(world.copies)}"
                shutil.copytree(world.checkpoint, copy)
                world.copies.append(copy)
                return
            world.happened["failed, started again"] += 1
        world.anomalies.append(f"a healthy run does not end well: {output[-1500:]}")

    def _killed(self) -> None:
        run = self._start()
        time.sleep(self._chance.uniform(6, 25))
        if run.process.is_running:
            self.world.happened["driver killed"] += 1
        run.kill()
        run.wait()
        self._healthy_run()

    def _order(self, mode: str) -> dict[str, object]:
        step = self._chance.choice((*STEPS, "KeepWinners" if self.world.keeps_prepared else "DescribeWinners"))
        when = self._chance.choice(("before", "after"))
        return {"step": step, "when": when, "nth": self._chance.randint(1, 3), "mode": mode}

    def _killed_at_a_step(self) -> None:
        order = self._order("all")
        run = self._start([order])
        run.wait()
        self._note_strike(run, order)
        self._healthy_run()

    def _note_strike(self, run: Run, order: dict[str, object]) -> bool:
        struck = (run.folder / "killed").exists()
        self.world.happened[f"{order['mode']} {order['when']} {order['step']}" if struck else "did not strike"] += 1
        return struck

    def _zombie(self) -> None:
        order = self._order("zombie")
        run = self._start([order])
        run.wait_or_zombie()
        if not self._note_strike(run, order):
            self._healthy_run()
            return
        self._healthy_run()
        (run.folder / "go").touch()
        until = time.monotonic() + ZOMBIE_MOST_S
        while not (run.folder / "zombie.woke").exists() and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(self._chance.uniform(0.5, 4))
        run.kill()
        self.world.compare("a zombie went on")
        self.world.produce(self._chance.randint(20, 100))
        self._healthy_run()

    def _broker_killed(self) -> None:
        run = self._start()
        time.sleep(self._chance.uniform(6, 16))
        self.world.broker.kill()
        time.sleep(self._chance.choice((0, 0.1, 2)))
        self.world.broker.start()
        run.wait()
        self._healthy_run()

    def _workers_killed(self) -> None:
        run = self._start()
        until = time.monotonic() + 40
        while run.process.is_running and time.monotonic() < until:
            time.sleep(self._chance.uniform(1, 5))
            workers = run.python_workers()
            if workers:
                try:
                    self._chance.choice(workers).kill()
                except psutil.Error:
                    continue
                self.world.happened["python worker killed"] += 1
        code, _ = run.wait()
        if code == 0:
            self.world.nobody_waits("a run whose workers were killed")
        self._healthy_run()

    def _two_drivers(self) -> None:
        runs = [self._start(), self._start()]
        reported = "".join(f"\n{code}\n{output}" for code, output in (run.wait() for run in runs))
        failed = [run for run in runs if run.process.status != 0]
        if failed and "SupersededError" not in reported and "CONCURRENT" not in reported.upper():
            self.world.happened["two drivers: other errors"] += 1
        self._healthy_run()

    def _fails_for_good(self) -> None:
        code, output = self._start(failing_share="0.7", failing_attempts="9").wait()
        if code == 0:
            self.world.happened["did not fail"] += 1
        elif "fails on purpose" not in output:
            self.world.anomalies.append(f"a failing task ended the run otherwise: {output[-1500:]}")
        self.world.nobody_waits(f"a run that failed for good ({code})")
        self._healthy_run()

    def _put_back(self) -> None:
        def make() -> None:
            shutil.rmtree(self.world.checkpoint)
            shutil.copytree(self._chance.choice(self.world.copies), self.world.checkpoint)

        self._run_on_another(make)

    def _offsets_lost(self) -> None:
        def make() -> None:
            for folder in ("offsets", "commits"):
                files = sorted((self.world.checkpoint / folder).glob("[0-9]*"), key=lambda path: int(path.name))
                for path in files[-1:]:
                    path.unlink()
                    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

        self._run_on_another(make)

    def _run_on_another(self, make: Callable[[], None]) -> None:
        """A run on a checkpoint of yesterday. If it refuses, it is repaired, or the right one comes back."""
        world = self.world
        aside = world.folder / "aside"
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(world.checkpoint, aside)
        make()
        code, output = self._start().wait()
        if code == 0:
            world.happened["ran on"] += 1  # rightly or wrongly: the comparison tells
            world.nobody_waits("a run on another checkpoint")
            world.compare("a run on another checkpoint")
            return
        if reported := [name for name in REPORTED_ERRORS if name in output]:
            world.happened[f"refused: {reported[0]}"] += 1
        else:
            world.anomalies.append(f"a checkpoint of yesterday ended a run otherwise: {output[-1500:]}")
        if not (self._chance.random() < 0.5 and self._repaired()):
            shutil.rmtree(world.checkpoint)
            shutil.copytree(aside, world.checkpoint)
        self._healthy_run()

    def _repaired(self) -> bool:
        code, reported = self.world.command(
            "spark", "repair", SINK, "--checkpoint", str(self.world.checkpoint), "--yes"
        )
        self.world.happened["repaired" if code == 0 else f"not to be repaired: {reported[-200:]}"] += 1
        return code == 0

    def _too_slow(self) -> None:
        options = json.dumps({"kafka.transaction.timeout.ms": str(SHORT_TIMEOUT_MS)})
        code, output = self._start(slow_s=str(LATE_S), options=options, failing_share="0").wait()
        if code == 0 or ("BatchTimedOutError" not in output and "TRANSACTION_ABORTABLE" not in output):
            self.world.anomalies.append(f"a batch that was too slow ended otherwise ({code}): {output[-1500:]}")
        self.world.nobody_waits("a batch that was too slow")
        self._healthy_run()

    def _lost(self) -> None:
        """Killed behind the decision, and too late again: what the documentation says is then done."""
        options = json.dumps({"kafka.transaction.timeout.ms": str(SHORT_TIMEOUT_MS)})
        order = {"step": "WriteDecision", "when": "after", "nth": self._chance.randint(1, 2), "mode": "all"}
        run = self._start([order], options=options)
        run.wait()
        if not self._note_strike(run, order):
            self._healthy_run()
            return
        time.sleep(self._chance.choice((SHORT_TIMEOUT_MS / 1000 + 3, 0.5)))
        code, output = self._start(options=options).wait()
        if "PreparedTransactionLostError" in output:
            self.world.happened["lost"] += 1
            self._settle()
        elif code != 0:
            self.world.happened["lost: failed otherwise"] += 1
        self._healthy_run()

    def _settle(self) -> None:
        world = self.world
        code, reported = world.command("spark", "decisions", SINK, "--json")
        (facts,) = json.loads(reported)["decisions"] if code == 0 else ({},)
        forget = ["spark", "forget", SINK, "--query", facts.get("query", "?"), "--lost", "accept", "--yes"]
        forgot, words = world.command(*forget)
        if code != 0 or forgot != 0:
            world.anomalies.append(f"a lost batch cannot be settled: {reported[-600:]} {words[-600:]}")
            return
        self._healthy_run()
        code, output = self._start(repair=json.dumps({"from": facts["from"], "to": facts["to"]})).wait()
        if code != 0:
            world.anomalies.append(f"what was lost cannot be written: {output[-1500:]}")

    def _speculation(self) -> None:
        """On a cluster: copies of slow tasks, and an executor that dies while its task goes on."""
        world = self.world
        folder = world.folder / f"cluster-{world.happened['speculation']}"
        folder.mkdir()
        slow = {"step": "BeginTask", "when": self._chance.choice(("before", "after")), "mode": "slow", "name": "slow"}
        dead = {"step": "BeginTask", "when": "after", "mode": "executor", "name": "executor"}
        orders = [{**slow, "nth": self._chance.randint(1, 3)}]
        if self._chance.random() < 0.5:
            orders.append({**dead, "nth": self._chance.randint(2, 5)})
        # The executors' Python processes get their environment from the cluster, not from the driver.
        with Standalone(folder, killer_environment(folder, orders)) as cluster:
            code, output = self._start(master=cluster.url, settings=json.dumps(SPECULATION)).wait()
            for name in ("slow.began", "slow.copied", "slow.went-on", "executor.killed"):
                world.happened[f"cluster: {name}"] += (folder / name).exists()
            if code == 0:
                world.nobody_waits("a run with speculative copies")
            elif "executor" not in output.lower():
                world.anomalies.append(f"a run on a cluster failed: {output[-1500:]}")
        self._healthy_run()

    def _start(self, kill: list[dict[str, object]] | None = None, **arguments: str) -> Run:
        chosen = {
            "seed": str(self._chance.randrange(2**32)),
            "rows_per_batch": str(self._chance.choice((100, 300, 2000))),
        }
        return self.world.start(kill, **{**chosen, **arguments})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guarantee", choices=("durable", "timed"), default="durable")
    parser.add_argument("--broker", choices=("fencepost", "kafka"), default="fencepost")
    parser.add_argument("--only", nargs="*", default=[], help="situations by name")
    given = parser.parse_args()
    world = World(given.guarantee, given.broker)
    Torture(world, given.seed).run(given.minutes, given.only)
    print(f"{world.sent} records")
    return tell(world.anomalies, world.happened, world.folder)


if __name__ == "__main__":
    sys.exit(main())
