# shellcheck shell=bash
# Sourced by tests/run.sh: named stages, their counts and times.
stages_passed=0
stages_failed=0
tested=()
budgets=()

export CCACHE_DISABLE=1 # a build time that is measured is not one that was remembered
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS="second_deadlock_stack=1 suppressions=$PWD/tests/sanitizers/thread.txt"

undefined_flags="-fsanitize=float-cast-overflow,integer -fno-sanitize-recover=all"
undefined_flags+=" -fsanitize-ignorelist=$PWD/tests/sanitizers/ignorelist.txt"

# record NAME STATUS
record() {
  if [ "$2" -eq 0 ]; then
    stages_passed=$((stages_passed + 1))
  else
    stages_failed=$((stages_failed + 1))
    echo "FAILED: $1"
  fi
  return "$2"
}

# stage NAME COMMAND...: runs the command, quiet unless it fails; what it writes to descriptor 3 is shown.
stage() {
  local name=$1 log status
  shift
  log=$(mktemp)
  echo "== $name"
  "$@" 3>&1 >"$log" 2>&1 </dev/null
  status=$?
  [ $status -eq 0 ] || tail -n 60 "$log"
  rm -f "$log"
  record "$name" $status
}

# stage_within SECONDS NAME COMMAND...: as stage, and its processor time, added to that of the earlier
# budgeted stages, must stay within the seconds; more of them while the machine compiles slower than
# the one on which the budgets were set, which a shared one does for minutes at a time.
cpu_total=0
stage_within() {
  local limit=$1 name=$2 pace before after
  shift 2
  pace=$(compile_pace)
  before=$(children_cpu_seconds)
  stage "$name" "$@" || return 1
  after=$(children_cpu_seconds)
  pace=$(((pace + $(compile_pace)) / 2))
  cpu_total=$((cpu_total + after - before))
  budgets+=("$name: $cpu_total CPU-seconds (budget $limit, at $pace% of a reference's time)")
  echo "${budgets[-1]}"
  [ "$cpu_total" -le $((limit * pace / 100)) ]
  record "$name: within $limit CPU-seconds" $?
  return 0
}

compile_pace() { python3 tests/support/compile_pace.py "${CXX:-g++}" || echo 100; }

# User and system seconds of all finished children of this shell.
children_cpu_seconds() { python3 -c '
import sys
fields = open(f"/proc/{sys.argv[1]}/stat").read().rsplit(")", 1)[1].split()
print((int(fields[13]) + int(fields[14])) // int(sys.argv[2]))' $$ "$(getconf CLK_TCK)"; }

configure_once() {
  local folder=$1
  shift
  if [ -f "$folder/build.ninja" ]; then meson configure "$folder" "$@"; else meson setup "$folder" "$@"; fi
}

# configure_fresh NAME COMPILER OPTION...: an empty folder build-full/NAME, warnings as errors. The host
# alone, without MPI, unless an option says otherwise: the budgets are its.
configure_fresh() {
  local folder=build-full/$1 compiler=$2
  shift 2
  rm -rf "$folder"
  CXX=$compiler meson setup "$folder" -Dwerror=true -Dtests=enabled -Dexamples=enabled -Dcuda=disabled -Dmpi=disabled "$@"
}

# Everything with CUDA and NCCL, for every architecture. GPU tests skip where there is no device; some
# of them run over an emulated one.
cuda_stages() {
  if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "== CUDA: skipped, there is no nvcc"
    return
  fi
  cpu_total=0
  stage 'CUDA: configure' configure_fresh cuda "${CXX:-g++}" -Dcuda=enabled -Dnccl=enabled &&
    stage_within 1200 'CUDA: library, examples and GPU tests, every architecture' ninja -C build-full/cuda programs gpu_tests &&
    stage 'CUDA: tests over an emulated device' ninja -C build-full/cuda emulated_tests &&
    run_tests build-full/cuda --suite gpu --suite emulated
}

# Ranks as processes of mpirun, on one host and on two.
mpi_stages() {
  stage 'MPI: configure' configure_fresh mpi "${CXX:-g++}" -Dmpi=enabled -Doptimization=1 \
    -Dtools=disabled -Dbench=disabled &&
    stage 'MPI: library, train_gpt and tests' ninja -C build-full/mpi mpi_tests &&
    run_tests build-full/mpi --suite mpi
}

# The site and its reference; skipped where its tools cannot be had. That its code compiles and that its
# pages name every option is tested by the suite docs in any case.
docs_stage() {
  local log
  log=$(mktemp)
  if bash tools/install_dependencies.sh docs >"$log" 2>&1 </dev/null; then
    stage 'documentation: no warnings, no broken links' bash tools/build_docs.sh
  else
    echo "== documentation: skipped: $(tail -n 1 "$log")"
  fi
  rm -f "$log"
}

build_tests() { ninja -C "$1" meson-test-prereq programs; }

# run_tests FOLDER OPTION...
run_tests() {
  local folder=$1
  shift
  echo "== test $folder"
  meson test -C "$folder" --no-rebuild --print-errorlogs "$@" </dev/null
  tested+=("$folder")
}

# Removes each validation of the safetensors reader in turn; the tests of the built folder must notice.
mutate_reader() {
  local report=$1/mutations.txt status
  python3 tests/mutate_reader.py "$1" "${CXX:-g++}" >"$report"
  status=$?
  cat "$report"
  tail -n 1 "$report" >&3
  return $status
}

# 60 seconds of fuzzing, from the seeds, where the folder's compiler has libFuzzer.
fuzz_stage() {
  if ! ninja -C "$1" -t query fuzz >/dev/null 2>&1; then
    echo "== fuzzing: skipped, the compiler of $1 brings no libFuzzer"
    return
  fi
  stage 'fuzzing: build' ninja -C "$1" fuzz || return
  stage 'fuzzing: header' fuzz "$1" header tests/corpus/files
  stage 'fuzzing: index' fuzz "$1" index tests/corpus/indexes
  stage 'fuzzing: manifest' fuzz "$1" manifest tests/fuzz/seeds/manifest
}

# fuzz FOLDER TARGET SEEDS: 20 seconds; what is found lands in FOLDER/fuzz.
fuzz() {
  local program=$PWD/$1/tests/fuzz/fuzz_$2 place=$1/fuzz/$2
  mkdir -p "$place/inputs"
  "$program" -max_total_time=20 -max_len=8192 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -dict=tests/fuzz/json.dict "-artifact_prefix=$place/" "$place/inputs" "$3" &&
    echo "$2: fuzzed for 20 s" >&3
}

# What is asked for and not found ends the configuration.
refuses_absent_back_ends() {
  local option output
  for option in uring=enabled:liburing mpi=enabled:ompi-c; do
    rm -rf build-full/refused
    output=$(PKG_CONFIG_LIBDIR=/nonexistent meson setup build-full/refused -Dcuda=disabled -During=disabled \
      -Dmpi=disabled "-D${option%:*}" 2>&1) && return 1
    case $output in *ERROR:*"${option#*:}"*) ;; *) echo "$output"; return 1 ;; esac
  done
}

finish() {
  local passed=0 failed=0
  if [ ${#tested[@]} -gt 0 ]; then
    read -r passed failed < <(python3 tests/support/count.py "${tested[@]}") || failed=1
  fi
  [ ${#budgets[@]} -eq 0 ] || printf '%s\n' "${budgets[@]}"
  passed=$((passed + stages_passed))
  failed=$((failed + stages_failed))
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
  exit
}
