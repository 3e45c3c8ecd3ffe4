"""What the checks that run a compiler share."""
import concurrent.futures
import os
import subprocess

STANDARD = ["-std=c++20", "-fsyntax-only", "-fdiagnostics-color=never"]


def compiled(compiler, flags, source, text=None):
    """(whether it compiled, what the compiler said); source '-' reads text."""
    command = [*compiler, *STANDARD, *flags, "-x", "c++", str(source)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr + done.stdout


def count(names, faults_of):
    """Runs faults_of(name) on every name, prints the faults and 'N passed, N failed'; number that failed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, faults in zip(names, pool.map(faults_of, names)):
            failed += bool(faults)
            for fault in faults:
                print(f"{name}: {fault}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return failed
