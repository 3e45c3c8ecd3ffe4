#!/usr/bin/env bash
# Installs what is missing, builds and tests.
#
#   bash tests/run.sh         what a developer runs: g++, every suite
#   bash tests/run.sh full    what CI runs: fresh builds, g++ and clang++ with warnings as errors, sanitizers,
#                             compile-time budgets, a build with CUDA where nvcc is, ranks over MPI, the
#                             documentation, builds against every package, a Debian package in a fresh Debian
#
# Last line: N passed, N failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
source tests/support/stages.sh
source tests/support/package_stages.sh

mode=${1:-quick}
case $mode in
  quick | full) ;;
  *) echo "tests/run.sh: '$mode' is not a mode; give nothing or 'full'" >&2; exit 2 ;;
esac

bash tools/install_dependencies.sh "$mode" || exit 1
source tools/toolchain.sh

if [ "$mode" = quick ]; then
  stage 'configure' configure_once build -Dtests=enabled -Dexamples=enabled -Dcuda=disabled -Dmpi=disabled &&
    stage 'build' build_tests build &&
    run_tests build
else
  # The budgets are for g++, two cores or one: seconds of processor time in a fresh folder.
  stage 'g++: configure' configure_fresh gcc "${CXX:-g++}" -During=disabled --prefix "$PWD/build-full/installed" &&
    stage_within 150 'g++: library, tools and examples' ninja -C build-full/gcc programs &&
    stage_within 400 'g++: with all tests' build_tests build-full/gcc &&
    run_tests build-full/gcc
  stage 'g++: each validation of the reader is tested' mutate_reader build-full/gcc
  # Without FLATSHARD_TEST_EVERY a random 40 of 44100; 1 is all of them, four minutes.
  stage 'g++: every seventh way to resume' env FLATSHARD_TEST_EVERY=7 \
    build-full/gcc/tests/unit/unit_checkpoint --test-case='resuming under any*'
  stage 'g++: benchmarks' ninja -C build-full/gcc
  stage 'g++: a program against the installed library' build_against_installed build-full/gcc

  stage 'clang++, address and undefined: configure' configure_fresh clang-address clang++ \
    -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 \
    -Dbench=disabled "-Dcpp_args=$undefined_flags" &&
    stage 'clang++, address and undefined: build' build_tests build-full/clang-address &&
    run_tests build-full/clang-address -t 5 --no-suite training
  fuzz_stage build-full/clang-address

  # g++ here: clang++'s static run-time library does not let a program replace operator new.
  stage 'g++, thread: configure' configure_fresh gcc-thread "${CXX:-g++}" \
    -Db_sanitize=thread -Db_lundef=false -Doptimization=1 -Dbench=disabled &&
    stage 'g++, thread: build' build_tests build-full/gcc-thread &&
    run_tests build-full/gcc-thread -t 5 --suite unit --suite property --suite examples

  cuda_stages

  mpi_stages

  docs_stage

  stage 'subproject: build' build_subproject
  stage 'subproject: library alone' only_the_library build-full/subproject/build
  stage 'wrap: configure' configure_wrap
  debian_stages
  stage 'absent back ends are refused' refuses_absent_back_ends
fi

finish
