"""`python -m scripts.attack`, which `make attack` calls."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from scripts.attack import driver
from scripts.attack.table import ATTACKS


def main() -> int:
    """Exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--size", type=float, default=1.0, help="1: ten minutes on two cores; 0.1: a minute")
    parser.add_argument("--seed", default="1", help="of everything that is drawn by lot")
    parser.add_argument("--only", default="", help="attacks whose names have this in them; several with commas")
    parser.add_argument("--try", dest="number", type=int, help="this try alone, by a real process")
    parser.add_argument(
        "--resume", action="store_true", help="what --out has of this seed, and found nothing, is not tried again"
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/attack"), help="failures are kept here")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    wanted = [part.strip() for part in given.only.split(",")]
    chosen = [each for each in ATTACKS if any(part in each.name for part in wanted)]
    if not chosen:
        parser.error(f"--only {given.only}: choose from: {', '.join(each.name for each in ATTACKS)}")
    plan = driver.Plan(chosen, given.out.resolve(), given.seed, given.size, given.workers, given.number, given.resume)
    began = time.monotonic()
    counts = driver.attack(plan)
    print("\n".join(driver.table(plan, counts)))
    print(f"\nseconds of a processor for a try: {driver.costs(plan)}")
    found = (plan.out / "failures.jsonl").read_text(encoding="utf-8").count("\n")
    print(f"\nseed {plan.seed}, size {plan.size:g}, {time.monotonic() - began:.0f} s on {plan.workers} cores; ", end="")
    print(f"{found} tries found something: {plan.out}/failures.jsonl" if found else "nothing was found")
    if lost := driver.lost(plan, counts):
        print(f"{lost} tries were not made: stopped, or the attack itself failed, see above", file=sys.stderr)
    return 1 if found or lost else 0


if __name__ == "__main__":
    sys.exit(main())
