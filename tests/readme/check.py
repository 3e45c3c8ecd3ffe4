#!/usr/bin/env python3
"""What the README says is so: its program is examples/hello.cpp, the files it names exist, and its
table of memory is what train_gpt plans.

Usage: check.py ROOT TRAIN_GPT | check.py --table TRAIN_GPT (prints the table) | check.py --self-test
"""
import pathlib
import re
import subprocess
import sys

STRATEGIES = {
    "no_shard": "NoShard",
    "shard_optimizer": "ShardOptimizer",
    "shard_grad_op": "ShardGradOp",
    "full_shard": "FullShard",
    "hybrid_shard": "HybridShard",
    "hybrid_shard_grad_op": "HybridShardGradOp",
    "full_shard_secondary": "FullShardSecondary",
}
WORLDS = [1, 2, 4, 8]
HEAD = "| MB per rank | " + " | ".join(f"W = {world}" for world in WORLDS) + " |"


def plan_of(train_gpt, strategy, world):
    command = [train_gpt, "--plan", "--strategy", strategy, "--ranks", str(world)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def memory_of(plan):
    """Bytes of parameters, gradients and state at rest, and of everything else."""
    roles = {name.strip(): int(count) for name, count in re.findall(r"^  (\S[a-z ]+?) +(\d+)$", plan, re.MULTILINE)}
    whole_at_rest = not re.search(r"(from first use to step|per use)$", plan, re.MULTILINE)
    parameters = roles.get("master", 0) + roles.get("compute shard", 0)
    parameters += roles.get("whole parameters", 0) if whole_at_rest else 0
    rest = parameters, roles["gradient"], roles["optimizer state"]
    return (*rest, roles["all"] - sum(rest))


def cell(plan):
    parameters, gradients, state, working = (f"{count / 1e6:.2f}" for count in memory_of(plan))
    return f"{parameters} + {gradients} + {state} (+ {working})"


def table(train_gpt):
    rows = [HEAD, "|---" * (len(WORLDS) + 1) + "|"]
    for strategy, name in STRATEGIES.items():
        cells = [cell(plan_of(train_gpt, strategy, world)) for world in WORLDS]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def program_faults(readme, program):
    blocks = re.findall(r"^```cpp\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    return [] if blocks[:1] == [program] else ["its first C++ block is not examples/hello.cpp"]


def path_faults(readme, exists):
    prose = re.sub(r"^```cpp\n.*?^```$", "", readme, flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.(?:md|hpp|cpp|sh|py|txt)(?![\w/])", prose)
    return [f"it names {name}, which does not exist" for name in sorted(set(named)) if not exists(name)]


def table_faults(readme, expected):
    return [] if expected in readme else ["its table of memory is not:\n" + expected]


def faults(root, train_gpt):
    readme = (root / "README.md").read_text(encoding="utf-8")
    program = (root / "examples/hello.cpp").read_text(encoding="utf-8")

    def exists(name):
        return any((root / folder / name).exists() for folder in ["", "include"])

    return [
        program_faults(readme, program),
        path_faults(readme, exists),
        table_faults(readme, table(train_gpt)),
    ]


PLAN = """bytes per rank, device memory:
  master                            417408
  whole parameters                  164864
  gradient                          417408
  optimizer state                   834816
  alignment and skew                   192
  all                              5185280

root/0                               41216          5152      yes  %s
"""


def self_test():
    program = "int main() {}\n"
    readme = f"see examples/a.cpp\n```cpp\n{program}```\n"
    wrong = {
        "good program": program_faults(readme, program),
        "good paths": path_faults(readme, lambda name: name == "examples/a.cpp"),
        "good table": table_faults(readme, "int"),
    }
    right = {
        "drifted program": program_faults(readme, program + "\n"),
        "missing path": path_faults(readme, lambda name: False),
        "drifted table": table_faults(readme, "| 1 |"),
    }
    sharded = memory_of(PLAN % "from first use to step") == (417408, 417408, 834816, 3515648)
    whole = memory_of(PLAN % "always") == (582272, 417408, 834816, 3350784)
    failed = [name for name, found in wrong.items() if found] + [name for name, found in right.items() if not found]
    failed += ["sharded memory"] * (not sharded) + ["whole memory"] * (not whole)
    print(f"self-test: wrong about {failed}" if failed else "self-test holds")
    return failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        return bool(self_test())
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--table":
        print(table(sys.argv[2]), end="")
        return 0
    results = faults(pathlib.Path(sys.argv[1]), sys.argv[2])
    for fault in sum(results, []):
        print(f"README.md: {fault}")
    failed = sum(map(bool, results))
    print(f"{len(results) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
