"""A page with plots from a file of results.

    bench/report [RESULTS.json] [--to FOLDER]

Writes BENCHMARKS.md, benchmarks/*.svg and a copy of the results into FOLDER, docs by default.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import sections
from aims import verdicts
from compare import Results
from texts import METHOD, TITLES

ROOT = Path(__file__).resolve().parent.parent


def page(results: Results, drawn: dict[str, list[str]]) -> str:
    parts = [sections.opening(results), sections.verdict_table(verdicts(results))]
    parts += [sections.body(group, results, drawn.get(group, [])) for group in TITLES if results.of(group)]
    parts += [sections.behind(results), sections.failures(results), METHOD, sections.machine(results)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=ROOT / "bench" / "results.json")
    parser.add_argument("--to", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    if not options.results.exists():
        print(f"there is no {options.results}: python bench/run.py makes it", file=sys.stderr)
        return 1
    results = Results.read(options.results)
    folder = options.to / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import plots
    except ImportError:
        print("without plots: pip install '.[bench]' brings matplotlib", file=sys.stderr)
        drawn = {}
    else:
        drawn = plots.draw(results, folder)
    (options.to / "BENCHMARKS.md").write_text(page(results, drawn))
    (folder / "results.json").write_text(json.dumps(json.loads(options.results.read_text())) + "\n")
    print(options.to / "BENCHMARKS.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
