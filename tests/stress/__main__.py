"""The command: `python -m tests.stress --minutes 10 --engine postgresql`. The package's docstring says what it does."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

# PyMySQL loads the machine's certificates for every connection, which takes 37 ms, even if the server has no TLS.
if "TABLEQUEUE_TEST_MARIADB_URL" not in os.environ:
    os.environ["SSL_CERT_FILE"] = os.devnull

from tests.stress import topics
from tests.stress.ground import DAMAGES, Ground, ground
from tests.stress.history import history, shrunk
from tests.stress.lateness import LATE
from tests.stress.mix import KINDS, QUEUES, Mix, drawn
from tests.stress.run import Result, Round


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stress", description="Stress queues, and check every promise."
    )
    names = argparse.RawDescriptionHelpFormatter
    parser.formatter_class = names
    parser.epilog = "kinds of action:\n" + "\n".join(f"  {name:9} {what}" for name, what in KINDS.items())
    parser.epilog += "\nqueues: " + ", ".join(QUEUES)
    parser.add_argument("--engine", choices=sorted(DAMAGES), default="sqlite")
    parser.add_argument(
        "--url", help="of a server that is there, which is not killed then; else one is made for the run"
    )
    parser.add_argument(
        "--kind", type=listed(ROUNDS), default=list(ROUNDS), help="of rounds: queues,topics; the seed decides"
    )
    parser.add_argument("--minutes", type=float, default=10, help="rounds begin until then; each has a seed of its own")
    parser.add_argument("--rounds", type=int, help="at the most so many rounds")
    parser.add_argument("--seconds", type=float, help="of each round; 10 to 30 by its seed if not given")
    parser.add_argument("--seed", type=int, help="of the first round; those after it have the next numbers")
    parser.add_argument("--only", type=listed(KINDS), default=list(KINDS), help="kinds of action, all in each round")
    parser.add_argument("--without", type=listed(KINDS), default=[], help="kinds of action")
    parser.add_argument("--queues", type=listed(QUEUES), default=list(QUEUES), help="designs, all in each round")
    parser.add_argument("--late", type=float, default=LATE, help="seconds in which what is ready is delivered")
    parser.add_argument("--keep-going", action="store_true", help="after a failure too, and shrink none")
    parser.add_argument("--shrink", type=float, default=3, help="minutes to look for a shorter failure")
    parser.add_argument("--folder", type=Path, help="where the ledgers of failed rounds stay")
    parser.add_argument("--mutant", help="a broken engine of tests/test_mutants.py")
    options = parser.parse_args(arguments)
    options.seed = random.randrange(1_000_000) if options.seed is None else options.seed
    return options


def listed(known: Mapping[str, object]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = [name for name in text.split(",") if name]
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return given

    return names


ROUNDS = {"queues": "any verbs of queues", "topics": "topics, seeks, drops, renames and limits"}


@dataclass
class Stress:
    """All rounds of a run, with the violations."""

    options: argparse.Namespace
    ground: Ground
    folder: Path
    found: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    rounds: int = 0

    def mix(self, seed: int) -> Mix:
        options = self.options
        # Kinds of action that need a server, and those that need one that can be killed.
        impossible = ["slow", "idle"] * (not self.ground.url) + ["server"] * (not self.ground.server)
        kinds = [kind for kind in options.only if kind not in (*options.without, *impossible)]
        chosen = len(options.only) < len(KINDS) or len(options.queues) < len(QUEUES)
        if random.Random(seed).choice(options.kind) == "topics":
            return topics.drawn(seed, kinds, options.seconds, chosen)
        return drawn(seed, kinds, options.queues, options.seconds, all_of=chosen)

    def play(self, mix: Mix) -> Result:
        self.rounds += 1
        folder = self.folder / f"round-{self.rounds}-seed-{mix.seed}"
        folder.mkdir()
        kind = Round if mix.queues else topics.TopicRound
        round = kind(self.ground, mix, folder, self.options.mutant, self.options.late)
        last = [0.0]

        def tell(line: str) -> None:
            if sys.stdout.isatty() and monotonic() > last[0] + 0.5:
                last[0] = monotonic()
                print(f"\r  {line}\x1b[K", end="", flush=True)

        result = round.play(tell)
        self.totals.update(result.counts)
        (folder / "mix.json").write_text(mix.dumps())
        print("\r" * sys.stdout.isatty() + "  " + ", ".join(f"{count} {what}" for what, count in result.counts.items()))
        if not result.violations:
            shutil.rmtree(folder)
            self.ground.clean(round.setting.url, round.setting.schema)
        return result

    def run(self) -> int:
        options = self.options
        until = monotonic() + options.minutes * 60
        seed = options.seed
        while monotonic() < until and (options.rounds is None or self.rounds < options.rounds):
            mix = self.mix(seed)
            print(f"round {self.rounds + 1}: {mix}", flush=True)
            result = self.play(mix)
            seed += 1
            if result.violations:
                self.found.update(violation.kind for violation in result.violations)
                if not options.keep_going:
                    self._shrink(result)
                    return 1
                self._show(result)
        print("in all " + ", ".join(f"{count} {what}" for what, count in self.totals.items()))
        print(f"{self.rounds} rounds, seeds {options.seed} to {seed - 1}: {dict(self.found) or 'nothing found'}")
        return 1 if self.found else 0

    def _shrink(self, result: Result) -> None:
        self._show(result)
        until = monotonic() + self.options.shrink * 60
        if self.options.shrink and result.story:
            print(f"\nlooking for a shorter failure, for {self.options.shrink:g} minutes at the most")
            smallest = shrunk(result, self.play, lambda: monotonic() < until)
            if smallest is not result:
                self._show(smallest, 1)

    def _show(self, result: Result, number: int = 5) -> None:
        """Print the first violations of each kind, with the history of the first one."""
        kinds = Counter(violation.kind for violation in result.violations)
        print(f"FAILED: {result.mix}\n  {dict(kinds)}")
        for kind in kinds:
            mine = [violation for violation in result.violations if violation.kind == kind]
            for violation in mine[:number]:
                print(f"\n  {violation}")
            if result.story:
                print("\n".join(f"    {line}" for line in history(result.story, mine[0])))
        queues, kinds_of_action = ",".join(result.mix.queues), ",".join(result.mix.kinds)
        rounds = f"queues --queues {queues}" if queues else "topics"
        print(
            f"\n  again: python -m tests.stress --engine {self.options.engine} --seed {result.mix.seed} --rounds 1"
            f" --seconds {result.mix.seconds:g} --kind {rounds} --only {kinds_of_action}"
            + (f' --mutant "{self.options.mutant}"' if self.options.mutant else "")
            + f"\n  ledgers: {result.folder}",
            flush=True,
        )


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tablequeue-stress-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, {options.engine}, ledgers in {folder}", flush=True)
    with ground(options.engine, options.url) as place:
        result = Stress(options, place, folder).run()
    if result == 0 and options.folder is None:
        shutil.rmtree(folder)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
