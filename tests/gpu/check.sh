#!/usr/bin/env bash
# Everything that needs a GPU, in one go: builds with CUDA, runs the GPU tests, NCCL's on every
# device there is, compute-sanitizer's four tools, and the benchmarks. Goes on after a failure.
#
#   bash tests/gpu/check.sh [STAGE...]     build tests sanitizer bench; all without a name
#
# OUT: folder of the logs (build-gpu/out); ARCH: sm_90; BUILD: build-gpu/all; TESTS: names of
# tests/gpu/meson.build (all); SANITIZED: those that the sanitizers run (all but kernels_large, which
# is too long there, and of NCCL's one test, by memcheck).
# JOBS: tests of one GPU and sanitizers at once (1). Last line: N passed, N failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
BUILD=${BUILD:-build-gpu/all}
OUT=${OUT:-build-gpu/out}
mkdir -p "$OUT"
SHORT_ENOUGH="kernels_step kernels_copy kernels_sum kernels_control kernels_fast_math engine carry_over
  train_gpt_kernels train_gpt_model offload"
export NCCL_NVLS_ENABLE=0 # multicast needs rights that a test should not ask for
GPUS=$(nvidia-smi --list-gpus 2>/dev/null | grep -c .)
[ "$GPUS" -gt 0 ] || GPUS=1
passed=0
failed=0
turn=0

# check NAME SECONDS COMMAND...: its output goes to $OUT/NAME.log.
check() {
  local name=$1 limit=$2 status start=$SECONDS
  shift 2
  timeout "$limit" "$@" >"$OUT/$name.log" 2>&1 </dev/null
  status=$?
  case $status in
    0) passed=$((passed + 1)); echo "ok       $name ($((SECONDS - start)) s)" ;;
    77) echo "skipped  $name: $(tail -n 1 "$OUT/$name.log")" ;;
    *)
      failed=$((failed + 1))
      echo "FAILED   $name (status $status, $((SECONDS - start)) s)"
      grep -aE 'ERROR|error|FAILED|Error' -A 4 "$OUT/$name.log" | head -n 40
      ;;
  esac
  return $status
}

build() {
  [ -f "$BUILD/build.ninja" ] ||
    check configure 60 meson setup "$BUILD" -Dcuda=enabled -Dnccl=auto "-Dgpu_arch=${ARCH:-sm_90}" \
      -Dtests=enabled -Dexamples=enabled -Dbench=auto -Db_pch=false || return 1
  local targets=()
  [ -z "${TESTS:-}" ] || for name in $TESTS; do targets+=("tests/gpu/gpu_$name"); done
  [[ " ${TESTS:-} " != *" nccl "* ]] || targets+=(tests/gpu/nccl_rank)
  check build "${BUILD_LIMIT:-540}" ninja -C "$BUILD" "${targets[@]}"
}

# Test programs that were built, or those asked for.
programs() {
  local program name
  for program in "$BUILD"/tests/gpu/gpu_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    name=${program##*/gpu_}
    [ -z "${1:-}" ] || [[ " ${1//$'\n'/ } " == *" $name "* ]] || continue
    echo "$name"
  done
}

# in_pool CHECK's arguments...: beside others, at most JOBS at once, on the GPUs by turns.
in_pool() {
  while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n; done
  turn=$(((turn + 1) % GPUS))
  (
    export CUDA_VISIBLE_DEVICES=$turn
    passed=0 failed=0
    check "$@"
    echo "$passed $failed" >"$OUT/counts.$BASHPID"
  ) &
}

# Waits for the pool and counts what it did.
pool_ended() {
  local counts more fewer
  wait
  for counts in "$OUT"/counts.*; do
    [ -f "$counts" ] || continue
    read -r more fewer <"$counts"
    passed=$((passed + more)) failed=$((failed + fewer))
    rm "$counts"
  done
}

tests() {
  local name
  for name in $(programs "${TESTS:-}"); do
    [[ $name == nccl* ]] || in_pool "test_$name" "${TEST_LIMIT:-300}" "$BUILD/tests/gpu/gpu_$name"
  done
  pool_ended
  for name in $(programs "${TESTS:-}"); do
    [[ $name != nccl* ]] || check "test_$name" "${TEST_LIMIT:-300}" "$BUILD/tests/gpu/gpu_$name"
  done
  [ -z "${TESTS:-}" ] || return
  [ ! -x "$BUILD/examples/train_gpt" ] ||
    check test_train_gpt_run "${TEST_LIMIT:-300}" python3 tests/gpu/train_gpt_run_test.py "$BUILD/examples/train_gpt"
  [ ! -x "$BUILD/examples/custom_optimizer" ] ||
    check test_custom_optimizer "${TEST_LIMIT:-300}" "$BUILD/examples/custom_optimizer"
}

# The cases of a program, each as "--first=N --last=N".
cases() {
  local all
  all=$("$BUILD/tests/gpu/gpu_$1" --count | grep -oE '[0-9]+$')
  for ((n = 1; n <= all; ++n)); do echo "$n"; done
}

# Every case is a process of its own, or JOBS would not help.
sanitizer() {
  local name tool n
  command -v compute-sanitizer >/dev/null || { echo "skipped  sanitizer: there is no compute-sanitizer"; return; }
  export FLATSHARD_TEST_SHORT=1
  for name in $(programs "${SANITIZED:-$SHORT_ENOUGH}"); do
    for n in $(cases "$name"); do
      for tool in racecheck synccheck initcheck memcheck; do
        in_pool "${tool}_${name}_$n" "${SANITIZER_LIMIT:-240}" compute-sanitizer --tool "$tool" --error-exitcode 1 \
          "$BUILD/tests/gpu/gpu_$name" "--first=$n" "--last=$n"
      done
    done
  done
  pool_ended
  [ ! -x "$BUILD/tests/gpu/gpu_nccl_steady" ] || # its probes for kernels of other devices are no errors
    check memcheck_nccl_steady "${SANITIZER_LIMIT:-240}" compute-sanitizer --tool memcheck --report-api-errors no \
      --error-exitcode 1 "$BUILD/tests/gpu/gpu_nccl_steady"
}

bench() {
  local program
  for program in "$BUILD"/bench/cuda_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    check "bench_${program##*/}" "${BENCH_LIMIT:-120}" "$program"
    tail -n 40 "$OUT/bench_${program##*/}.log"
  done
}

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(build tests sanitizer bench)
for stage in "${stages[@]}"; do
  case $stage in
    build | tests | sanitizer | bench) "$stage" || [ "$stage" != build ] || break ;;
    *) echo "check.sh: '$stage' is no stage: build tests sanitizer bench" >&2; exit 2 ;;
  esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
