#!/usr/bin/env bash
# Everything that needs a GPU, in one go: builds with CUDA, runs the GPU tests, NCCL's on every
# device there is, compute-sanitizer's four tools, and the benchmarks. Goes on after a failure.
#
#   bash tests/gpu/check.sh [STAGE...]     build tests sanitizer bench; all without a name
#
# OUT: folder of the logs (build-gpu/out); ARCH: sm_90; BUILD: build-gpu/all; TESTS: names of
# tests/gpu/meson.build (all); SANITIZED: those that the sanitizers run (the short ones).
# JOBS: tests of one GPU and sanitizers at once (1). Last line: N passed, N failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
BUILD=${BUILD:-build-gpu/all}
OUT=${OUT:-build-gpu/out}
mkdir -p "$OUT"
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
    [ -z "${1:-}" ] || [[ " $1 " == *" $name "* ]] || continue
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

sanitizer() {
  local name tool
  command -v compute-sanitizer >/dev/null || { echo "skipped  sanitizer: there is no compute-sanitizer"; return; }
  for name in $(programs "${SANITIZED:-kernels_control kernels_sum kernels_copy engine}"); do
    local cases=()
    [ "$name" != engine ] || cases=("-tc=${ENGINE_CASES:-*assignment*,*other optimizers*}") # the rest takes minutes there
    for tool in memcheck racecheck initcheck synccheck; do
      in_pool "${tool}_$name" "${SANITIZER_LIMIT:-120}" compute-sanitizer --tool "$tool" --error-exitcode 1 \
        "$BUILD/tests/gpu/gpu_$name" "${cases[@]}"
    done
  done
  pool_ended
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
