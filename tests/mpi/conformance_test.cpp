// The conformance suite of communicators, over MPI: under mpirun -n 1, 2, 3, 4.
#include <doctest/doctest.h>

#include "conformance_errors.hpp"
#include "conformance_order.hpp"
#include "conformance_values.hpp"
#include "mpi_worlds.hpp"

using namespace conformance;

TEST_CASE("mpi: all_gather and broadcast of every dtype") {
  on_both_forms([](Worlds& worlds) { gathers_and_broadcasts(worlds, usual_counts); });
}

TEST_CASE("mpi: reductions are the tree, rounded once") {
  on_both_forms([](Worlds& worlds) { reductions_of_all_dtypes(worlds, usual_counts); });
}

TEST_CASE("mpi: large counts, and messages that are cut") {
  for (const Bytes largest : {Bytes{1} << 30, Bytes{9973}, Bytes{65537}}) {
    CAPTURE(largest);
    MpiWorlds worlds(StreamForm::Threaded, {.patience = 20s, .largest_message = largest});
    for_worlds(worlds, {large_count}, [](Communicator& comm, Stream& stream, Elements count) {
      check_all_gather(comm, stream, count, DType::Float32);
      check_broadcast(comm, stream, count, DType::Int8);
    });
    reductions<Bf16, float>(worlds, {large_count});
  }
}

TEST_CASE("mpi: sums in several blocks of scratch, the last one cut short") {
  MpiWorlds worlds(StreamForm::Inline);
  reductions<float, Bf16>(worlds, {2 * large_count * worlds.sizes().back()});
}

TEST_CASE("mpi: splits, and splits of splits") { on_both_forms(splits); }

TEST_CASE("mpi: collectives on concurrent streams are matched by the order of issue") {
  MpiWorlds worlds(StreamForm::Threaded);
  concurrent_streams(worlds);
}

TEST_CASE("mpi: many small collectives") {
  on_both_forms([](Worlds& worlds) { many_small_collectives(worlds, 500); });
}

TEST_CASE("mpi: synchronize waits for all") { on_both_forms(synchronize_waits_for_all); }

TEST_CASE("mpi: buffers are free when the stream is done") {
  on_both_forms(buffers_are_free_afterwards);
}

TEST_CASE("mpi: mismatched calls name both sides, on all ranks") {
  on_both_forms(mismatches_name_both_sides);
}

TEST_CASE("mpi: an exception reaches every rank") {
  on_both_forms(an_exception_reaches_every_rank);
}

TEST_CASE("mpi: abort reaches every rank") { on_both_forms(abort_reaches_every_rank); }

TEST_CASE("mpi: a rank that returns early is named") {
  on_both_forms(a_rank_that_returns_early_is_named);
}

TEST_CASE("mpi: a rank may leave after its last call") {
  on_both_forms(a_rank_may_leave_after_its_last_call);
}

TEST_CASE("mpi: wrong arguments are refused") { on_both_forms(wrong_arguments_are_refused); }
